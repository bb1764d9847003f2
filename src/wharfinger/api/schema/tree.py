"""The schema tree: what a value may be, for built-in kinds and custom resources alike.

Built once for each definition or CustomResourceDefinition; everything that checks or merges documents walks it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from wharfinger.api.registry import Kind
from wharfinger.api.schema.definitions import OBJECT_META, JsonSchema, definition_name, definitions, target

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
EMBEDDED = "x-kubernetes-embedded-resource"
LIST_TYPE = "x-kubernetes-list-type"
MAP_TYPE = "x-kubernetes-map-type"
MAP_KEYS = "x-kubernetes-list-map-keys"
RULES = "x-kubernetes-validations"

ABSENT: Any = object()
"""No value at all, where null is a value."""


class Constraints(msgspec.Struct, frozen=True):
    """What the schema of a custom resource demands of a value besides its type."""

    nullable: bool = False
    default: Any = ABSENT
    enum: list[Any] | None = None
    max_properties: int | None = None
    min_properties: int | None = None
    max_items: int | None = None
    min_items: int | None = None
    unique_items: bool = False
    max_length: int | None = None
    min_length: int | None = None
    pattern: str = ""
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    rules: tuple[JsonSchema, ...] = ()  # x-kubernetes-validations


_UNCONSTRAINED = Constraints()


class Schema(msgspec.Struct, eq=False):
    """What one value may be."""

    #: object, map, list, string, boolean, int32, int64, number, time, quantity, int-or-string, bytes or any
    type: str
    name: str = ""  # of the definition that describes it
    fields: dict[str, Schema] = msgspec.field(default_factory=dict)  # of an object
    item: Schema | None = None  # of a map or list
    required: tuple[str, ...] = ()
    format: str = ""
    closed: bool = False  # lists every field there is
    preserves: bool = False  # unknown fields are kept
    embedded: bool = False  # a whole object with apiVersion, kind and metadata
    merge_key: str = ""  # strategic merge: items with equal keys merge
    patch_strategy: tuple[str, ...] = ()  # merge, replace, retainKeys
    list_type: str = ""  # apply: atomic, set or map
    map_keys: tuple[str, ...] = ()
    atomic_map: bool = False  # apply: replaced as a whole
    constraints: Constraints = _UNCONSTRAINED
    compiled: dict[str, Any] = msgspec.field(
        default_factory=dict
    )  # msgspec types by purpose; written by `compiler` only

    def child(self, name: str) -> Schema:
        """The schema of a member; `ANY` where nothing is known about it."""
        if self.type == "map" and self.item is not None:
            return self.item
        return self.fields.get(name, ANY)

    @property
    def item_schema(self) -> Schema:
        return self.item or ANY


ANY = Schema("any")
STRING = Schema("string")


# Built-in kinds

_SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "time",
}
_RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_built: dict[str, Schema] = {}


def definition_schema(name: str) -> Schema:
    """The schema of a definition by its full name, such as `io.k8s.api.core.v1.PodSpec`."""
    known = _built.get(name)
    if known is not None:
        return known
    document = definitions()[name]
    if name in _SCALARS:
        made = Schema(_SCALARS[name], name)
    elif "properties" not in document:
        # Free-form types (JSON, RawExtension, FieldsV1) and unions that only the receiver can tell apart.
        is_object = document.get("type") == "object" and name != _RAW_EXTENSION
        made = Schema("any", name, format="object" if is_object else "")
    else:
        made = Schema("object", name, required=tuple(document.get("required", ())), closed=True)
        made.atomic_map = document.get(MAP_TYPE) == "atomic"
    _built[name] = made  # before its fields: definitions refer to themselves
    for key, part in document.get("properties", {}).items():
        made.fields[key] = _property(part)
    return made


def _property(document: JsonSchema) -> Schema:
    strategy = tuple(filter(None, document.get("x-kubernetes-patch-strategy", "").split(",")))
    atomic = document.get(MAP_TYPE) == "atomic"
    if (name := target(document)) is not None:
        referred = definition_schema(name)
        if not (strategy or atomic):
            return referred
        return replace(referred, patch_strategy=strategy, atomic_map=atomic or referred.atomic_map, compiled={})
    match document.get("type"):
        case "array":
            return Schema(
                "list",
                item=_property(document["items"]),
                merge_key=document.get("x-kubernetes-patch-merge-key", ""),
                patch_strategy=strategy,
                list_type=document.get(LIST_TYPE, "atomic"),
                map_keys=tuple(document.get(MAP_KEYS, ())),
            )
        case "object" if "additionalProperties" in document:
            return Schema("map", item=_property(document["additionalProperties"]), atomic_map=atomic)
        case str():
            return Schema(_scalar_type(document), format=document.get("format", ""))
        case _:
            return ANY


def builtin_schema(group: str, version: str, kind: str) -> Schema | None:
    """The schema of a built-in kind; None for custom resources."""
    name = definition_name(group, version, kind)
    return None if name is None else definition_schema(name)


# Custom resources


def structural_schema(document: JsonSchema) -> Schema:
    """The tree of an OpenAPI v3 schema, as CustomResourceDefinitions carry it."""
    properties, extra, items = (document.get(part) for part in ("properties", "additionalProperties", "items"))
    fields = {name: structural_schema(part) for name, part in (properties or {}).items()}
    made = Schema(
        _structural_type(document),
        fields=fields,
        required=tuple(document.get("required") or ()),
        format=document.get("format") or "",
        preserves=bool(document.get(PRESERVE)) or extra is True,
        embedded=bool(document.get(EMBEDDED)),
        atomic_map=document.get(MAP_TYPE) == "atomic",
        constraints=_constraints(document),
    )
    made.closed = bool(fields) and not made.preserves and not made.embedded
    if made.type == "list":
        made.item = structural_schema(items) if isinstance(items, dict) else None
        made.list_type = document.get(LIST_TYPE, "atomic")
        made.map_keys = tuple(document.get(MAP_KEYS) or ())
    elif isinstance(extra, dict):
        made.item = structural_schema(extra)
    return made


def _structural_type(document: JsonSchema) -> str:
    if document.get(INT_OR_STRING):
        return "int-or-string"
    match document.get("type"):
        case "array":
            return "list"
        case "object":
            is_map = isinstance(document.get("additionalProperties"), dict) and not document.get("properties")
            return "map" if is_map else "object"
        case None | "":
            return "any"
    return _scalar_type(document)


def _scalar_type(document: JsonSchema) -> str:
    match document["type"], document.get("format"):
        case "string", "byte":
            return "bytes"
        case "integer", "int32":
            return "int32"
        case "integer", _:
            return "int64"
        case scalar, _:
            return str(scalar)


def _constraints(document: JsonSchema) -> Constraints:
    given = {
        name: document[keyword]
        for name, keyword in _KEYWORDS.items()
        if document.get(keyword) is not None or (keyword == "default" and keyword in document)
    }
    if not given:
        return _UNCONSTRAINED
    if "rules" in given:
        given["rules"] = tuple(given["rules"])
    return Constraints(**given)


_KEYWORDS = {
    name: re.sub("_(.)", lambda match: match[1].upper(), name)
    for name in Constraints.__struct_fields__
    if name != "rules"
} | {"rules": RULES}


def with_metadata(root: Schema) -> Schema:
    """The schema of a custom resource with the fields that every object has."""
    fields = {**root.fields, "apiVersion": STRING, "kind": STRING, "metadata": definition_schema(OBJECT_META)}
    return replace(root, type="object", fields=fields, item=None, compiled={})


@lru_cache(512)
def schema_of(kind: Kind, version: str) -> Schema:
    """The schema of a kind in one version."""
    found = builtin_schema(kind.group, version, kind.kind)
    if found is not None:
        return found
    return with_metadata(structural_schema(kind.schema(version)) if kind.schema is not None else Schema("object"))
