"""The metadata of all objects: what the server sets, what nobody may change, and what is a fault.

After pkg/api/validation/objectmeta.go of apimachinery and pkg/registry/rest of the API server.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from wharfinger.api.fields import FieldError, forbidden, immutable, invalid, required, show, too_long, wrong_type
from wharfinger.api.names import dns_label, dns_subdomain, label_value, qualified_name
from wharfinger.api.registry import Document, Kind
from wharfinger.api.times import format_time

_ANNOTATIONS_LIMIT = 256 * 1024
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_LIMIT = 63 - 5
_SERVER_FIELDS = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
_IDENTITY = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")

_qualified_name = lru_cache(8192)(qualified_name)
_label_value = lru_cache(8192)(label_value)
_label = lru_cache(1024)(dns_label)


class Identities:
    """Uids, name suffixes and times, from the random source and the clock that the store was given."""

    def __init__(self, now: Callable[[], float], source: random.Random, *, keep_given: bool = False) -> None:
        self.now = now
        self.keep_given = keep_given
        self._random = source
        self._second = -1
        self._text = ""

    def uid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        variant = "89ab"[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"

    def name(self, prefix: str) -> str:
        letters = "".join(self._random.choices(_SUFFIX_LETTERS, k=5))
        return f"{prefix[:_GENERATED_LIMIT]}{letters}"

    def time(self) -> str:
        second = int(self.now() // 1)
        if second != self._second:
            self._second, self._text = second, format_time(second)
        return self._text


def initialise(kind: Kind, metadata: Document, identities: Identities) -> None:
    """What the server sets on a new object, in place."""
    given = {field: metadata.pop(field) for field in _SERVER_FIELDS if field in metadata}
    _drop_empty(metadata)
    metadata["uid"] = identities.uid()
    metadata["creationTimestamp"] = identities.time()
    if identities.keep_given:
        metadata.update({field: given[field] for field in _IDENTITY if given.get(field) is not None})
    if kind.generation:
        metadata["generation"] = 1


def _drop_empty(metadata: Document) -> None:
    """Kubernetes does not tell empty metadata from absent."""
    for field in [field for field, value in metadata.items() if not value and not isinstance(value, int)]:
        del metadata[field]


def keep_server_fields(new: Document, old: Document) -> None:
    """Puts back what an update may not change, silently where Kubernetes does so; validation refuses the rest."""
    metadata, before = new["metadata"], old["metadata"]
    metadata.pop("managedFields", None)
    metadata.pop("selfLink", None)
    _drop_empty(metadata)
    for field in ("generation", "creationTimestamp", "deletionTimestamp"):
        if field in before:
            metadata[field] = before[field]
        else:
            metadata.pop(field, None)
    if not metadata.get("uid"):
        metadata["uid"] = before["uid"]
    if "deletionGracePeriodSeconds" in before:
        metadata.setdefault("deletionGracePeriodSeconds", before["deletionGracePeriodSeconds"])
    else:
        metadata.pop("deletionGracePeriodSeconds", None)


class _Metadata(msgspec.Struct):
    """The types that the checks below rely on; msgspec checks them all at once."""

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
    """Fields of the wrong type, which would be a decoding error in Kubernetes; other checks rely on these."""
    try:
        msgspec.convert(metadata, _Metadata)
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
    name = metadata.get("name", "")
    check = kind.name_faults or dns_subdomain
    if prefix := metadata.get("generateName"):
        # A prefix may end as no name may: a letter in place of its last dash makes it a name.
        probe = f"{prefix[:-1]}a" if prefix.endswith("-") else prefix
        faults.extend(invalid("metadata.generateName", prefix, fault) for fault in check(probe))
    if not name:
        faults.append(required("metadata.name", "name or generateName is required"))
    else:
        faults.extend(invalid("metadata.name", name, fault) for fault in check(name))
    if kind.namespaced:
        namespace = metadata.get("namespace", "")
        faults.extend(invalid("metadata.namespace", namespace, fault) for fault in _label(namespace))
    return faults + _common_faults(metadata)


def update_faults(metadata: Document, before: Document) -> list[FieldError]:
    faults: list[FieldError] = []
    if before.get("deletionTimestamp"):
        added = sorted(set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ()))
        if added:
            names = ", ".join(show(name) for name in added)
            detail = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{names}}}"
            )
            faults.append(forbidden("metadata.finalizers", detail))
    for field in ("name", "namespace", "uid", "deletionGracePeriodSeconds"):
        if metadata.get(field) != before.get(field):
            faults.append(immutable(f"metadata.{field}", metadata.get(field)))
    return faults + _common_faults(metadata)


def _common_faults(metadata: Document) -> list[FieldError]:
    faults: list[FieldError] = []
    for key, value in (metadata.get("labels") or {}).items():
        if problems := _qualified_name(key):
            faults.extend(invalid("metadata.labels", key, fault) for fault in problems)
        if problems := _label_value(value):
            faults.extend(invalid("metadata.labels", value, fault) for fault in problems)
    if annotations := metadata.get("annotations"):
        for key in annotations:
            if problems := _qualified_name(key.lower()):
                faults.extend(invalid("metadata.annotations", key, fault) for fault in problems)
        if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
            faults.append(too_long("metadata.annotations", _ANNOTATIONS_LIMIT))
    if owners := metadata.get("ownerReferences"):
        faults.extend(_owner_faults(owners))
    if finalizers := metadata.get("finalizers"):
        faults.extend(_finalizer_faults(finalizers))
    return faults


def _owner_faults(owners: list[Any]) -> list[FieldError]:
    path = "metadata.ownerReferences"
    faults: list[FieldError] = []
    controller = ""
    for owner in owners:
        if not owner.get("apiVersion"):
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


def _finalizer_faults(finalizers: list[Any]) -> list[FieldError]:
    path = "metadata.finalizers"
    faults = [invalid(path, name, fault) for name in finalizers for fault in _qualified_name(name)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        faults.append(invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set"))
    return faults
