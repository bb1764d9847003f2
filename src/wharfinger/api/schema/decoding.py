"""Decoding of request bodies as Go does it: wrong types are refused, unknown and repeated fields are named.

The wording is that of encoding/json and of sigs.k8s.io/json.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from wharfinger.api.errors import TooLarge
from wharfinger.api.go_text import json_type, plain
from wharfinger.api.quantity import REGEX_MESSAGE, BadQuantity, parse_nano
from wharfinger.api.schema.tree import Schema
from wharfinger.api.times import BadTime, parse_time

MOST_FAULTS = 100  # unknown and repeated fields that are named, as upstream
_MAX_SURPLUS = 20_000  # quotes of repeated fields
_RANGES = {"int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1)}


class WrongType(ValueError):
    """A value of another type than its field. `go_type` is the type of the field, if the type alone is wrong."""

    def __init__(self, message: str, value: Any = None, go_type: str | None = None) -> None:
        super().__init__(message)
        self.value = value
        self.go_type = go_type


class OutOfRange(WrongType):
    """A number too large for its field."""


class DecodingWalk:
    """Drops nulls and unknown fields of a document in place, and collects the latter.

    A patch keeps nulls and its `$` directives. Unless `typed`, wrong types pass outside metadata: custom resources are
    validated by their schema, which names every fault.
    """

    def __init__(self, *, patch: bool, typed: bool) -> None:
        self.unknown: list[str] = []
        self._patch = patch
        self._typed = typed

    def value(self, schema: Schema, value: Any, path: str, field: str, owner: str) -> Any:
        """The decoded value; raises WrongType. `path` has list indexes; `field` has none, as in Go's messages, where
        it follows `owner`, the struct."""
        try:
            return self._value(schema, value, path, field, owner)
        except WrongType:
            if self._typed or path.startswith("metadata"):
                raise
            return value

    def _value(self, schema: Schema, value: Any, path: str, field: str, owner: str) -> Any:
        if schema.embedded:
            return _expect(isinstance(value, dict), value, "map[string]interface {}", field, owner)
        match schema.type:
            case "object":
                _expect(isinstance(value, dict), value, go_type(schema), field, owner)
                return self._object(schema, value, path, field, schema.name.rpartition(".")[2] or owner)
            case "map":
                _expect(isinstance(value, dict), value, go_type(schema), field, owner)
                return self._map(schema, value, path, field, owner)
            case "list":
                _expect(isinstance(value, list), value, go_type(schema), field, owner)
                items = schema.item_schema
                value[:] = [
                    self._item(items, item, f"{path}[{index}]", field, owner) for index, item in enumerate(value)
                ]
            case "any":
                _expect(schema.format != "object" or isinstance(value, dict), value, go_type(schema), field, owner)
            case _:
                _check_scalar(schema, value, field, schema.name.rpartition(".")[2] if schema.type == "time" else owner)
        return value

    def _item(self, schema: Schema, value: Any, path: str, field: str, owner: str) -> Any:
        if value is None:
            return _zero(schema) if self._typed else None  # only Go's decoder replaces it
        return self.value(schema, value, path, field, owner)

    def _map(self, schema: Schema, value: dict[str, Any], path: str, field: str, owner: str) -> Any:
        items = schema.item_schema
        for key, item in value.items():
            if item is not None or not self._patch:
                value[key] = self._item(items, item, f"{path}.{key}" if path else key, field, owner)
        return value

    def _object(self, schema: Schema, value: dict[str, Any], path: str, field: str, owner: str) -> Any:
        if not schema.fields:
            return value
        for key in list(value):
            part = schema.fields.get(key)
            if part is None:
                if not schema.preserves and not (self._patch and key.startswith("$")):
                    if len(self.unknown) < MOST_FAULTS:
                        self.unknown.append(f'unknown field "{path}.{key}"' if path else f'unknown field "{key}"')
                    del value[key]
                continue
            here = f"{path}.{key}" if path else key
            if value[key] is None:
                if not self._patch and not part.constraints.nullable:
                    del value[key]
            else:
                value[key] = self.value(part, value[key], here, f"{field}.{key}" if field else key, owner)
        return value


def _check_scalar(schema: Schema, value: Any, field: str, owner: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match schema.type:
        case "int32" | "int64" as wanted:
            whole = number and isinstance(value, int)
            low, high = _RANGES[wanted]
            if whole and not low <= value <= high:
                raise OutOfRange(
                    f"json: cannot unmarshal number {value} into Go struct field {owner}.{field} of type {wanted}"
                )
            _expect(whole, value, wanted, field, owner)
        case "number":
            _expect(number, value, "float64", field, owner)
        case "boolean":
            _expect(isinstance(value, bool), value, "bool", field, owner)
        case "int-or-string":
            _expect(
                isinstance(value, str | int) and not isinstance(value, bool), value, "intstr.IntOrString", field, owner
            )
        case "quantity":
            _expect(number or isinstance(value, str), value, "string", field, owner)
            try:
                parse_nano(value)
            except (BadQuantity, ValueError, OverflowError):
                raise WrongType(REGEX_MESSAGE) from None
        case "string" | "time" | "bytes":
            _expect(isinstance(value, str), value, "[]uint8" if schema.type == "bytes" else "string", field, owner)
            _check_format(schema, value)


def _check_format(schema: Schema, value: str) -> None:
    if schema.type == "time" or schema.format == "date-time":
        try:
            parse_time(value)
        except BadTime:
            raise WrongType(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse') from None
    elif schema.type == "bytes":
        try:
            msgspec.convert(value, bytes)
        except msgspec.ValidationError:
            raise WrongType("illegal base64 data") from None


def _expect(holds: bool, value: Any, wanted: str, field: str, owner: str) -> Any:
    if not holds:
        found = json_type(value)
        if isinstance(value, float) and wanted in _RANGES:
            found += f" {plain(value)}"
        where = f"Go struct field {owner}.{field}" if field else "Go value"
        raise WrongType(f"json: cannot unmarshal {found} into {where} of type {wanted}", value, wanted)
    return value


_GO_TYPES = {"boolean": "bool", "string": "string", "bytes": "[]uint8", "number": "float64", "int32": "int32", "int64": "int64"}  # fmt: skip


def go_type(schema: Schema) -> str:
    """The Go type of a schema, as the decoder's messages print it."""
    if schema.name:
        *_, package, kind = schema.name.split(".")
        return f"{package}.{kind}"
    if schema.type == "list":
        return f"[]{go_type(schema.item_schema)}"
    if schema.type in ("map", "object"):
        return f"map[string]{go_type(schema.item_schema)}"
    return _GO_TYPES.get(schema.type, "interface {}")


