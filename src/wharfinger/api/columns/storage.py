"""Columns of the storage kinds."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.api.columns.cells import AGE, NONE, UNSET, computed, spec, status
from wharfinger.api.registry import Column, Document

_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def _class_name(document: Document) -> str:
    metadata = document.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    mark = " (default)" if any(annotations.get(name) == "true" for name in _DEFAULT) else ""
    return f"{metadata.get('name', '')}{mark}"


STORAGE_CLASS_COLUMNS = (
    computed("Name", _class_name),
    Column("Provisioner", "provisioner"),
    computed("ReclaimPolicy", lambda document: document.get("reclaimPolicy") or "Delete"),
    computed("VolumeBindingMode", lambda document: document.get("volumeBindingMode") or "Immediate"),
    computed("AllowVolumeExpansion", lambda document: "true" if document.get("allowVolumeExpansion") else "false"),
    AGE,
)

CSI_NODE_COLUMNS = (computed("Drivers", lambda node: len(spec(node).get("drivers") or ()), type="integer"), AGE)


def _flag(field: str, *, default: bool) -> Callable[[Document], bool]:
    return lambda driver: bool(spec(driver).get(field, default))


CSI_DRIVER_COLUMNS = (
    computed("AttachRequired", _flag("attachRequired", default=True), type="boolean"),
    computed("PodInfoOnMount", _flag("podInfoOnMount", default=False), type="boolean"),
    computed("StorageCapacity", _flag("storageCapacity", default=False), type="boolean"),
    computed(
        "TokenRequests",
        lambda driver: ",".join(one.get("audience", "") for one in spec(driver).get("tokenRequests") or ()) or UNSET,
    ),
    computed("RequiresRepublish", _flag("requiresRepublish", default=False), type="boolean"),
    computed("Modes", lambda driver: ",".join(spec(driver).get("volumeLifecycleModes") or ()) or NONE),
    AGE,
)

STORAGE_CAPACITY_COLUMNS = (Column("StorageClassName", "storageClassName"), Column("Capacity", "capacity"))

VOLUME_ATTACHMENT_COLUMNS = (
    Column("Attacher", "spec.attacher"),
    computed("PV", lambda document: (spec(document).get("source") or {}).get("persistentVolumeName") or ""),
    Column("Node", "spec.nodeName"),
    computed("Attached", lambda document: bool(status(document).get("attached")), type="boolean"),
    AGE,
)
