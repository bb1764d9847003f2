"""OpenAPI version 2 in the protobuf format of gnostic, which `kubectl` requests if version 3 lacks a kind.

The layout is that of openapiv2/OpenAPIv2.proto, limited to the fields that our documents have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from wharfinger.api.registry import Document
from wharfinger.apiserver.protobuf_wire import delimited_field, double_field, varint_field

MEDIA = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_ASKED = (MEDIA, MEDIA.replace(".v1.0", "@v1.0"))  # the older name, which is not valid in responses

Write = Callable[[Any], bytes]


def accepted(header: str) -> bool:
    """Whether a client accepts this format, which it then prefers."""
    return any(part.partition(";")[0].strip() in _ASKED for part in header.split(","))


def encode(document: Document) -> bytes:
    """Encodes a whole document."""
    return _message(_DOCUMENT)(document)


def _message(fields: dict[str, Callable[[Any], bytes]], *, extensions: int = 0) -> Write:
    """A writer of messages with these fields; members that begin with `x-` go into the field `extensions`."""

    def write(value: Document) -> bytes:
        parts = []
        for name, part in value.items():
            if name in fields:
                parts.append(fields[name](part))
            elif extensions and name.startswith("x-"):
                parts.append(delimited_field(extensions, _named(name, _any(part))))
        return b"".join(parts)

    return write


def _named(name: str, data: bytes) -> bytes:
    return delimited_field(1, name.encode()) + delimited_field(2, data)


def _any(value: Any) -> bytes:
    return delimited_field(2, msgspec.json.encode(value))  # JSON is YAML


def _text(number: int) -> Write:
    return lambda value: delimited_field(number, str(value).encode())


def _texts(number: int) -> Write:
    return lambda values: b"".join(delimited_field(number, str(value).encode()) for value in values)


def _flag(number: int) -> Write:
    return lambda value: varint_field(number, int(bool(value)))


def _whole(number: int) -> Write:
    return lambda value: varint_field(number, int(value))


def _real(number: int) -> Write:
    return lambda value: double_field(number, float(value))


def _one(number: int, write: Write) -> Write:
    return lambda value: delimited_field(number, write(value))


def _each(number: int, write: Write) -> Write:
    return lambda values: b"".join(delimited_field(number, write(value)) for value in values)


def _by_name(number: int, write: Write, *, inside: int = 1) -> Write:
    """A map: a message of named values."""

    def pairs(value: Document) -> Iterator[bytes]:
        return (delimited_field(inside, _named(name, write(part))) for name, part in value.items())

    return lambda value: delimited_field(number, b"".join(pairs(value)))


def _schema(value: Document) -> bytes:
    return _SCHEMA(value)


def _more_properties(value: Any) -> bytes:
    return _flag(2)(value) if isinstance(value, bool) else delimited_field(1, _schema(value))


def _types(value: Any) -> bytes:
    return _texts(1)(value if isinstance(value, list) else [value])


_SCHEMA = _message(
    {
        "$ref": _text(1),
        "format": _text(2),
        "title": _text(3),
        "description": _text(4),
        "default": _one(5, _any),
        "multipleOf": _real(6),
        "maximum": _real(7),
        "exclusiveMaximum": _flag(8),
        "minimum": _real(9),
        "exclusiveMinimum": _flag(10),
        "maxLength": _whole(11),
        "minLength": _whole(12),
        "pattern": _text(13),
        "maxItems": _whole(14),
        "minItems": _whole(15),
        "uniqueItems": _flag(16),
        "maxProperties": _whole(17),
        "minProperties": _whole(18),
        "required": _texts(19),
        "enum": _each(20, _any),
        "additionalProperties": _one(21, _more_properties),
        "type": _one(22, _types),
        "items": lambda value: delimited_field(23, delimited_field(1, _schema(value))),
        "allOf": _each(24, _schema),
        "properties": _by_name(25, _schema),
        "readOnly": _flag(27),
        "example": _one(30, _any),
    },
    extensions=31,
)
_BODY = _message(
    {"description": _text(1), "name": _text(2), "in": _text(3), "required": _flag(4), "schema": _one(5, _schema)},
    extensions=6,
)
_COMMON: dict[str, Write] = {"required": _flag(1), "in": _text(2), "description": _text(3), "name": _text(4)}
_QUERY = _message({**_COMMON, "type": _text(6), "format": _text(7), "uniqueItems": _flag(20)}, extensions=23)
_IN_PATH = _message({**_COMMON, "type": _text(5), "format": _text(6), "uniqueItems": _flag(19)}, extensions=22)


def _parameter(value: Document) -> bytes:
    """Each kind of parameter has a message of its own, wrapped in messages that discriminate between them."""
    if "$ref" in value:
        return delimited_field(2, _message({"$ref": _text(1)})(value))
    if value.get("in") == "body":
        return delimited_field(1, delimited_field(1, _BODY(value)))
    other = delimited_field(4, _IN_PATH(value)) if value.get("in") == "path" else delimited_field(3, _QUERY(value))
    return delimited_field(1, delimited_field(2, other))


_RESPONSE = _message(
    {"description": _text(1), "schema": lambda value: delimited_field(2, delimited_field(1, _schema(value)))},
    extensions=5,
)
_OPERATION = _message(
    {
        "tags": _texts(1),
        "summary": _text(2),
        "description": _text(3),
        "operationId": _text(5),
        "produces": _texts(6),
        "consumes": _texts(7),
        "parameters": _each(8, _parameter),
        "responses": _by_name(9, lambda value: delimited_field(1, _RESPONSE(value))),
        "schemes": _texts(10),
        "deprecated": _flag(11),
    },
    extensions=13,
)
_PATH = _message(
    {
        "get": _one(2, _OPERATION),
        "put": _one(3, _OPERATION),
        "post": _one(4, _OPERATION),
        "delete": _one(5, _OPERATION),
        "options": _one(6, _OPERATION),
        "head": _one(7, _OPERATION),
        "patch": _one(8, _OPERATION),
        "parameters": _each(9, _parameter),
    },
    extensions=10,
)
_INFO = _message({"title": _text(1), "version": _text(2), "description": _text(3)}, extensions=7)
_DOCUMENT: dict[str, Write] = {
    "swagger": _text(1),
    "info": _one(2, _INFO),
    "consumes": _texts(6),
    "produces": _texts(7),
    "paths": _by_name(8, _PATH, inside=2),
    "definitions": _by_name(9, _schema),
}
