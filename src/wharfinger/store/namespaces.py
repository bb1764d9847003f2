"""Namespaces: born active with the `kubernetes` finalizer, and how their end begins.

Emptying a namespace and releasing it through `namespaces/finalize` is a controller's work.
"""

from __future__ import annotations

from wharfinger.api.registry import Document
from wharfinger.api.requests import DeleteOptions
from wharfinger.store.objects import Stored

IMMORTAL = ("default", "kube-system", "kube-public")
FINALIZER = "kubernetes"
NAME_LABEL = "kubernetes.io/metadata.name"


def prepare(new: Document) -> None:
    new["status"] = {"phase": "Active"}
    spec = new["spec"] = dict(new.get("spec") or {})
    finalizers = list(spec.get("finalizers") or ())
    spec["finalizers"] = finalizers if FINALIZER in finalizers else [*finalizers, FINALIZER]


def label(new: Document) -> None:
    """Every namespace carries its own name as a label, so that selectors can name it."""
    labels = new["metadata"].setdefault("labels", {})
    labels[NAME_LABEL] = new["metadata"]["name"]


def terminating(namespace: Stored) -> bool:
    if b"Terminating" not in namespace.data:
        return False
    return bool((namespace.document().get("status") or {}).get("phase") == "Terminating")


def begin_end(document: Document, options: DeleteOptions, now: str) -> None:
    """The first request to delete: the phase changes, and the finalizers follow the propagation policy."""
    metadata = document["metadata"]
    metadata["deletionTimestamp"] = now
    document["status"] = {**(document.get("status") or {}), "phase": "Terminating"}
    if options.propagation:
        kept = [name for name in metadata.get("finalizers") or () if name not in ("orphan", "foregroundDeletion")]
        extra = {"Orphan": ["orphan"], "Foreground": ["foregroundDeletion"]}.get(options.propagation, [])
        metadata["finalizers"] = kept + extra
        if not metadata["finalizers"]:
            del metadata["finalizers"]
