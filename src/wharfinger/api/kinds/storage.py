"""Kinds of the storage group."""

from __future__ import annotations

from wharfinger.api.columns import storage as columns
from wharfinger.api.defaults import storage as defaults
from wharfinger.api.defaults.walk import typed
from wharfinger.api.registry import Kind
from wharfinger.api.validation import storage as rules
from wharfinger.api.validation.common import checked
from wharfinger.api.warnings import storage as warnings

_GROUP = "storage.k8s.io"

STORAGE_CLASS = Kind(
    _GROUP, "StorageClass", "storageclasses", namespaced=False, short_names=("sc",), generation=False,
    default=typed(defaults.default_storage_class),
    validate=checked("storage.k8s.io/v1", "StorageClass", rules.storage_class_faults),
    columns=columns.STORAGE_CLASS_COLUMNS, returns_deleted=True, warn=warnings.storage_class_warnings,
)  # fmt: skip
CSI_NODE = Kind(
    _GROUP, "CSINode", "csinodes", namespaced=False, generation=False, default=typed(),
    validate=checked("storage.k8s.io/v1", "CSINode", rules.csi_node_faults), columns=columns.CSI_NODE_COLUMNS,
    unconditional_update=False, returns_deleted=True,
)  # fmt: skip
CSI_DRIVER = Kind(
    _GROUP, "CSIDriver", "csidrivers", namespaced=False, generation=False,
    default=typed(defaults.default_csi_driver), validate=checked("storage.k8s.io/v1", "CSIDriver"),
    columns=columns.CSI_DRIVER_COLUMNS, unconditional_update=False, returns_deleted=True,
)  # fmt: skip
CSI_STORAGE_CAPACITY = Kind(
    _GROUP, "CSIStorageCapacity", "csistoragecapacities", generation=False,
    default=typed(defaults.default_storage_capacity),
    validate=checked("storage.k8s.io/v1", "CSIStorageCapacity", rules.storage_capacity_faults),
    columns=columns.STORAGE_CAPACITY_COLUMNS, unconditional_update=False,
)  # fmt: skip
VOLUME_ATTACHMENT = Kind(
    _GROUP, "VolumeAttachment", "volumeattachments", namespaced=False, status=True, generation=False,
    default=typed(), validate=checked("storage.k8s.io/v1", "VolumeAttachment", rules.volume_attachment_faults),
    columns=columns.VOLUME_ATTACHMENT_COLUMNS, unconditional_update=False, returns_deleted=True,
)  # fmt: skip

KINDS = (STORAGE_CLASS, CSI_NODE, CSI_DRIVER, CSI_STORAGE_CAPACITY, VOLUME_ATTACHMENT)
