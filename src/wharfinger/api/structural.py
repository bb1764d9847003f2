"""Structural OpenAPI v3 schemas, the kind CustomResourceDefinitions carry: what they do to a document.

`default` fills absent fields, `prune` drops unknown ones, `validate` names every fault by path in the words of a real
API server, and `schema_faults` says why a schema is not structural. Our own kinds and users' definitions go the same way.
Expression rules (`x-kubernetes-validations`) other than immutability are left to the API server, which evaluates CEL.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from wharfinger.api.fields import (
    FieldError,
    duplicate,
    forbidden,
    immutable,
    invalid,
    not_supported,
    required,
    show,
    too_many,
)
from wharfinger.api.times import BadTime, parse_time

Schema = dict[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
EMBEDDED = "x-kubernetes-embedded-resource"
LIST_TYPE = "x-kubernetes-list-type"
MAP_KEYS = "x-kubernetes-list-map-keys"
RULES = "x-kubernetes-validations"
IMMUTABLE_RULE = "self == oldSelf"

_IMPLICIT = ("apiVersion", "kind", "metadata")


def default(schema: Schema, value: Any) -> None:
    """Fills defaults in place, deepest last, as an API server does. Nulls that are not allowed count as absent."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        for name, inner in properties.items():
            if name in value and value[name] is None and not inner.get("nullable"):
                del value[name]
            if name not in value and "default" in inner:
                value[name] = copy.deepcopy(inner["default"])
            if name in value:
                default(inner, value[name])
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            for name, item in value.items():
                if name not in properties:
                    default(extra, item)
    elif isinstance(value, list):
        inner = schema.get("items")
        if isinstance(inner, dict):
            for item in value:
                default(inner, item)


