"""The shape of Kubernetes' own kinds: which fields there are, of which type, and how lists of them merge.

Read from the OpenAPI definitions that ship with the package. `check` finds every value of the wrong type, so that code
that runs after it may walk a document without looking twice; `unknown_fields` is strict decoding; `Shape.merge_key` and
its neighbours drive strategic merge patches and apply.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from wharfinger.api.fields import FieldError, wrong_type
from wharfinger.api.quantity import REGEX_MESSAGE, BadQuantity, parse_nano
from wharfinger.api.shape_types import Typed
from wharfinger.api.times import BadTime, parse_time


@cache
def definitions() -> dict[str, Any]:
    """The OpenAPI (v2) definitions of Kubernetes' own types, by their full names."""
    data = gzip.decompress((files("wharfinger.api") / "data" / "definitions.json.gz").read_bytes())
    found: dict[str, Any] = msgspec.json.decode(data)["definitions"]
    found.update(_DEVICES)
    for definition, properties in _EMBEDDED.items():
        found[definition]["properties"].update(properties)
    return found


_CORE = "io.k8s.api.core.v1."
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_DEVICES: dict[str, Any] = {
    f"{_CORE}ComputeResource": {
        "description": "Devices of one raw resource that have the same properties.",
        "type": "object",
        "required": ["resourceName"],
        "properties": {
            "name": _TEXT,
            "resourceName": _TEXT,
            "properties": {"type": "object", "additionalProperties": _TEXT},
            "devices": _TEXTS,
            "allocatableDevices": _TEXTS,
            **{name: {"description": "Reserved."} for name in ("deviceUnits", "owner", "isolationGuarantee")},
        },
    },
    f"{_CORE}AllocatedComputeResource": {
        "description": "So many devices of one ComputeResource.",
        "type": "object",
        "required": ["computeResourceName", "count"],
        "properties": {"computeResourceName": _TEXT, "count": {"type": "integer", "format": "int32"}},
    },
}
_EMBEDDED: dict[str, Any] = {
    f"{_CORE}NodeStatus": {
        "computeResources": {
            "description": "The node's devices by resource and properties.",
            "type": "array",
            "items": {"$ref": f"#/definitions/{_CORE}ComputeResource"},
        }
    },
    f"{_CORE}Container": {
        "allocatedComputeResources": {
            "description": "The devices given to the container, by the name it asked for.",
            "type": "object",
            "additionalProperties": {
                "type": "array",
                "items": {"$ref": f"#/definitions/{_CORE}AllocatedComputeResource"},
            },
        }
    },
}
"""Fields that the embedded server knows beyond Kubernetes' own: devices on nodes, and what containers hold of them."""


@dataclass(slots=True, eq=False)
class Shape:
    """What one value may be. `type` is object, map, list, string, boolean, int32, int64, number, time, quantity,
    int-or-string, bytes or any."""

    type: str
    fields: dict[str, Shape] = field(default_factory=dict)  # of an object
    item: Shape | None = None  # of a map or list
    required: frozenset[str] = frozenset()
    merge_key: str = ""  # strategic merge: lists of objects merge by this key
    patch_strategy: tuple[str, ...] = ()  # merge, retainKeys
    list_type: str = ""  # apply: atomic, set or map
    map_keys: tuple[str, ...] = ()
    atomic_map: bool = False  # apply: an object or map that is replaced as a whole
    name: str = ""  # the definition it stands for
    declared: bool = False  # of a schema: it tells every field there is
    typed: Typed | None = None  # made when the first value is checked against it


_SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "time",
}
_INT_BITS = {"int32": 32, "int64": 64}


@cache
def shape_of(definition: str) -> Shape:
    """The shape of a definition by its full name, such as `io.k8s.api.core.v1.PodSpec`."""
    if definition in _SCALARS:
        return Shape(_SCALARS[definition], name=definition)
    schema = definitions()[definition]
    if "properties" not in schema:
        # Free-form types (JSON, RawExtension, FieldsV1) and unions of types that only the receiver can tell apart.
        return Shape("any", name=definition)
    made = Shape("object", required=frozenset(schema.get("required", ())), name=definition)
    made.atomic_map = schema.get("x-kubernetes-map-type") == "atomic"
    _pending.append((made, schema["properties"]))
    return made


_pending: list[tuple[Shape, dict[str, Any]]] = []
"""Objects whose fields are not made yet: definitions refer to each other in circles."""


def _complete() -> None:
    while _pending:
        made, properties = _pending.pop()
        made.fields = {name: _property(schema) for name, schema in properties.items()}


