"""Published schemas of custom kinds: as kube-apiserver derives them from CustomResourceDefinitions.

Version 2 cannot express everything that a definition may say, and kubectl refuses what it does not understand; so
parts of the schema are left out there, with the rules of `apiextensions-apiserver/pkg/controller/openapi`.
"""

from __future__ import annotations

from typing import Any

from wharfinger.api.registry import Document
from wharfinger.api.schema.definitions import META, PREFIX, definitions
from wharfinger.api.schema.tree import PRESERVE

_EMBEDDED, _INT_OR_STRING = "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"
_JUNCTORS = ("allOf", "oneOf", "anyOf", "not")
_CONVENTIONS = "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_NUMBER_OR_TEXT = [{"type": "integer"}, {"type": "string"}]
_EMBEDDED_TEXTS = {
    "apiVersion": f"apiVersion defines the versioned schema of this representation of an object. {_CONVENTIONS}#resources",
    "kind": f"kind is a string value representing the type of this object. In CamelCase. {_CONVENTIONS}#types-kinds",
}


def object_schema(schema: Document | None, named: Document, *, version_2: bool) -> Document:
    """The schema of the objects of a kind, with references as in `definitions`. None: the kind has no schema."""
    if schema is None or (version_2 and schema.get(PRESERVE)):
        # Not even the standard fields: kubectl would refuse all others.
        made: Document = {"type": "object"}
    else:
        made = _published(schema, version_2=version_2)
        made["properties"] = {**(made.get("properties") or {}), **_type_fields(), "metadata": _metadata("ObjectMeta")}
    return {**made, "x-kubernetes-group-version-kind": [named]}


def list_schema(kind: str, plural: str, item: str, named: Document) -> Document:
    """The schema of the lists of a kind; `item` is the name of the schema of its objects."""
    items = {
        "description": f"List of {plural}. {_CONVENTIONS}",
        "type": "array",
        "items": {"$ref": PREFIX + item},
    }
    return {
        "description": f"{named['kind']} is a list of {kind}",
        "type": "object",
        "required": ["items"],
        "properties": {**_type_fields(), "items": items, "metadata": _metadata("ListMeta")},
        "x-kubernetes-group-version-kind": [named],
    }


def _type_fields() -> Document:
    fields = definitions()["io.k8s.api.core.v1.Pod"]["properties"]
    return {"apiVersion": fields["apiVersion"], "kind": fields["kind"]}


def _metadata(kind: str) -> Document:
    what = "object's" if kind == "ObjectMeta" else "list"
    anchor = "metadata" if kind == "ObjectMeta" else "types-kinds"
    return {"$ref": f"{PREFIX}{META}{kind}", "description": f"Standard {what} metadata. {_CONVENTIONS}#{anchor}"}


def _published(schema: Any, *, version_2: bool) -> Document:
    made: Document = {key: value for key, value in schema.items() if not (value is False and key.startswith("x-"))}
    if made.get("nullable") is False:
        del made["nullable"]
    if version_2:
        _reduce(made)
    elif made.get(_INT_OR_STRING):
        _unfold(made)
    properties = made.get("properties")
    if isinstance(properties, dict):
        made["properties"] = {name: _published(inner, version_2=version_2) for name, inner in properties.items()}
    for part in ("items", "additionalProperties"):
        if isinstance(made.get(part), dict):
            made[part] = _published(made[part], version_2=version_2)
    if made.get(_EMBEDDED) and not (version_2 and made.get(PRESERVE)):
        _embed(made)
    return made


def _reduce(schema: Document) -> None:
    """Leaves out what version 2 cannot express, and defaults, which it never shows."""
    schema.pop("default", None)
    properties = schema.get("properties")
    nullable = {name for name, inner in (properties or {}).items() if inner.get("nullable")}
    for junctor in _JUNCTORS:
        schema.pop(junctor, None)
    if schema.pop("nullable", None):
        for part in ("type", "items", "properties"):
            schema.pop(part, None)
    if schema.get(PRESERVE):
        for part in ("items", "properties"):
            schema.pop(part, None)
    if schema.get("type") == "array" and "items" not in schema:
        del schema["type"]
    if schema.get(PRESERVE) and schema.get("type") == "object":
        del schema["type"]
    required = [name for name in schema.get("required") or () if name not in nullable]
    values = schema.get("additionalProperties")
    if not required or (isinstance(values, dict) and values.get("nullable")):
        schema.pop("required", None)
    else:
        schema["required"] = required


def _unfold(schema: Document) -> None:
    """Spells out that a value is a number or a text, unless the schema does so itself."""
    first = (schema.get("allOf") or [{}])[0]
    if schema.get("anyOf") == _NUMBER_OR_TEXT or first.get("anyOf") == _NUMBER_OR_TEXT:
        return
    if not schema.get("anyOf"):
        schema["anyOf"] = _NUMBER_OR_TEXT
    else:
        schema["allOf"] = [{"anyOf": _NUMBER_OR_TEXT}, *(schema.get("allOf") or ())]


def _embed(schema: Document) -> None:
    """The standard fields of an object inside another one."""
    fields = {name: {"type": "string", "description": text} for name, text in _EMBEDDED_TEXTS.items()}
    schema["properties"] = {**(schema.get("properties") or {}), **fields, "metadata": _metadata("ObjectMeta")}
    required = schema.get("required") or []
    schema["required"] = [*required, *(name for name in ("kind", "apiVersion") if name not in required)]