_ZEROES = {"string": "", "time": "", "bytes": "", "int-or-string": "", "quantity": "0", "int32": 0, "int64": 0, "boolean": False}  # fmt: skip


def _zero(schema: Schema) -> Any:
    """What Go's decoder makes of null inside a list or map."""
    if schema.type in ("object", "map"):
        return {}
    return [] if schema.type == "list" else _ZEROES.get(schema.type)


def repeated_fields(body: bytes, document: Any) -> list[str]:
    """`duplicate field "…"` for every repeated key of a JSON body.

    Decoding keeps the last value, so a body with repeated keys has more quotes than its document; only such a body is
    parsed again. Raises TooLarge for one that nobody sends by mistake.
    """
    surplus = body.count(b'"') - msgspec.json.encode(document).count(b'"')
    if not surplus:
        return []
    if surplus > _MAX_SURPLUS:
        raise TooLarge("Request entity too large: too many repeated fields")
    found: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for key, value in items:
            if key in merged:
                named = repeated.setdefault(id(merged), {})
                named[key] = None
                if len(named) >= MOST_FAULTS:
                    break
            merged[key] = value
        alive.append(merged)  # an id stays unique while its object lives
        return merged

    repeated: dict[int, dict[str, None]] = {}
    alive: list[Any] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key in repeated.get(id(value), ()):
                found.append(f'duplicate field "{path}.{key}"' if path else f'duplicate field "{key}"')
            for key, item in value.items():
                walk(item, f"{path}.{key}" if path else key)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{path}[{index}]")

    try:
        walk(json.loads(body, object_pairs_hook=pairs), "")
    except (ValueError, RecursionError):  # accepted by msgspec but not by json: nothing worth reporting
        return []
    return list(dict.fromkeys(found))[:MOST_FAULTS]


def in_order(body: bytes, faults: list[str]) -> list[str]:
    """Faults about unknown and repeated fields in the order in which the body has them, as Go's decoder reports them."""
    places: dict[str, int] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, _Pairs):
            seen = set()
            for key, item in value:
                here = f"{path}.{key}" if path else key
                what = "duplicate" if key in seen else "unknown"
                places.setdefault(f'{what} field "{here}"', len(places))
                seen.add(key)
                walk(item, here)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{path}[{index}]")

    walk(json.loads(body, object_pairs_hook=_Pairs), "")
    return sorted(faults, key=lambda fault: places.get(fault, len(places)))


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, repeated ones included."""
