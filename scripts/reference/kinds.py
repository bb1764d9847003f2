"""The fields of our kinds, from their schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wharfinger.api.kinds import registry
from wharfinger.api.registry import Kind

# Types of Kubernetes that are shown by name, by a field that only they have.
_KNOWN = {
    "matchLabels": "LabelSelector",
    "nodeSelectorTerms": "NodeSelector",
    "containers": "PodSpec",
    "nodeAffinity": "Affinity",
    "lastTransitionTime": "Condition",
    "tolerationSeconds": "Toleration",
    "fieldPath": "ObjectReference",
    "blockOwnerDeletion": "OwnerReference",
}


@dataclass(frozen=True)
class FieldText:
    path: str  # such as `spec.units[].maxCount`
    type: str
    required: bool
    default: str
    description: str


def our_kinds() -> list[Kind]:
    return sorted((kind for kind in registry() if kind.ours and kind.schema is not None), key=lambda kind: kind.kind)


def fields_of(kind: Kind, version: str) -> list[FieldText]:
    assert kind.schema is not None
    schema = kind.schema(version)
    found: list[FieldText] = []
    for name, part in schema["properties"].items():
        if name not in ("apiVersion", "kind", "metadata"):
            found += _fields(name, part, name in (schema.get("required") or ()))
    return found


def _fields(path: str, schema: dict[str, Any], required: bool) -> Iterator[FieldText]:
    yield FieldText(path, _type(schema), required, _default(schema), _description(schema))
    inner, suffix = schema, ""
    while inner.get("type") == "array" or isinstance(inner.get("additionalProperties"), dict):
        suffix += "[]" if inner.get("type") == "array" else ".*"
        inner = inner["items"] if inner.get("type") == "array" else inner["additionalProperties"]
    if _known(inner):
        return
    for name, field in (inner.get("properties") or {}).items():
        yield from _fields(f"{path}{suffix}.{name}", field, name in (inner.get("required") or ()))


def _known(schema: dict[str, Any]) -> str:
    properties = schema.get("properties") or {}
    return next((name for field, name in _KNOWN.items() if field in properties), "")


def _type(schema: dict[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity" if "KMGTPE" in schema.get("pattern", "") else "integer or string"
    if values := schema.get("enum"):
        return " or ".join(f"`{value}`" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map of {_type(schema['additionalProperties'])}"
    if schema.get("format") in ("date-time", "byte", "duration"):
        return {"date-time": "time", "byte": "base64"}.get(schema["format"], schema["format"])
    return _known(schema) or str(schema.get("type") or "any")


def _default(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return ""
    value = schema["default"]
    return value if value and isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _description(schema: dict[str, Any]) -> str:
    sentences = [" ".join(schema.get("description", "").split())]
    bounds = [
        f"{word} {schema[key]}"
        for key, word in (("minimum", "at least"), ("maximum", "at most"), ("maxItems", "at most"), ("maxLength", "at most"))
        if key in schema and schema[key] not in (2147483647, 9223372036854775807)
    ]  # fmt: skip
    if "maxItems" in schema:
        bounds[-1] += " items"
    elif "maxLength" in schema:
        bounds[-1] += " characters"
    if bounds:
        sentences.append(f"{', '.join(bounds).capitalize()}.")
    for rule in schema.get("x-kubernetes-validations") or ():
        if message := rule.get("message"):
            sentences.append(f"Rule: {message}.")
    return " ".join(filter(None, sentences))
