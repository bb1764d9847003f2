"""Documents entering and leaving the store: copied, checked for their kind and converted between served versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from wharfinger.api.errors import BadRequest, NotFound
from wharfinger.api.registry import Document, Kind, Registry, RemoteConversion, Resource
from wharfinger.api.views import strip_nulls
from wharfinger.api.views.base import without_null_members
from wharfinger.store.objects import StoredObject, decode_document, encode

T = TypeVar("T")


class ConversionNeeded(Exception):
    """A document must be converted by somebody who has to be asked first; see `converted`."""

    def __init__(self, conversion: RemoteConversion, document: Document, version: str) -> None:
        super().__init__(f"{document.get('apiVersion')} must be converted to version {version}")
        self._conversion = conversion
        self._document = document
        self._version = version

    async def resolve(self) -> None:
        """Has the document converted, so that what needed it can be tried again. Raises ApiError."""
        await self._conversion.convert([self._document], self._version)


async def converted(make: Callable[[], T]) -> T:
    """The result of a function that converts documents; it is called again for every conversion that it has to wait for."""
    while True:
        try:
            return make()
        except ConversionNeeded as needed:
            await needed.resolve()


def kind_of(registry: Registry, resource: Resource) -> Kind:
    kind = registry.of_plural(resource.group, resource.plural)
    # Objects are stored, and deleted with their definition, even in a version that is no longer served.
    if kind is None or (resource.version not in kind.versions and resource.version != kind.storage_version):
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


def identified(resource: Resource, document: Any) -> Document:
    """A caller's document, checked for its kind and version; fills these in place."""
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
    return document


def incoming(kind: Kind, resource: Resource, document: Document) -> Document:
    """Converts a caller's document into the storage version; may change it in place."""
    document = identified(resource, document)
    return document if stored_as_is(kind, resource) else _converted(kind, document, kind.storage)


def outgoing(kind: Kind, resource: Resource, document: Document) -> Document:
    """A stored document in the requested version."""
    return document if stored_as_is(kind, resource) else _converted(kind, document, resource)


def current(kind: Kind, stored: StoredObject) -> Document:
    """A new document of a stored object, in the storage version, which may have changed since it was written."""
    document = stored.document()
    return _converted(kind, document, kind.storage) if kind.custom else document


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
        document = current(kind, stored)
        if kind.refresh is not None:
            kind.refresh(document)
        found = stored._forms[form] = _form(stored, outgoing(kind, resource, document))
    return cast("StoredObject", found)


async def present_all(kind: Kind, resource: Resource, items: Sequence[StoredObject]) -> list[StoredObject]:
    """Stored objects in the requested version; those that somebody else has to convert are converted together."""
    if kind.conversion is None or served_as_is(kind, resource):
        return [present(kind, resource, stored) for stored in items]
    form = (resource.api_version, kind.revision)
    shown = {id(stored): stored._forms[form] for stored in items if stored._forms and form in stored._forms}
    missing = {id(stored): stored.document() for stored in items if id(stored) not in shown}
    others = {key: document for key, document in missing.items() if document["apiVersion"] != resource.api_version}
    if others:
        made = await kind.conversion.convert(list(others.values()), resource.version, listed=len(items) > 1)
        others = dict(zip(others, made))
    for stored in items:
        key = id(stored)
        if key not in shown:
            if key not in others and kind.refresh is not None and stored_as_is(kind, resource):
                kind.refresh(missing[key])
            shown[key] = _form(stored, others.get(key, missing[key]))
            stored._forms = {**(stored._forms or {}), form: shown[key]}
    return [shown[id(stored)] for stored in items]


def _form(stored: StoredObject, document: Document) -> StoredObject:
    """The same object with another document."""
    labels = document["metadata"].get("labels") or {}
    return StoredObject(
        stored.namespace, stored.name, stored.uid, stored.version, encode(document), stored.created, labels
    )


def _converted(kind: Kind, document: Document, wanted: Resource) -> Document:
    if document["apiVersion"] == wanted.api_version:
        return document
    if kind.conversion is not None:
        found = kind.conversion.known(document, wanted.version)
        if found is None:
            raise ConversionNeeded(kind.conversion, document, wanted.version)
        return found
    group, _, version = document["apiVersion"].rpartition("/")
    if kind.convert_group is not None and group != wanted.group:
        document = kind.convert_group(document, wanted.group)
    if kind.convert is not None and version != wanted.version:
        document = kind.convert(document, wanted.version)
    return {**document, "apiVersion": wanted.api_version}
