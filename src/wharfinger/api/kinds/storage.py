"""Kinds of the storage group."""

from __future__ import annotations

from wharfinger.api.columns import others as columns
from wharfinger.api.defaults import others as defaults
from wharfinger.api.defaults.walk import typed
from wharfinger.api.registry import Kind
from wharfinger.api.validation import others as rules
from wharfinger.api.validation.common import checked

_GROUP = "storage.k8s.io"

STORAGE_CLASSES = Kind(
    _GROUP,
    "StorageClass",
    "storageclasses",
    namespaced=False,
    short_names=("sc",),
    generation=False,
    default=typed(defaults.default_storage_class),
    validate=checked("storage.k8s.io/v1", "StorageClass", rules.storage_class_faults),
    columns=columns.STORAGE_CLASS_COLUMNS,
)
CSI_NODES = Kind(
    _GROUP,
    "CSINode",
    "csinodes",
    namespaced=False,
    generation=False,
    default=typed(),
    validate=checked("storage.k8s.io/v1", "CSINode", rules.csi_node_faults),
    columns=columns.CSI_NODE_COLUMNS,
)
CSI_DRIVERS = Kind(
    _GROUP,
    "CSIDriver",
    "csidrivers",
    namespaced=False,
    generation=False,
    default=typed(defaults.default_csi_driver),
    validate=checked("storage.k8s.io/v1", "CSIDriver"),
    columns=columns.CSI_DRIVER_COLUMNS,
)
CSI_STORAGE_CAPACITIES = Kind(
    _GROUP,
    "CSIStorageCapacity",
    "csistoragecapacities",
    generation=False,
    default=typed(defaults.default_storage_capacity),
    validate=checked("storage.k8s.io/v1", "CSIStorageCapacity", rules.storage_capacity_faults),
    columns=columns.STORAGE_CAPACITY_COLUMNS,
)
VOLUME_ATTACHMENTS = Kind(
    _GROUP,
    "VolumeAttachment",
    "volumeattachments",
    namespaced=False,
    status=True,
    generation=False,
    default=typed(),
    validate=checked("storage.k8s.io/v1", "VolumeAttachment", rules.volume_attachment_faults),
    columns=columns.VOLUME_ATTACHMENT_COLUMNS,
)

KINDS = (STORAGE_CLASSES, CSI_NODES, CSI_DRIVERS, CSI_STORAGE_CAPACITIES, VOLUME_ATTACHMENTS)
