"""Custom resources and their structural schemas, with errors as the API server's CRD validation words them.

`default` fills absent fields, `prune` drops unknown ones, `validate` names every fault by path, and `schema_faults`
says why a schema is not structural. Of the expression rules (`x-kubernetes-validations`) only immutability is checked
here; the API server evaluates CEL.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
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
    too_long,
    too_many,
)
from wharfinger.api.regex import compiled
from wharfinger.api.schema.definitions import JsonSchema
from wharfinger.api.schema.tree import (
    ABSENT,
    EMBEDDED,
    INT_OR_STRING,
    LIST_TYPE,
    MAP_KEYS,
    MAP_TYPE,
    PRESERVE,
    RULES,
    Schema,
    structural_schema,
)
from wharfinger.api.times import BadTime, parse_time

IMMUTABLE_RULE = "self == oldSelf"

_IMPLICIT = ("apiVersion", "kind", "metadata")


def default(schema: Schema, value: Any) -> None:
    """Fills defaults in place, outermost first. A null that is not allowed counts as absent."""
    if isinstance(value, dict):
        fields = schema.fields
        for name, part in fields.items():
            if name in value:
                if value[name] is not None or part.constraints.nullable:
                    continue
                del value[name]
            if part.constraints.default is not ABSENT:
                value[name] = copy.deepcopy(part.constraints.default)
        others = schema.item if schema.type != "list" else None
        for name, item in value.items():
            if isinstance(item, dict | list):
                found = fields.get(name, others)
                if found is not None:
                    default(found, item)
    elif isinstance(value, list) and schema.type == "list" and schema.item is not None:
        for item in value:
            default(schema.item, item)


def prune(schema: Schema, value: Any, *, root: bool = True) -> None:
    """Drops fields that the schema does not have, in place; `metadata` and the like are kept at the root."""
    if isinstance(value, dict):
        whole = root or schema.embedded  # a whole object, whose metadata the API server checks
        extra = schema.item if schema.type != "list" else None
        for name in list(value):
            if name in schema.fields:
                if not (name == "metadata" and whole):
                    prune(schema.fields[name], value[name], root=False)
            elif extra is not None:
                prune(extra, value[name], root=False)
            elif not schema.preserves and not (whole and name in _IMPLICIT):
                del value[name]
    elif isinstance(value, list) and schema.type == "list" and schema.item is not None:
        for item in value:
            prune(schema.item, item, root=False)


def validate(schema: Schema, value: Any, path: str = "", old: Any = ABSENT) -> list[FieldError]:
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
_WORDS = {
    "map": "object",
    "list": "array",
    "bytes": "string",
    "int32": "integer",
    "int64": "integer",
    "int-or-string": "integer,string",
}


def openapi_type(schema: Schema) -> str:
    """The `type` in the schema's JSON form."""
    return "" if schema.type == "any" else _WORDS.get(schema.type, schema.type)


def type_name(value: Any) -> str:
    """The OpenAPI type of a value."""
    for name in ("boolean", "object", "array", "string", "integer", "number"):
        if isinstance(value, _TYPES[name]):
            return name
    return "null"


def _has_type(value: Any, wanted: str) -> bool:
    if isinstance(value, bool) and wanted != "boolean":
        return False
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()  # JSON has one notation for 3 and 3.0
    return isinstance(value, _TYPES.get(wanted, ()))


def _validate(schema: Schema, value: Any, path: str, old: Any, errors: list[FieldError]) -> None:
    limits, kind = schema.constraints, schema.type
    if value is None:
        if kind != "any" and not limits.nullable:
            errors.append(_wrong(path, value, openapi_type(schema)))
        return
    if kind != "any" and not _has_type(value, openapi_type(schema)):
        if not (kind == "int-or-string" and (isinstance(value, str) or _has_type(value, "integer"))):
            errors.append(_wrong(path, value, openapi_type(schema)))
            return
    if limits.enum is not None and value not in limits.enum:
        errors.append(not_supported(path, value, limits.enum))
    if isinstance(value, dict):
        _validate_object(schema, value, path, old, errors)
    elif isinstance(value, list):
        _validate_list(schema, value, path, old, errors)
    elif isinstance(value, str):
        _validate_text(schema, value, path, errors)
    elif not isinstance(value, bool):
        _validate_number(schema, value, path, errors)
    if limits.rules and old is not ABSENT and old is not None and old != value:
        for rule in limits.rules:
            if rule.get("rule") == IMMUTABLE_RULE:
                message = rule.get("message")
                errors.append(invalid(path, value, message) if message else immutable(path, value))


def _wrong(path: str, value: Any, wanted: str) -> FieldError:
    detail = f"{path or '<nil>'} in body must be of type {wanted}: {show(type_name(value))}"
    return FieldError(path, "FieldValueTypeInvalid", f"Invalid value: {show(type_name(value))}: {detail}")


