"""Documents entering and leaving the store: copied, checked for their kind and converted between served versions."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from wharfinger.api.errors import BadRequest, NotFound
from wharfinger.api.registry import Document, Kind, Registry, Resource
from wharfinger.api.views import strip_nulls
from wharfinger.api.views.base import without_null_members
from wharfinger.store.objects import StoredObject, decode_document, encode


def kind_of(registry: Registry, resource: Resource) -> Kind:
    kind = registry.of_plural(resource.group, resource.plural)
    if kind is None or resource.version not in kind.versions:
        raise NotFound("the server could not find the requested resource")
    return kind


def stored_as_is(kind: Kind, resource: Resource) -> bool:
    """Whether the requested version is the storage version."""
    return resource.version == (kind.storage_version or kind.versions[0]) and resource.group == kind.group


def copy(document: Any, kind: Kind | None = None) -> Document:
    """A deep copy without null members, which Kubernetes treats as absent. Kinds with `keeps_nulls` keep those of their
    spec for validation."""
    data = encoded(document)
    if b"null" in data and (kind is None or not kind.keeps_nulls):
        data = without_null_members(data)
    copied: Document = decode_document(data)
    if b"null" not in data:
        return copied
    stripped: Document = strip_nulls(copied)
    if kind is not None and kind.keeps_nulls and stripped.get("spec") is not None:
        stripped["spec"] = copied["spec"]
    return stripped


def encoded(document: Any) -> bytes:
    try:
        return encode(document)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise BadRequest(f"the object provided cannot be encoded as JSON: {error}") from None


def incoming(kind: Kind, resource: Resource, document: Document) -> Document:
    """Converts a caller's document into the storage version; may change it in place."""
    if not isinstance(document, dict):
        raise BadRequest(f"the object provided is unrecognized (must be of type {resource.kind})")
    wanted = resource.api_version
    found_kind = document.get("kind") or resource.kind
    found_version = document.get("apiVersion") or wanted
    if found_kind != resource.kind:
        version = str(found_version).rpartition("/")[2]
        raise BadRequest(f'{found_kind} in version "{version}" cannot be handled as a {resource.kind}')
    if found_version != wanted:
        raise BadRequest(
            f"the API version in the data ({found_version}) does not match the expected API version ({wanted})"
        )
    metadata = document.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise BadRequest(f"{resource.kind}.metadata must be an object")
    document["kind"] = resource.kind
    document["apiVersion"] = wanted
    return document if stored_as_is(kind, resource) else _converted(kind, document, kind.storage)


def outgoing(kind: Kind, resource: Resource, document: Document) -> Document:
    """A stored document in the requested version."""
    return document if stored_as_is(kind, resource) else _converted(kind, document, resource)


def served_as_is(kind: Kind, resource: Resource) -> bool:
    """Whether stored objects are served without a change."""
    return stored_as_is(kind, resource) and kind.refresh is None


def present(kind: Kind, resource: Resource, stored: StoredObject) -> StoredObject:
    """A stored object in the requested version, converted once."""
    if served_as_is(kind, resource):
        return stored
    if stored._forms is None:
        stored._forms = {}
    form = (resource.api_version, kind.revision)
    found = stored._forms.get(form)
    if found is None:
        document = stored.document()
        if kind.refresh is not None:
            kind.refresh(document)
        data = encode(outgoing(kind, resource, document))
        found = StoredObject(
            stored.namespace, stored.name, stored.uid, stored.version, data, stored.created, stored.labels
        )
        stored._forms[form] = found
    return cast("StoredObject", found)


def _converted(kind: Kind, document: Document, wanted: Resource) -> Document:
    if document["apiVersion"] == wanted.api_version:
        return document
    group, _, version = document["apiVersion"].rpartition("/")
    if kind.convert_group is not None and group != wanted.group:
        document = kind.convert_group(document, wanted.group)
    if kind.convert is not None and version != wanted.version:
        document = kind.convert(document, wanted.version)
    return {**document, "apiVersion": wanted.api_version}
