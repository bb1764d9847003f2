"""What is required of the metadata of every object, and the one function a server calls to validate an object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wharfinger.api.fields import FieldError, forbidden, immutable, invalid, required
from wharfinger.api.names import dns_label, dns_subdomain, qualified_name
from wharfinger.api.registry import Document, Kind
from wharfinger.api.shapes import check, named_shape
from wharfinger.api.validation.selectors import annotations_faults, labels_faults

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def object_faults(kind: Kind, document: Document, old: Document | None = None) -> list[FieldError]:
    """Every fault of a document, on create (`old` is None) or on update."""
    errors = metadata_faults(kind, document, old)
    if kind.validate is not None:
        errors += kind.validate(document, old)
    return errors


def metadata_faults(kind: Kind, document: Document, old: Document | None = None) -> list[FieldError]:
    """Faults of `metadata` alone. It expects that a name was generated already where one was to be."""
    metadata = document.get("metadata")
    if metadata is None:
        metadata = {}
    if errors := check(named_shape(_META), metadata, "metadata"):
        return errors
    return [*_faults(kind, metadata), *(_update_faults(metadata, old) if old is not None else ())]


def _faults(kind: Kind, metadata: dict[str, Any]) -> Iterator[FieldError]:
    name, namespace = metadata.get("name") or "", metadata.get("namespace") or ""
    name_faults = kind.name_faults or dns_subdomain
    if prefix := metadata.get("generateName"):
        # A prefix may end as no name may: a letter in place of its last dash makes it a name.
        for fault in name_faults(f"{prefix[:-1]}a" if prefix.endswith("-") else prefix):
            yield invalid("metadata.generateName", prefix, fault)
    if not name:
        yield required("metadata.name", "name or generateName is required")
    for fault in name_faults(name) if name else ():
        yield invalid("metadata.name", name, fault)
    if kind.namespaced:
        if not namespace:
            yield required("metadata.namespace")
        for fault in dns_label(namespace) if namespace else ():
            yield invalid("metadata.namespace", namespace, fault)
    elif namespace:
        yield forbidden("metadata.namespace", "not allowed on this type")
    if (metadata.get("generation") or 0) < 0:
        yield invalid("metadata.generation", metadata["generation"], "must be greater than or equal to 0")
    yield from labels_faults(metadata.get("labels") or {}, "metadata.labels")
    yield from annotations_faults(metadata.get("annotations") or {}, "metadata.annotations")
    yield from _owner_faults(metadata.get("ownerReferences") or [])
    finalizers = metadata.get("finalizers") or []
    for finalizer in finalizers:
        for fault in qualified_name(finalizer):
            yield invalid("metadata.finalizers", finalizer, fault)
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        yield invalid("metadata.finalizers", finalizers, detail)


def _owner_faults(owners: list[dict[str, Any]]) -> Iterator[FieldError]:
    path = "metadata.ownerReferences"
    controller = ""
    for owner in owners:
        if not (owner.get("apiVersion") or "").rpartition("/")[2]:
            yield invalid(f"{path}.apiVersion", owner.get("apiVersion") or "", "version must not be empty")
        for name in ("kind", "name", "uid"):
            if not owner.get(name):
                yield invalid(f"{path}.{name}", "", "must not be empty")
        if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Event"):
            yield invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller"):
            current = f"{owner.get('kind')}/{owner.get('name')}"
            if controller:
                detail = f'Only one reference can have Controller set to true. Found "true" in references for {controller} and {current}'
                yield invalid(path, owners, detail)
            controller = controller or current


def _update_faults(metadata: dict[str, Any], old: Document) -> Iterator[FieldError]:
    before = old.get("metadata") or {}
    if before.get("deletionTimestamp"):
        extra = sorted(set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ()))
        if extra:
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {extra}"
            yield forbidden("metadata.finalizers", detail)
    if (metadata.get("generation") or 0) < (before.get("generation") or 0):
        yield invalid("metadata.generation", metadata.get("generation") or 0, "must not be decremented")
    for name in (
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ):
        if metadata.get(name) != before.get(name):
            yield immutable(f"metadata.{name}", metadata.get(name))
