"""Warnings about volumes, claims and storage classes."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.registry import Document
from wharfinger.api.warnings.common import (
    annotations_of,
    deprecated_label,
    fraction_warnings,
    node_term_warnings,
)
from wharfinger.api.warnings.volumes import DEPRECATED_VOLUMES, shown_name

_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"

_VOLUME_ANNOTATIONS = {
    _STORAGE_CLASS: 'deprecated since v1.8; use "storageClassName" attribute instead',
    "volume.beta.kubernetes.io/mount-options": 'deprecated since v1.31; use "mountOptions" attribute instead',
}


def volume_warnings(new: Document, old: Document | None) -> Iterator[str]:
    spec, annotations = new.get("spec") or {}, annotations_of(new)
    for key, why in _VOLUME_ANNOTATIONS.items():
        if key in annotations:
            yield f"metadata.annotations[{key}]: {why}"
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        instead = "Instead, the recommended approach is to use dynamic provisioning."
        yield f"spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. {instead}"
    terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    for index, term in enumerate(terms):
        yield from node_term_warnings(term, f"spec.nodeAffinity.required.nodeSelectorTerms[{index}]", values=False)
    for name in ("cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd"):
        if spec.get(name) is not None:
            yield f"spec.{shown_name(name)}: {DEPRECATED_VOLUMES[name]}"


def claim_warnings(new: Document, old: Document | None) -> Iterator[str]:
    if _STORAGE_CLASS in annotations_of(new):
        yield f"metadata.annotations[{_STORAGE_CLASS}]: {_VOLUME_ANNOTATIONS[_STORAGE_CLASS]}"
    resources = (new.get("spec") or {}).get("resources") or {}
    for kind in ("requests", "limits"):
        yield from fraction_warnings(resources.get(kind), ("storage",), f"spec.resources.{kind}")


def storage_class_warnings(new: Document, old: Document | None) -> Iterator[str]:
    for index, topology in enumerate(new.get("allowedTopologies") or ()):
        for number, expression in enumerate(topology.get("matchLabelExpressions") or ()):
            if why := deprecated_label(expression.get("key")):
                yield f"allowedTopologies[{index}].matchLabelExpressions[{number}].key: {why}"
