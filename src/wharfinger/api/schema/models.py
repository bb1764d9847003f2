"""Our own kinds as Python types, from which their schemas are generated.

A kind is a `Model` (a msgspec struct) whose fields carry their constraints in `msgspec.Meta` and whose docstrings become
descriptions. From it come the structural schema, defaulting and validation. `docs/internals/objects.md` shows how to add
a kind.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta
from msgspec.inspect import (
    AnyType,
    BoolType,
    DictType,
    EnumType,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
)

from wharfinger.api.fields import FieldError
from wharfinger.api.registry import DefaultFn, Document, Kind, Resource, ValidateFn
from wharfinger.api.schema import structural, tree
from wharfinger.api.schema.definitions import JsonSchema
from wharfinger.api.selectors import LabelSelector, SelectorExpression


class Model(msgspec.Struct, rename="camel"):
    """Base of all write-side structs, required fields first. `schema_extra` adds to the schema of the struct as a whole."""

    schema_extra: ClassVar[dict[str, Any]] = {}


Int32 = Annotated[int, Meta(extra_json_schema={"format": "int32"})]
Int64 = Annotated[int, Meta(extra_json_schema={"format": "int64"})]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
_QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
Quantity = Annotated[str | int, Meta(extra_json_schema={"pattern": _QUANTITY})]


def doc(text: str, *, immutable: bool = False, **more: Any) -> Meta:
    """The description of a field, with further schema keywords (`format=…`); `immutable` adds the validation rule."""
    if immutable:
        more[tree.RULES] = [{"rule": structural.IMMUTABLE_RULE, "message": "field is immutable"}]
    return Meta(description=text, extra_json_schema=more or None)


def keyed(*keys: str) -> Meta:
    """A list whose items are identified by these keys."""
    return Meta(extra_json_schema={tree.LIST_TYPE: "map", tree.MAP_KEYS: list(keys)})


UNIQUE = Meta(extra_json_schema={tree.LIST_TYPE: "set"})
ATOMIC = Meta(extra_json_schema={tree.LIST_TYPE: "atomic"})
PRESERVED = Meta(extra_json_schema={tree.PRESERVE: True})


QUALIFIED_NAME = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
"""A name with an optional prefix, as schemas of Kubernetes have it."""
_REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"


class ConditionModel(Model):
    """One aspect of the current state of an object. The constraints are those of `metav1.Condition`."""

    type: Annotated[
        str, Meta(max_length=316, pattern=QUALIFIED_NAME), doc("What the condition is about, in CamelCase.")
    ]
    status: Annotated[str, doc("True, False or Unknown.", enum=["True", "False", "Unknown"])]
    last_transition_time: Annotated[Time, doc("When status last changed.")]
    reason: Annotated[str, Meta(min_length=1, max_length=1024, pattern=_REASON), doc("One word for why, in CamelCase.")]
    message: Annotated[str, Meta(max_length=32768), doc("Why, for people.")]
    observed_generation: Annotated[Int64, Meta(ge=0), doc("The generation the condition was set for.")] | None = None


Conditions = Annotated[list[ConditionModel], keyed("type"), doc("The state of the object, by aspect.")]

_EXTRA: dict[type, dict[str, Any]] = {
    LabelSelector: {tree.MAP_TYPE: "atomic"},
    SelectorExpression: {"required": ["key", "operator"]},
}


@cache
def struct_schema(struct: type[msgspec.Struct]) -> JsonSchema:
    """The structural schema of one struct. Callers must not modify it."""
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, StructType)
    return _object(info)


def kind_schema(struct: type[msgspec.Struct]) -> JsonSchema:
    """The schema of a whole kind; the struct has its fields without metadata."""
    schema = dict(struct_schema(struct))
    root = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    schema["properties"] = {**root, **schema.get("properties", {})}
    return schema


def _object(info: StructType) -> JsonSchema:
    properties = {}
    required = []
    for part in info.fields:
        inner = _schema(part.type)
        if part.required:
            required.append(part.encode_name)
        elif isinstance(part.default, (str, int, float, bool)) and part.default != "":
            inner = {**inner, "default": part.default}
        properties[part.encode_name] = inner
    schema: JsonSchema = {"type": "object"}
    if text := inspect.getdoc(info.cls):
        if "__doc__" in vars(info.cls):
            schema["description"] = " ".join(text.split())
    if properties:
        schema["properties"] = properties
    if required:
        schema["required"] = required
    schema.update(_EXTRA.get(info.cls, {}))
    schema.update(getattr(info.cls, "schema_extra", {}))
    return schema


def _schema(kind: Type) -> JsonSchema:
    match kind:
        case Metadata():
            # The description of the field overrides that of its type.
            return {**_schema(kind.type), **(kind.extra_json_schema or {})}
        case StructType():
            return dict(struct_schema(kind.cls))
        case UnionType():
            return _union(kind)
        case ListType() | VarTupleType():
            return _bounded({"type": "array", "items": _schema(kind.item_type)}, minItems=kind.min_length, maxItems=kind.max_length)  # fmt: skip
        case DictType():
            return _map(kind)
        case StrType():
            return _bounded({"type": "string"}, minLength=kind.min_length, maxLength=kind.max_length, pattern=kind.pattern)  # fmt: skip
        case IntType() | FloatType():
            return _number(kind)
        case BoolType():
            return {"type": "boolean"}
        case LiteralType(values=values):
            return {"type": "string", "enum": list(values)}
        case EnumType(cls=cls):
            return {"type": "string", "enum": [member.value for member in cls]}
        case AnyType():
            return {tree.PRESERVE: True}
        case _:
            raise TypeError(f"no structural schema for {kind}")


def _union(kind: UnionType) -> JsonSchema:
    """Optional fields may be absent, not null; a string or integer is a type of its own."""
    parts = [part for part in kind.types if not isinstance(part, NoneType)]
    if len(parts) == 1:
        return _schema(parts[0])
    if {type(part) for part in parts} == {StrType, IntType}:
        return {tree.INT_OR_STRING: True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    raise TypeError(f"no structural schema for a union of {parts}")


def _map(kind: DictType) -> JsonSchema:
    if isinstance(kind.value_type, AnyType):
        return {"type": "object", tree.PRESERVE: True}
    schema = {"type": "object", "additionalProperties": _schema(kind.value_type)}
    return _bounded(schema, minProperties=kind.min_length, maxProperties=kind.max_length)


def _number(kind: IntType | FloatType) -> JsonSchema:
    schema: JsonSchema = {"type": "integer" if isinstance(kind, IntType) else "number"}
    _bounded(schema, minimum=kind.ge, maximum=kind.le, multipleOf=kind.multiple_of)
    if kind.gt is not None:
        schema.update(minimum=kind.gt, exclusiveMinimum=True)
    if kind.lt is not None:
        schema.update(maximum=kind.lt, exclusiveMaximum=True)
    return schema


def _bounded(schema: JsonSchema, **limits: Any) -> JsonSchema:
    schema.update({name: limit for name, limit in limits.items() if limit is not None})
    return schema


MoreFaults = Callable[[Document, Document | None], Iterable[FieldError]]


@cache
def _tree(struct: type[msgspec.Struct]) -> tree.Schema:
    return tree.structural_schema(kind_schema(struct))


def defaulter(struct: type[msgspec.Struct], more: DefaultFn | None = None) -> DefaultFn:
    """Defaulting of one of our kinds: that of its schema, then `more`, which must tolerate malformed documents."""

    def fill(document: Document) -> None:
        structural.default(_tree(struct), document)
        if more is not None:
            more(document)

    return fill


def validator(struct: type[msgspec.Struct], more: MoreFaults | None = None) -> ValidateFn:
    """Validation of one of our kinds: its schema, then `more` if the schema found no fault."""

    def faults(document: Document, old: Document | None) -> list[FieldError]:
        schema = _tree(struct)
        if old is None or old is document or document.keys() != old.keys() or schema.constraints.rules:
            errors = structural.validate(schema, document, "", tree.ABSENT if old is None else old)
        else:  # the unchanged part was validated before
            errors = [
                error
                for name, item in document.items()
                if item != old[name] and (part := schema.fields.get(name)) is not None
                for error in structural.validate(part, item, name, old[name])
            ]
        if more is not None and not errors:
            errors = list(more(document, old))
        return errors

    return faults


def model_kind(
    resource: Resource,
    model: type[Model],
    *,
    fill: DefaultFn | None = None,
    faults: MoreFaults | None = None,
    **fields: Any,
) -> Kind:
    """One of our kinds, with the schema, defaulting and validation of its model; `fill` and `faults` come after those of
    the schema. `fields` are further fields of the Kind, or replace those that follow from resource and model."""
    derived = {
        "versions": (resource.version,),
        "namespaced": resource.namespaced,
        "status": "status" in model.__struct_fields__,
        "default": defaulter(model, fill),
        "validate": validator(model, faults),
        "schema": lambda version: kind_schema(model),
        "ours": True,
    }
    return Kind(resource.group, resource.kind, resource.plural, **{**derived, **fields})
