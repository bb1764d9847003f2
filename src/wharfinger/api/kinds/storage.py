"""Kinds of the storage group."""

from __future__ import annotations

from wharfinger.api.registry import Kind

_GROUP = "storage.k8s.io"

STORAGE_CLASSES = Kind(
    _GROUP, "StorageClass", "storageclasses", namespaced=False, short_names=("sc",), generation=False
)
CSI_NODES = Kind(_GROUP, "CSINode", "csinodes", namespaced=False, generation=False)
CSI_DRIVERS = Kind(_GROUP, "CSIDriver", "csidrivers", namespaced=False, generation=False)
CSI_STORAGE_CAPACITIES = Kind(_GROUP, "CSIStorageCapacity", "csistoragecapacities", generation=False)
VOLUME_ATTACHMENTS = Kind(
    _GROUP, "VolumeAttachment", "volumeattachments", namespaced=False, status=True, generation=False
)

KINDS = (STORAGE_CLASSES, CSI_NODES, CSI_DRIVERS, CSI_STORAGE_CAPACITIES, VOLUME_ATTACHMENTS)
