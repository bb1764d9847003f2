"""Namespaces: created active with the `kubernetes` finalizer, and terminated when they are deleted.

A controller deletes the content of a terminating namespace and finalizes it through `namespaces/finalize`.
"""

from __future__ import annotations

from wharfinger.api.finalizers import with_propagation
from wharfinger.api.registry import Document
from wharfinger.api.requests import DeleteOptions
from wharfinger.store.objects import StoredObject

PROTECTED = ("default", "kube-system", "kube-public")  # cannot be deleted
NAME_LABEL = "kubernetes.io/metadata.name"


def label(new: Document) -> None:
    """Labels a namespace with its own name, so that selectors can select it by name."""
    labels = new["metadata"].setdefault("labels", {})
    labels[NAME_LABEL] = new["metadata"]["name"]


def terminating(namespace: StoredObject) -> bool:
    if b"Terminating" not in namespace.data:
        return False
    return bool((namespace.document().get("status") or {}).get("phase") == "Terminating")


def start_termination(document: Document, options: DeleteOptions, now: str) -> None:
    """Handles the first delete request: sets the phase, and the finalizers of the propagation policy."""
    metadata = document["metadata"]
    metadata["deletionTimestamp"] = now
    document["status"] = {**(document.get("status") or {}), "phase": "Terminating"}
    if options.propagation:
        metadata["finalizers"] = with_propagation(metadata.get("finalizers") or (), options.propagation)
        if not metadata["finalizers"]:
            del metadata["finalizers"]
