"""The scale subresource: reads and sets an object's replicas as an autoscaling/v1 Scale."""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.api.errors import BadRequest, NotFound, invalid_object
from wharfinger.api.fields import invalid
from wharfinger.api.registry import Document, Kind
from wharfinger.api.selectors import LabelSelector


def scale_of(kind: Kind, document: Document) -> Document:
    """The Scale of an object."""
    if kind.scale is None:
        raise NotFound("the server could not find the requested resource")
    metadata = document["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Document = {"replicas": _number(_get(document, kind.scale.status_path))}
    if selector := _selector(kind, document):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: metadata[field] for field in shown if field in metadata},
        "spec": {"replicas": _number(_get(document, kind.scale.spec_path))},
        "status": status,
    }


def scaled(kind: Kind, document: Document, scale: Document) -> Document:
    """The object with the replicas of a Scale, and with the Scale's resource version if it has one."""
    if kind.scale is None:
        raise NotFound("the server could not find the requested resource")
    metadata = scale.get("metadata") or {}
    name = document["metadata"]["name"]
    if metadata.get("name", name) != name:
        raise BadRequest(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise BadRequest(f"Scale.spec.replicas must be an integer, not {replicas!r}")
    if replicas < 0:
        fault = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid_object("autoscaling", "Scale", name, [fault])
    parts = kind.scale.spec_path.split(".")
    target = document
    for part in parts[:-1]:
        target = target.setdefault(part, {})
    target[parts[-1]] = replicas
    document["metadata"]["resourceVersion"] = metadata.get("resourceVersion") or ""
    if metadata.get("uid"):
        document["metadata"]["uid"] = metadata["uid"]
    return document


def _get(document: Document, path: str) -> Any:
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _selector(kind: Kind, document: Document) -> str:
    assert kind.scale is not None
    if kind.scale.selector_path:
        return str(_get(document, kind.scale.selector_path) or "")
    selector = (document.get("spec") or {}).get("selector")
    if not isinstance(selector, dict):
        return ""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        # The selector of a replication controller is a plain map.
        selector = {"matchLabels": selector}
    return selector_text(msgspec.convert(selector, LabelSelector))


def selector_text(selector: LabelSelector) -> str:
    """A label selector in its text form, requirements ordered by key."""
    parts = [(key, f"{key}={value}") for key, value in selector.match_labels.items()]
    for item in selector.match_expressions:
        values = ",".join(sorted(item.values))
        text = {
            "In": f"{item.key} in ({values})",
            "NotIn": f"{item.key} notin ({values})",
            "Exists": item.key,
            "DoesNotExist": f"!{item.key}",
        }[item.operator]
        parts.append((item.key, text))
    return ",".join(text for _, text in sorted(parts))
