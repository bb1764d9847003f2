"""Values of Kubernetes' internal Go types as messages print them: with all fields, under their Go names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wharfinger.api.registry import Document

_Fields = Mapping[str, Any]
"""Wire names in the order of the Go type, each with the fields of its own value or None."""

_EXPRESSION: _Fields = {"key": None, "operator": None, "values": None}
_TERM: _Fields = {"matchExpressions": _EXPRESSION, "matchFields": _EXPRESSION}
_TOLERATION: _Fields = dict.fromkeys(("key", "operator", "value", "effect", "tolerationSeconds"))
_ASKED: _Fields = {
    "deviceClassName": None,
    "selectors": {"cel": {"expression": None}},
    "allocationMode": None,
    "count": None,
    "adminAccess": None,
    "tolerations": _TOLERATION,
    "capacity": {"requests": None},
    "derivedAttributes": None,
}
_DEVICES: _Fields = {
    "requests": {
        "name": None,
        "exactly": _ASKED,
        "firstAvailable": {"name": None, **{name: fields for name, fields in _ASKED.items() if name != "adminAccess"}},
    },
    "constraints": {"requests": None, "matchAttribute": None, "distinctAttribute": None},
    "config": {"requests": None, "opaque": {"driver": None, "parameters": None}},
}
_NAMES = {"cel": "CEL"}  # where it is not the wire name with a capital
_ZEROS = {"count": 0, **dict.fromkeys(("name", "deviceClassName", "key", "operator", "value", "effect"), "")}


def internal_template(spec: Document) -> Document:
    """The spec of a ResourceClaimTemplate."""
    return {
        **(spec.get("metadata") or {}),
        "Spec": _internal(spec.get("spec") or {}, {"devices": _DEVICES}),
    }


def internal_terms(terms: list[Document]) -> list[Document]:
    """The terms of a node selector."""
    return [_internal(term, _TERM) for term in terms]


def _internal(value: Any, fields: _Fields | None) -> Any:
    if fields is None or value is None:
        return value
    if isinstance(value, list):
        return [_internal(item, fields) for item in value]
    return {_name(name): _internal(value.get(name, _ZEROS.get(name)), inner) for name, inner in fields.items()}


def _name(wire: str) -> str:
    return _NAMES.get(wire) or wire[0].upper() + wire[1:]
