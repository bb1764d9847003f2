"""The base of all views, and how to make one from a document or from JSON."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class View(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Base of all views. They contain no cycles, so the garbage collector need not track them (`gc=False`)."""


def strip_nulls(value: Any) -> Any:
    """The value without null members, which Kubernetes treats as absent."""
    if isinstance(value, dict):
        return {key: strip_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [strip_nulls(item) for item in value]
    return value


def view(document: Any, as_type: type[T]) -> T:
    """A view of a document. Raises msgspec.ValidationError, which names the path of a field of the wrong type."""
    try:
        return msgspec.convert(document, as_type)
    except msgspec.ValidationError:
        return msgspec.convert(strip_nulls(document), as_type)


def decode(data: bytes | bytearray | memoryview | msgspec.Raw, as_type: type[T]) -> T:
    """A view of JSON, without a document in between."""
    try:
        return msgspec.json.decode(data, type=as_type)
    except msgspec.ValidationError:
        return msgspec.convert(strip_nulls(msgspec.json.decode(data)), as_type)
