"""Defaults of the storage kinds."""

from __future__ import annotations

from wharfinger.api.defaults.walk import fill, made_child
from wharfinger.api.quantity import BadQuantity, canonical
from wharfinger.api.registry import Document


def default_storage_class(document: Document) -> None:
    fill(document, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def default_csi_driver(document: Document) -> None:
    spec = made_child(document, "spec")
    fill(
        spec,
        attachRequired=True,
        podInfoOnMount=False,
        storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        requiresRepublish=False,
        seLinuxMount=False,
        preventPodSchedulingIfMissing=False,
    )
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


def default_storage_capacity(document: Document) -> None:
    for name in ("capacity", "maximumVolumeSize"):
        quantity = document.get(name)
        if isinstance(quantity, (str, int, float)) and not isinstance(quantity, bool):
            try:
                document[name] = canonical(quantity)
            except (BadQuantity, ValueError, OverflowError):
                continue  # validation reports it
