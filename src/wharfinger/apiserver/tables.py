"""The representations Table, for `kubectl get`, and PartialObjectMetadata."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from wharfinger.api.registry import Column, Document, Kind
from wharfinger.api.times import BadTime, human_duration, parse_time

NAME = Column("Name", "metadata.name", description="Name must be unique within a namespace.")
AGE = Column(
    "Age",
    "metadata.creationTimestamp",
    "date",
    description="CreationTimestamp is a timestamp representing the server time when this object was created.",
)

_NONE, _METADATA, _OBJECT = "None", "Metadata", "Object"


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """The columns of a kind. Name comes first unless the kind lists it; Age is the default."""
    columns = kind.columns or (AGE,)
    if not any(column.name.lower() == "name" for column in columns):
        columns = (NAME, *columns)
    return columns


def definitions(columns: Sequence[Column]) -> list[Document]:
    return [
        {
            "name": column.name,
            # The server computes the age, so the type is string for clients, as in kube-apiserver's tables.
            "type": "string" if column.type == "date" and column.name == "Age" else column.type,
            "format": "name" if column.name.lower() == "name" else "",
            "description": column.description or column.name,
            "priority": column.priority,
        }
        for column in columns
    ]


def table(version: str, columns: list[Document], rows: list[Document], metadata: Document) -> Document:
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    }


def row(columns: Sequence[Column], document: Document, now: float, version: str, include: str) -> Document:
    made: Document = {"cells": [cell(column, document, now) for column in columns]}
    if include == _OBJECT:
        made["object"] = document
    elif include != _NONE:
        made["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": f"meta.k8s.io/{version}",
            "metadata": document.get("metadata") or {},
        }
    return made


def cell(column: Column, document: Document, now: float) -> Any:
    if column.cell is not None:
        return column.cell(document, now)
    values = _reader(column.path)(document)
    if not values:
        return "<unknown>" if column.type == "date" else "" if column.type == "string" else None
    if column.type == "date":
        return _age(values[0], now)
    if column.type in ("integer", "number"):
        return values[0] if isinstance(values[0], int | float) else None
    if column.type == "boolean":
        return values[0] if isinstance(values[0], bool) else None
    return ",".join(map(_text, values)) if len(values) > 1 else _text(values[0])


def _age(value: Any, now: float) -> str:
    try:
        return human_duration(now - parse_time(str(value)))
    except BadTime:
        return "<invalid>"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_STEP = re.compile(
    r"""\.?([^.\[\]]+)|\[(\*|-?\d+)\]|\['([^']*)'\]|\["([^"]*)"\]|\[\?\(@\.([\w.]+)\s*==\s*["']([^"']*)["']\)\]"""
)
_readers: dict[str, Callable[[Document], list[Any]]] = {}


def _reader(path: str) -> Callable[[Document], list[Any]]:
    """Evaluates a JSON path as in printer columns: `.status.conditions[?(@.type=="Ready")].status`."""
    if path not in _readers:
        steps = [_step(match) for match in _STEP.finditer(path)]

        def read(document: Document) -> list[Any]:
            values: list[Any] = [document]
            for step in steps:
                values = [found for value in values for found in step(value)]
            return values

        _readers[path] = read
    return _readers[path]


def _step(match: re.Match[str]) -> Callable[[Any], list[Any]]:
    plain, index, single, double, field, wanted = match.groups()
    key = plain or single or double
    if key:
        name = key.replace("\\", "")
        return lambda value: [value[name]] if isinstance(value, dict) and value.get(name) is not None else []
    if index == "*":
        return lambda value: list(
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        )
    if index:
        at = int(index)
        return lambda value: [value[at]] if isinstance(value, list) and -len(value) <= at < len(value) else []

    def matching(value: Any) -> list[Any]:
        items = value if isinstance(value, list) else []
        read = _reader(field)
        return [item for item in items if isinstance(item, dict) and any(_text(v) == wanted for v in read(item))]

    return matching


class _Head(msgspec.Struct, gc=False):
    metadata: msgspec.Raw


_head = msgspec.json.Decoder(_Head)


def partial(data: bytes, version: str) -> bytes:
    """An object as PartialObjectMetadata, without decoding its metadata."""
    meta = bytes(_head.decode(data).metadata)
    return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%s","metadata":%s}' % (version.encode(), meta)