def _property(schema: dict[str, Any]) -> Shape:
    strategy = tuple(schema.get("x-kubernetes-patch-strategy", "").split(",")) if schema.get("x-kubernetes-patch-strategy") else ()  # fmt: skip
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    if "$ref" in schema:
        target = shape_of(schema["$ref"].rpartition("/")[2])
        if not (strategy or atomic):
            return target
        made = Shape(target.type, required=target.required, patch_strategy=strategy, name=target.name)
        made.atomic_map = atomic or target.atomic_map
        if target.type == "object":
            _pending.append((made, definitions()[target.name]["properties"]))
        return made
    match schema.get("type"):
        case "array":
            return Shape(
                "list",
                item=_property(schema["items"]),
                merge_key=schema.get("x-kubernetes-patch-merge-key", ""),
                patch_strategy=strategy,
                list_type=schema.get("x-kubernetes-list-type", "atomic"),
                map_keys=tuple(schema.get("x-kubernetes-list-map-keys", ())),
            )
        case "object" if "additionalProperties" in schema:
            return Shape("map", item=_property(schema["additionalProperties"]), atomic_map=atomic)
        case "string":
            return Shape("bytes" if schema.get("format") == "byte" else "string")
        case "integer":
            return Shape(schema.get("format", "int64"))
        case "boolean" | "number" as plain:
            return Shape(plain)
        case _:
            return Shape("any")


@cache
def _by_kind() -> dict[tuple[str, str, str], str]:
    named = {}
    for name, schema in definitions().items():
        kinds = schema.get("x-kubernetes-group-version-kind", ())
        if len(kinds) == 1:  # DeleteOptions, WatchEvent and Status stand in every group
            named[kinds[0]["group"], kinds[0]["version"], kinds[0]["kind"]] = name
    return named


@cache
def definition_name(group: str, version: str, kind: str) -> str | None:
    return _by_kind().get((group, version, kind))


def kind_shape(group: str, version: str, kind: str) -> Shape | None:
    """The shape of a kind of Kubernetes' own; None for custom resources."""
    name = definition_name(group, version, kind)
    return None if name is None else named_shape(name)


def named_shape(definition: str) -> Shape:
    """`shape_of`, complete with everything it refers to."""
    made = shape_of(definition)
    _complete()
    return made


def check(shape: Shape, value: Any, path: str = "") -> list[FieldError]:
    """Every value of the wrong type below `value`. Null is absent, and fields the shape does not know are let pass."""
    errors: list[FieldError] = []
    if shape.typed is None:
        shape.typed = Typed(shape, _fits)
    if not shape.typed.fits(value):
        _check(shape, value, path, errors)
    return errors


def _fits(shape: Shape, value: Any) -> bool:
    """Whether `_check` finds nothing: for what has no type, as shapes that hold themselves."""
    errors: list[FieldError] = []
    _check(shape, value, "", errors)
    return not errors


def _check(shape: Shape, value: Any, path: str, errors: list[FieldError]) -> None:
    if value is None:
        return
    kind = shape.type
    if kind == "object":
        if not isinstance(value, dict):
            errors.append(wrong_type(path, value, "object"))
            return
        fields = shape.fields
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
        assert shape.item is not None
        for index, item in enumerate(value):
            # A null element is a zero value to Go; nothing sensible is meant by it, so it is refused.
            if item is None:
                errors.append(wrong_type(f"{path}[{index}]", item, _WORDS.get(shape.item.type, shape.item.type)))
            else:
                _check(shape.item, item, f"{path}[{index}]", errors)
    elif kind == "map":
        if not isinstance(value, dict):
            errors.append(wrong_type(path, value, "object"))
            return
        assert shape.item is not None
        for key, item in value.items():
            _check(shape.item, item, f"{path}[{key}]", errors)
    elif kind != "any":
        _check_scalar(kind, value, path, errors)


_WORDS = {"list": "array", "map": "object", "int32": "integer", "int64": "integer", "time": "string"}
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


def unknown_fields(shape: Shape, value: Any, path: str = "") -> Iterator[str]:
    """The paths of fields that the shape does not know, as strict decoding names them: `spec.containers[0].imgae`."""
    if shape.type == "object" and isinstance(value, dict):
        for key, item in value.items():
            here = f"{path}.{key}" if path else key
            known = shape.fields.get(key)
            if known is None:
                yield here
            else:
                yield from unknown_fields(known, item, here)
    elif shape.item is not None and shape.item.type in ("object", "map", "list"):
        if shape.type == "list" and isinstance(value, list):
            for index, item in enumerate(value):
                yield from unknown_fields(shape.item, item, f"{path}[{index}]")
        elif shape.type == "map" and isinstance(value, dict):
            for key, item in value.items():
                yield from unknown_fields(shape.item, item, f"{path}.{key}")
