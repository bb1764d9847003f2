"""The structure of request bodies: types of all fields, unknown fields and repeated fields.

A correct document is recognized by msgspec at the speed of decoding. Only when that fails does a walk over the schema
find out what is wrong, in the wording of Kubernetes' decoder, and drop unknown fields.
"""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.api.errors import BadRequest
from wharfinger.api.registry import Document, Kind, Registry
from wharfinger.api.schema.compiler import JSON_TYPES
from wharfinger.api.schema.decoding import MOST_FAULTS, DecodingWalk, WrongType, in_order, repeated_fields
from wharfinger.api.schema.definitions import META
from wharfinger.api.schema.tree import Schema, builtin_schema, definition_schema, schema_of


class Structure:
    """The structure of one kind in one version."""

    def __init__(self, schema: Schema, kind: str, version: str, *, typed: bool = True) -> None:
        """Unless `typed`, wrong types pass: the validation of the kind names all of them by path."""
        self._schema = schema
        self._typed = typed
        self._kind = kind
        self._version = version
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(JSON_TYPES.type_of(schema) | None)

    def check(self, document: Document, body: bytes, *, validation: str) -> list[str]:
        """Warnings about unknown and repeated fields; drops the former. Raises BadRequest for wrong types, and with
        `Strict` instead of warning. `body` is the JSON that the document was decoded from."""
        faults: list[str] = []
        if validation != "Ignore":
            faults += repeated_fields(body, document)
        try:
            self._decoder.decode(body)
            correct = b"null" not in body
        except msgspec.DecodeError:
            correct = False
        if not correct:
            repeated, faults = faults, faults + self.prune(document)
            if self._typed and repeated and len(faults) > len(repeated):
                faults = in_order(body, faults)
        del faults[MOST_FAULTS:]
        if faults and validation == "Strict":
            raise BadRequest(f"{self._handled()}: strict decoding error: {', '.join(faults)}")
        return faults if validation == "Warn" else []

    def prune(self, document: Document, *, patch: bool = False) -> list[str]:
        """Drops nulls and unknown fields in place and names the latter; a patch keeps nulls and its `$` directives."""
        try:
            return self.walk(document, patch=patch)
        except WrongType as error:
            raise BadRequest(f"{self._handled()}: {error}") from None

    def walk(self, document: Document, *, patch: bool = False) -> list[str]:
        """Like `prune`, for callers that word a WrongType themselves."""
        walk = DecodingWalk(patch=patch, typed=self._typed)
        try:
            walk.value(self._schema, document, "", "", self._kind)
        except RecursionError:
            raise BadRequest(f"{self._handled()}: nested too deeply") from None
        return walk.unknown

    def _handled(self) -> str:
        return f'{self._kind} in version "{self._version}" cannot be handled as a {self._kind}'


class Structures:
    """The structures of all kinds in a registry, built on first use."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[tuple[str, str, str], Structure | None] = {}
        self._delete_options: Structure | None = None

    def of(self, group: str, version: str, kind: str) -> Structure | None:
        """None where no schema is known: then anything passes."""
        key = (group, version, kind)
        if key not in self._known:
            self._known[key] = self._build(group, version, kind)
        return self._known[key]

    def delete_options(self) -> Structure:
        if self._delete_options is None:
            self._delete_options = Structure(definition_schema(META + "DeleteOptions"), "DeleteOptions", "v1")
        return self._delete_options

    def forget(self, kind: Kind) -> None:
        """The kind was added, changed or removed."""
        for key in [key for key in self._known if (key[0], key[2]) == (kind.group, kind.kind)]:
            del self._known[key]

    def _build(self, group: str, version: str, kind: str) -> Structure | None:
        if (builtin := builtin_schema(group, version, kind)) is not None:
            return Structure(builtin, kind, version)
        found = self._registry.of_object(f"{group}/{version}" if group else version, kind)
        if found is not None and found.schema is not None:
            return Structure(schema_of(found, version), kind, version, typed=False)
        return None
