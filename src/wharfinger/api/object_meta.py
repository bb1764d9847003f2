"""Metadata of objects: key, creation time and owner references."""

from __future__ import annotations

from wharfinger.api.keys import ObjectKey
from wharfinger.api.registry import Document, Resource
from wharfinger.api.times import parse_time
from wharfinger.api.views.meta import ObjectMeta, OwnerReference


def object_key(document: Document) -> ObjectKey:
    metadata = document["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def created_at(metadata: ObjectMeta) -> float:
    """Seconds since the epoch; 0 for an object without a creation timestamp."""
    return parse_time(metadata.creation_timestamp) if metadata.creation_timestamp else 0.0


def controller_of(document: Document) -> Document | None:
    """The owner reference of the managing controller; of a view, that is `ObjectMeta.controller`."""
    owners = (document.get("metadata") or {}).get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def is_controlled_by(document: Document, kind: str) -> bool:
    controller = controller_of(document)
    return controller is not None and controller.get("kind") == kind


def controller_reference(resource: Resource, metadata: ObjectMeta) -> Document:
    """A reference to the object as managing controller."""
    return controller_document(resource.api_version, resource.kind, metadata.name, metadata.uid)


def controller_document(api_version: str, kind: str, name: str, uid: str) -> Document:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def reference_document(owner: OwnerReference) -> Document:
    """The document of an owner reference view."""
    document: Document = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
    if owner.controller:
        document["controller"] = True
    if owner.block_owner_deletion:
        document["blockOwnerDeletion"] = True
    return document
