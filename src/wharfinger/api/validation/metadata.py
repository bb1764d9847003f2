"""Validation of the metadata of every object, and of whole objects.

After pkg/api/validation/objectmeta.go of apimachinery. The store validates metadata separately before and after
admission.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from wharfinger.api.fields import FieldError, forbidden, immutable, invalid, required, show, too_long, wrong_type
from wharfinger.api.names import dns_label, dns_subdomain, label_value, qualified_name
from wharfinger.api.registry import Document, Kind
from wharfinger.api.schema.definitions import OBJECT_META
from wharfinger.api.schema.tree import definition_schema
from wharfinger.api.schema.type_errors import type_errors

_ANNOTATIONS_LIMIT = 256 * 1024
_STANDARD_FINALIZERS = frozenset(["kubernetes", "orphan", "foregroundDeletion"])

_REMEMBERED = 320  # characters of a text up to which its faults are remembered; clients may send longer ones
_qualified_short = lru_cache(8192)(qualified_name)
_short_value = lru_cache(8192)(label_value)
_short_label = lru_cache(1024)(dns_label)


def _qualified_name(text: str) -> list[str]:
    return _qualified_short(text) if len(text) <= _REMEMBERED else qualified_name(text)


def _label_value(text: str) -> list[str]:
    return _short_value(text) if len(text) <= _REMEMBERED else label_value(text)


def _label(text: str) -> list[str]:
    return _short_label(text) if len(text) <= _REMEMBERED else dns_label(text)


def object_faults(kind: Kind, document: Document, old: Document | None = None) -> list[FieldError]:
    """Every fault of a document, on create (`old` is None) or on update."""
    errors = metadata_faults(kind, document, old)
    if kind.validate is not None:
        errors += kind.validate(document, old)
    return errors


def metadata_faults(kind: Kind, document: Document, old: Document | None = None) -> list[FieldError]:
    """Faults of `metadata` alone; expects that names are generated already."""
    metadata = document.get("metadata")
    if metadata is None:
        metadata = {}
    if errors := type_errors(definition_schema(OBJECT_META), metadata, "metadata"):
        return errors
    if old is not None:
        return update_faults(kind, metadata, old.get("metadata") or {})
    return create_faults(kind, metadata)


class _MetadataTypes(msgspec.Struct):
    """The types that the checks below rely on, for a check by msgspec."""

    name: str = ""
    generateName: str = ""  # noqa: N815 - as on the wire
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    ownerReferences: list[dict[str, Any]] = []  # noqa: N815


def type_faults(metadata: Document) -> list[FieldError]:
    """Fields of the wrong type, which Kubernetes refuses when it decodes; other checks rely on these types."""
    try:
        msgspec.convert(metadata, _MetadataTypes)
    except msgspec.ValidationError:
        return _type_faults(metadata)
    return []


def _type_faults(metadata: Document) -> list[FieldError]:
    faults = []
    for field in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        if not isinstance(metadata.get(field, ""), str):
            faults.append(wrong_type(f"metadata.{field}", metadata[field], "string"))
    for field in ("labels", "annotations"):
        entries = metadata.get(field, {})
        if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
            faults.append(wrong_type(f"metadata.{field}", entries, "map of strings"))
    finalizers = metadata.get("finalizers", [])
    if not isinstance(finalizers, list) or not all(isinstance(value, str) for value in finalizers):
        faults.append(wrong_type("metadata.finalizers", finalizers, "array of strings"))
    owners = metadata.get("ownerReferences", [])
    if not isinstance(owners, list) or not all(isinstance(value, dict) for value in owners):
        faults.append(wrong_type("metadata.ownerReferences", owners, "array of objects"))
    return faults


def create_faults(kind: Kind, metadata: Document) -> list[FieldError]:
    faults: list[FieldError] = []
    name = metadata.get("name") or ""
    name_faults = kind.name_faults or dns_subdomain
    if prefix := metadata.get("generateName"):
        # A prefix may end with a dash: validate it with a letter in place of the dash.
        probe = f"{prefix[:-1]}a" if prefix.endswith("-") else prefix
        faults.extend(invalid("metadata.generateName", prefix, fault) for fault in name_faults(probe))
    if not name:
        faults.append(required("metadata.name", "name or generateName is required"))
    else:
        faults.extend(invalid("metadata.name", name, fault) for fault in name_faults(name))
    if kind.namespaced:
        namespace = metadata.get("namespace") or ""
        faults.extend(invalid("metadata.namespace", namespace, fault) for fault in _label(namespace))
    elif metadata.get("namespace"):
        faults.append(forbidden("metadata.namespace", "not allowed on this type"))
    return faults + _common_faults(metadata, _is_strict(kind))


def update_faults(kind: Kind, metadata: Document, before: Document) -> list[FieldError]:
    faults: list[FieldError] = []
    if before.get("deletionTimestamp"):
        added = sorted(set(filter(None, metadata.get("finalizers") or ())) - set(before.get("finalizers") or ()))
        if added:
            names = ", ".join(show(name) for name in added)
            detail = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{names}}}"
            )
            faults.append(forbidden("metadata.finalizers", detail))
    for field in ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if metadata.get(field) != before.get(field):
            faults.append(immutable(f"metadata.{field}", metadata.get(field)))
    return faults + _common_faults(metadata, _is_strict(kind))


def _is_strict(kind: Kind) -> bool:
    """Most built-in kinds are checked more strictly than custom resources and their definitions."""
    return kind.builtin and kind.group != "apiextensions.k8s.io"


def _common_faults(metadata: Document, built_in: bool) -> list[FieldError]:
    """Null counts as an empty value where Kubernetes decodes it as one."""
    faults: list[FieldError] = []
    for key, value in (metadata.get("labels") or {}).items():
        if problems := _qualified_name(key):
            faults.extend(invalid("metadata.labels", key, fault) for fault in problems)
        if problems := _label_value(value or ""):
            faults.extend(invalid("metadata.labels", value, fault) for fault in problems)
    if annotations := metadata.get("annotations"):
        for key in annotations:
            if problems := _qualified_name(key.lower()):
                faults.extend(invalid("metadata.annotations", key, fault) for fault in problems)
        if (
            sum(len(key.encode()) + len((value or "").encode()) for key, value in annotations.items())
            > _ANNOTATIONS_LIMIT
        ):
            faults.append(too_long("metadata.annotations", _ANNOTATIONS_LIMIT))
    if owners := metadata.get("ownerReferences"):
        faults.extend(_owner_faults([owner or {} for owner in owners]))
    if finalizers := metadata.get("finalizers"):
        faults.extend(_finalizer_faults([name or "" for name in finalizers], built_in))
    return faults


def _owner_faults(owners: list[Any]) -> list[FieldError]:
    path = "metadata.ownerReferences"
    faults: list[FieldError] = []
    controller = ""
    for owner in owners:
        if not (owner.get("apiVersion") or "").rpartition("/")[2]:
            faults.append(invalid(f"{path}.apiVersion", "", "version must not be empty"))
        for field in ("kind", "name", "uid"):
            if not owner.get(field):
                faults.append(invalid(f"{path}.{field}", "", "must not be empty"))
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            faults.append(invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            this = f"{owner.get('kind')}/{owner.get('name')}"
            if controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {this}"
                )
                faults.append(invalid(path, owners, detail))
            controller = controller or this
    return faults


def _finalizer_faults(finalizers: list[Any], built_in: bool) -> list[FieldError]:
    path = "metadata.finalizers"
    faults = [invalid(path, name, fault) for name in finalizers for fault in _qualified_name(name)]
    if built_in:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        for index, name in enumerate(finalizers):
            if "/" not in name and name not in _STANDARD_FINALIZERS:
                faults.append(invalid(f"{path}[{index}]", name, detail))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        faults.append(invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set"))
    return faults