def _validate_object(schema: Schema, value: dict[str, Any], path: str, old: Any, errors: list[FieldError]) -> None:
    limits, count = schema.constraints, len(value)
    for name in schema.required:
        if name not in value:
            errors.append(required(f"{path}.{name}" if path else name))
    if limits.max_properties is not None and count > limits.max_properties:
        errors.append(too_many(path, count, limits.max_properties))
    if limits.min_properties is not None and count < limits.min_properties:
        errors.append(invalid(path, count, f"{path} in body should have at least {limits.min_properties} properties"))
    for name, item in value.items():
        part = schema.fields.get(name, schema.item)
        if part is not None:
            before = old.get(name) if isinstance(old, dict) else ABSENT if old is ABSENT else None
            _validate(part, item, f"{path}.{name}" if path else name, before, errors)
    if isinstance(old, dict):
        for name, part in schema.fields.items():
            rules = part.constraints.rules
            if rules and name in old and name not in value and any(r.get("rule") == IMMUTABLE_RULE for r in rules):
                errors.append(immutable(f"{path}.{name}" if path else name, None))


def _validate_list(schema: Schema, value: list[Any], path: str, old: Any, errors: list[FieldError]) -> None:
    limits, keys, kind = schema.constraints, schema.map_keys, schema.list_type
    if limits.max_items is not None and len(value) > limits.max_items:
        errors.append(too_many(path, len(value), limits.max_items))
    if limits.min_items is not None and len(value) < limits.min_items:
        errors.append(invalid(path, len(value), f"{path} in body should have at least {limits.min_items} items"))
    seen: list[Any] = []
    before_by_key = _by_key(old, keys) if kind == "map" and isinstance(old, list) else {}
    for index, item in enumerate(value):
        here = f"{path}[{index}]"
        before = ABSENT
        if kind == "map" and isinstance(item, dict):
            key: Any = {name: item.get(name) for name in keys}
            if key in seen:
                errors.append(duplicate(here, key))
            seen.append(key)
            before = before_by_key.get(show(key), ABSENT)
        elif kind == "set" or limits.unique_items:
            if item in seen:
                errors.append(duplicate(here, item))
            seen.append(item)
        if schema.item is not None:
            _validate(schema.item, item, here, before, errors)


def _by_key(items: list[Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {show({key: item.get(key) for key in keys}): item for item in items if isinstance(item, dict)}


def _matches(pattern: str, value: str) -> bool:
    try:
        return compiled(pattern).search(value) is not None
    except ValueError:
        return True  # a pattern that is invalid or too large is not enforced


def _validate_text(schema: Schema, value: str, path: str, errors: list[FieldError]) -> None:
    limits = schema.constraints
    if limits.max_length is not None and len(value) > limits.max_length:
        errors.append(too_long(path, limits.max_length))
    if limits.min_length is not None and len(value) < limits.min_length:
        errors.append(invalid(path, value, f"{path} in body should be at least {limits.min_length} chars long"))
    if limits.pattern and not _matches(limits.pattern, value):
        errors.append(invalid(path, value, f"{path} in body should match '{limits.pattern}'"))
    if schema.format == "date-time":
        try:
            parse_time(value)
        except (BadTime, OverflowError):
            errors.append(invalid(path, value, f"{path} in body must be of type date-time: {show(value)}"))


_BOUNDS = {"int32": 1 << 31, "int64": 1 << 63}


def _validate_number(schema: Schema, value: int | float, path: str, errors: list[FieldError]) -> None:
    limits = schema.constraints
    bound = _BOUNDS.get(schema.format)
    if bound is not None and not -bound <= value < bound:
        errors.append(invalid(path, value, f"{path} in body must be of type {schema.format}: {show(value)}"))
    if (least := limits.minimum) is not None and (value < least or (limits.exclusive_minimum and value == least)):
        word = "greater than" if limits.exclusive_minimum else "greater than or equal to"
        errors.append(invalid(path, value, f"{path} in body should be {word} {least}"))
    if (most := limits.maximum) is not None and (value > most or (limits.exclusive_maximum and value == most)):
        word = "less than" if limits.exclusive_maximum else "less than or equal to"
        errors.append(invalid(path, value, f"{path} in body should be {word} {most}"))
    if limits.multiple_of and value % limits.multiple_of:
        errors.append(invalid(path, value, f"{path} in body should be a multiple of {limits.multiple_of}"))


_ALLOWED = {
    "description", "type", "format", "title", "default", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
    "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "enum", "maxProperties",
    "minProperties", "required", "items", "properties", "additionalProperties", "nullable", "externalDocs", "example",
    "allOf", "anyOf", "oneOf", "not", PRESERVE, INT_OR_STRING, EMBEDDED, LIST_TYPE, MAP_KEYS, RULES, MAP_TYPE,
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
        yield from validate(structural_schema(schema), schema["default"], f"{path}.default")
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        yield from schema_faults(inner, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        yield from schema_faults(schema["items"], f"{path}.items")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from schema_faults(schema["additionalProperties"], f"{path}.additionalProperties")


def _map_list_faults(schema: JsonSchema, path: str) -> Iterator[FieldError]:
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