def prune(schema: Schema, value: Any, *, root: bool = True) -> None:
    """Drops fields that the schema does not name, in place; `metadata` and the like are kept at the root."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        extra = schema.get("additionalProperties")
        keep_all = bool(schema.get(PRESERVE)) or extra is True
        for name in list(value):
            if name in properties:
                # The metadata of an embedded resource is the API server's to check, not the schema's to prune.
                if not (name == "metadata" and (root or schema.get(EMBEDDED))):
                    prune(properties[name], value[name], root=False)
            elif isinstance(extra, dict):
                prune(extra, value[name], root=False)
            elif not keep_all and not ((root or schema.get(EMBEDDED)) and name in _IMPLICIT):
                del value[name]
    elif isinstance(value, list):
        inner = schema.get("items")
        if isinstance(inner, dict):
            for item in value:
                prune(inner, item, root=False)


_NO_OLD: Any = object()


def validate(schema: Schema, value: Any, path: str = "", old: Any = _NO_OLD) -> list[FieldError]:
    """Every fault of the value; with `old`, also changes of immutable fields."""
    errors: list[FieldError] = []
    _validate(schema, value, path, old, errors)
    return errors


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def type_name(value: Any) -> str:
    for name in ("boolean", "object", "array", "string", "integer", "number"):
        if isinstance(value, _TYPES[name]):
            return name
    return "null"


def _has_type(value: Any, wanted: str) -> bool:
    if isinstance(value, bool) and wanted != "boolean":
        return False
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()  # JSON does not tell 3 from 3.0
    return isinstance(value, _TYPES.get(wanted, ()))


def _validate(schema: Schema, value: Any, path: str, old: Any, errors: list[FieldError]) -> None:
    if value is None:
        if not schema.get("nullable") and (schema.get("type") or schema.get(INT_OR_STRING)):
            wanted = schema.get("type") or "integer,string"
            errors.append(_wrong(path, value, wanted))
        return
    if schema.get(INT_OR_STRING):
        if not (_has_type(value, "integer") or isinstance(value, str)):
            errors.append(_wrong(path, value, "integer,string"))
            return
    elif (wanted := schema.get("type")) and not _has_type(value, wanted):
        errors.append(_wrong(path, value, wanted))
        return
    if (enum := schema.get("enum")) is not None and value not in enum:
        errors.append(not_supported(path, value, enum))
    if isinstance(value, dict):
        _validate_object(schema, value, path, old, errors)
    elif isinstance(value, list):
        _validate_list(schema, value, path, old, errors)
    elif isinstance(value, str):
        _validate_text(schema, value, path, errors)
    elif not isinstance(value, bool):
        _validate_number(schema, value, path, errors)
    if old is not _NO_OLD and old is not None and old != value:
        for rule in schema.get(RULES) or ():
            if rule.get("rule") == IMMUTABLE_RULE:
                message = rule.get("message")
                errors.append(invalid(path, value, message) if message else immutable(path, value))


def _wrong(path: str, value: Any, wanted: str) -> FieldError:
    detail = f"{path or '<nil>'} in body must be of type {wanted}: {show(type_name(value))}"
    return FieldError(path, "FieldValueTypeInvalid", f"Invalid value: {show(type_name(value))}: {detail}")


def _validate_object(schema: Schema, value: dict[str, Any], path: str, old: Any, errors: list[FieldError]) -> None:
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for name in schema.get("required") or ():
        if name not in value:
            errors.append(required(f"{path}.{name}" if path else name))
    count = len(value)
    if (limit := schema.get("maxProperties")) is not None and count > limit:
        errors.append(too_many(path, count, limit))
    if (least := schema.get("minProperties")) is not None and count < least:
        errors.append(invalid(path, count, f"{path} in body should have at least {least} properties"))
    for name, item in value.items():
        inner = properties.get(name, extra)
        if isinstance(inner, dict):
            before = old.get(name) if isinstance(old, dict) else _NO_OLD if old is _NO_OLD else None
            _validate(inner, item, f"{path}.{name}" if path else name, before, errors)
    if isinstance(old, dict):
        for name, inner in properties.items():
            if (
                name in old
                and name not in value
                and any(r.get("rule") == IMMUTABLE_RULE for r in inner.get(RULES) or ())
            ):
                errors.append(immutable(f"{path}.{name}" if path else name, None))


def _validate_list(schema: Schema, value: list[Any], path: str, old: Any, errors: list[FieldError]) -> None:
    if (limit := schema.get("maxItems")) is not None and len(value) > limit:
        errors.append(too_many(path, len(value), limit))
    if (least := schema.get("minItems")) is not None and len(value) < least:
        errors.append(invalid(path, len(value), f"{path} in body should have at least {least} items"))
    keys = schema.get(MAP_KEYS) or ()
    kind = schema.get(LIST_TYPE)
    seen: list[Any] = []
    before_by_key = _by_key(old, keys) if kind == "map" and isinstance(old, list) else {}
    inner = schema.get("items")
    for index, item in enumerate(value):
        here = f"{path}[{index}]"
        before = _NO_OLD
        if kind == "map" and isinstance(item, dict):
            mark: Any = {key: item.get(key) for key in keys}
            if mark in seen:
                errors.append(duplicate(here, mark))
            seen.append(mark)
            before = before_by_key.get(show(mark), _NO_OLD)
        elif kind == "set" or schema.get("uniqueItems"):
            if item in seen:
                errors.append(duplicate(here, item))
            seen.append(item)
        if isinstance(inner, dict):
            _validate(inner, item, here, before, errors)


def _by_key(items: list[Any], keys: Any) -> dict[str, Any]:
    return {show({key: item.get(key) for key in keys}): item for item in items if isinstance(item, dict)}


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except re.error:
        return None  # a pattern that only Go understands is not enforced here


def _validate_text(schema: Schema, value: str, path: str, errors: list[FieldError]) -> None:
    if (limit := schema.get("maxLength")) is not None and len(value) > limit:
        errors.append(FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes"))
    if (least := schema.get("minLength")) is not None and len(value) < least:
        errors.append(invalid(path, value, f"{path} in body should be at least {least} chars long"))
    if (text := schema.get("pattern")) and (pattern := _pattern(text)) is not None and not pattern.search(value):
        errors.append(invalid(path, value, f"{path} in body should match '{text}'"))
    if schema.get("format") == "date-time":
        try:
            parse_time(value)
        except (BadTime, OverflowError):
            errors.append(invalid(path, value, f"{path} in body must be of type date-time: {show(value)}"))


_BOUNDS = {"int32": 1 << 31, "int64": 1 << 63}


def _validate_number(schema: Schema, value: int | float, path: str, errors: list[FieldError]) -> None:
    bound = _BOUNDS.get(schema.get("format", ""))
    if bound is not None and not -bound <= value < bound:
        errors.append(invalid(path, value, f"{path} in body must be of type {schema['format']}: {show(value)}"))
    if (least := schema.get("minimum")) is not None:
        if value < least or (schema.get("exclusiveMinimum") and value == least):
            word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
            errors.append(invalid(path, value, f"{path} in body should be {word} {least}"))
    if (most := schema.get("maximum")) is not None:
        if value > most or (schema.get("exclusiveMaximum") and value == most):
            word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
            errors.append(invalid(path, value, f"{path} in body should be {word} {most}"))
    if (step := schema.get("multipleOf")) and value % step:
        errors.append(invalid(path, value, f"{path} in body should be a multiple of {step}"))


_ALLOWED = {
    "description", "type", "format", "title", "default", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
    "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "enum", "maxProperties",
    "minProperties", "required", "items", "properties", "additionalProperties", "nullable", "externalDocs", "example",
    "allOf", "anyOf", "oneOf", "not", PRESERVE, INT_OR_STRING, EMBEDDED, LIST_TYPE, MAP_KEYS, RULES,
    "x-kubernetes-map-type",
}  # fmt: skip


def schema_faults(schema: Any, path: str) -> Iterator[FieldError]:
    """Why an API server would refuse the schema as not structural."""
    if not isinstance(schema, dict):
        yield FieldError(path, "FieldValueTypeInvalid", f"Invalid value: {show(type_name(schema))}: must be an object")
        return
    for name in schema:
        if name not in _ALLOWED:
            yield forbidden(f"{path}.{name}", f"{name} is not supported in a structural schema")
    kind = schema.get("type")
    if kind is None and not (schema.get(INT_OR_STRING) or schema.get(PRESERVE)):
        yield required(f"{path}.type", "must not be empty for specified object fields")
    elif kind is not None and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, sorted(_TYPES))
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield required(f"{path}.items", "must be specified")
    if schema.get("properties") and schema.get("additionalProperties") is not None:
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if schema.get("uniqueItems"):
        yield forbidden(f"{path}.uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic")  # fmt: skip
    if schema.get(LIST_TYPE) == "map":
        yield from _map_list_faults(schema, path)
    elif schema.get(MAP_KEYS):
        yield forbidden(f"{path}.{MAP_KEYS}", "must be unset if x-kubernetes-list-type is unset or not map")
    if "default" in schema:
        yield from validate(schema, schema["default"], f"{path}.default")
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        yield from schema_faults(inner, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        yield from schema_faults(schema["items"], f"{path}.items")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from schema_faults(schema["additionalProperties"], f"{path}.additionalProperties")


def _map_list_faults(schema: Schema, path: str) -> Iterator[FieldError]:
    keys = schema.get(MAP_KEYS)
    items = schema.get("items")
    if not keys:
        yield required(f"{path}.{MAP_KEYS}", "must not be empty if x-kubernetes-list-type is map")
    if not isinstance(items, dict) or items.get("type") != "object":
        yield invalid(f"{path}.items.type", (items or {}).get("type"), "must be object if parent array's x-kubernetes-list-type is map")  # fmt: skip
        return
    properties = items.get("properties") or {}
    for index, key in enumerate(keys or ()):
        if key not in properties:
            yield invalid(f"{path}.{MAP_KEYS}[{index}]", key, "entries must all be names of item properties")
        elif key not in (items.get("required") or ()) and "default" not in properties[key]:
            yield required(f"{path}.items.properties[{key}].default", "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property")  # fmt: skip
