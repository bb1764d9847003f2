"""Types of values in documents of built-in kinds, with errors by path as field validation words them.

Code that runs after `type_errors` found nothing may walk a document without checking types again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from wharfinger.api.fields import FieldError, wrong_type
from wharfinger.api.quantity import REGEX_MESSAGE, BadQuantity, parse_nano
from wharfinger.api.schema.compiler import JSON_TYPES, VALUE_TYPES, QuantityValue, TimeValue
from wharfinger.api.schema.tree import Schema
from wharfinger.api.times import BadTime, parse_time
from wharfinger.api.wording import nearest

_parsed_time = lru_cache(4096)(parse_time)  # many objects are written in the same second
_REMEMBERED = 64  # characters of a time; clients may send longer ones
_QUANTITY, _TIME = QuantityValue(), TimeValue()


def type_errors(schema: Schema, value: Any, path: str = "") -> list[FieldError]:
    """Every value of the wrong type below `value`. Null counts as absent; unknown fields pass."""
    errors: list[FieldError] = []
    if not fits(schema, value):
        _check(schema, value, path, errors)
    return errors


def fits(schema: Schema, value: Any) -> bool:
    """Whether msgspec finds no wrong type; False where it cannot tell."""
    try:
        msgspec.convert(value, VALUE_TYPES.type_of(schema), dec_hook=_convert)
    except (msgspec.ValidationError, ValueError, OverflowError, TypeError):
        return False
    return True


def _convert(wanted: Any, value: Any) -> Any:
    if wanted is QuantityValue:
        parse_nano(value)
        return _QUANTITY
    if wanted is TimeValue:
        if not isinstance(value, str):
            raise TypeError
        (_parsed_time if len(value) <= _REMEMBERED else parse_time)(value)
        return _TIME
    if found_errors(wanted.schema, value):
        raise ValueError
    return wanted()


def found_errors(schema: Schema, value: Any, path: str = "") -> list[FieldError]:
    """`type_errors` by the walk alone."""
    errors: list[FieldError] = []
    _check(schema, value, path, errors)
    return errors


def _check(schema: Schema, value: Any, path: str, errors: list[FieldError]) -> None:
    if value is None:
        return
    kind = schema.type
    if kind in ("object", "map") and not isinstance(value, dict):
        errors.append(wrong_type(path, value, "object"))
    elif kind == "object":
        fields = schema.fields
        for key, item in value.items():
            known = fields.get(key)
            if known is not None and item is not None:
                _check(known, item, f"{path}.{key}" if path else key, errors)
    elif kind == "string":
        if not isinstance(value, str):
            errors.append(wrong_type(path, value, "string"))
    elif kind == "list":
        if not isinstance(value, list):
            errors.append(wrong_type(path, value, "array"))
            return
        items = schema.item_schema
        for index, item in enumerate(value):
            # Go decodes a null item into a zero value, which nobody wants; it is refused instead.
            if item is None:
                errors.append(wrong_type(f"{path}[{index}]", item, _WORDS.get(items.type, items.type)))
            else:
                _check(items, item, f"{path}[{index}]", errors)
    elif kind == "map":
        items = schema.item_schema
        for key, item in value.items():
            _check(items, item, f"{path}[{key}]", errors)
    elif kind != "any":
        _check_scalar(kind, value, path, errors)


_WORDS = {"list": "array", "map": "object", "int32": "integer", "int64": "integer", "time": "string"}
_INT_BITS = {"int32": 32, "int64": 64}
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def _check_scalar(kind: str, value: Any, path: str, errors: list[FieldError]) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind in _INT_BITS:
        if not isinstance(value, int) or isinstance(value, bool):
            errors.append(wrong_type(path, value, "integer"))
        elif not -(1 << _INT_BITS[kind] - 1) <= value < 1 << _INT_BITS[kind] - 1:
            errors.append(wrong_type(path, value, kind))
    elif kind == "boolean":
        if not isinstance(value, bool):
            errors.append(wrong_type(path, value, "boolean"))
    elif kind == "number":
        if not number:
            errors.append(wrong_type(path, value, "number"))
    elif kind == "int-or-string":
        if not (isinstance(value, str) or (isinstance(value, int) and number)):
            errors.append(wrong_type(path, value, "integer or string"))
    elif kind == "quantity":
        _check_quantity(value, path, errors)
    elif not isinstance(value, str):
        errors.append(wrong_type(path, value, "string"))
    elif kind == "time":
        try:
            parse_time(value)
        except (BadTime, OverflowError) as error:
            errors.append(FieldError(path, "FieldValueInvalid", f"Invalid value: {value!r}: {error}"))
    elif kind == "bytes" and not _BASE64.fullmatch(value.replace("\n", "").replace("\r", "")):
        errors.append(FieldError(path, "FieldValueInvalid", "Invalid value: illegal base64 data"))


def _check_quantity(value: Any, path: str, errors: list[FieldError]) -> None:
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        errors.append(wrong_type(path, value, "quantity"))
        return
    try:
        parse_nano(value)
    except (BadQuantity, ValueError, OverflowError):
        errors.append(FieldError(path, "FieldValueInvalid", f"Invalid value: {value!r}: {REGEX_MESSAGE}"))


class UnknownField(NamedTuple):
    """A field that the schema does not have, next to those that it has there."""

    path: str  # as strict decoding names it: `spec.containers[0].imgae`
    name: str
    known: Collection[str]

    @property
    def message(self) -> str:
        near = nearest(self.name, self.known)
        return f"unknown field; did you mean {near}?" if near else "unknown field"


def unknown_fields(schema: Schema, value: Any, path: str = "") -> Iterator[UnknownField]:
    """The fields that the schema does not have.
    Directives of patches (`$patch`) are not fields."""
    if schema.preserves or schema.embedded:
        return
    if schema.type == "object" and schema.fields and isinstance(value, dict):
        for key, item in value.items():
            here = f"{path}.{key}" if path else key
            known = schema.fields.get(key)
            if known is not None:
                yield from unknown_fields(known, item, here)
            elif not str(key).startswith("$"):
                yield UnknownField(here, str(key), schema.fields)
    elif schema.item is not None and schema.item.type in ("object", "map", "list"):
        if schema.type == "list" and isinstance(value, list):
            for index, item in enumerate(value):
                yield from unknown_fields(schema.item, item, f"{path}[{index}]")
        elif schema.type == "map" and isinstance(value, dict):
            for key, item in value.items():
                yield from unknown_fields(schema.item, item, f"{path}.{key}")


def fits_strictly(schema: Schema, document: Any) -> bool:
    """Whether msgspec finds neither unknown fields nor wrong types; False where it cannot tell."""
    try:
        return text_fits_strictly(schema, msgspec.json.encode(document))
    except (msgspec.MsgspecError, ValueError, OverflowError, TypeError, RecursionError):
        return False


def text_fits_strictly(schema: Schema, text: bytes) -> bool:
    """The same for a document as JSON."""
    try:
        msgspec.json.decode(text, type=JSON_TYPES.type_of(schema) | None)
    except (msgspec.MsgspecError, ValueError, OverflowError, TypeError, RecursionError):
        return False
    return True
