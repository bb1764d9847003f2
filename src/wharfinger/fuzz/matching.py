"""Label selectors and tolerations in plain code, for the checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wharfinger.api.registry import Document


def selects(selector: Document | None, labels: Mapping[str, Any]) -> bool:
    """Whether a label selector matches; one that is absent or empty matches everything."""
    selector = selector or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _holds(requirement: Document, labels: Mapping[str, Any]) -> bool:
    key, operator, values = requirement["key"], requirement["operator"], requirement.get("values") or ()
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    return key not in labels


def owns(owner: Document, pod: Document) -> bool:
    """Whether an entry of a reservation's owners matches a pod: all that it names must agree."""
    metadata = pod["metadata"]
    if (wanted := owner.get("object")) is not None:
        for key in ("uid", "name", "namespace"):
            if wanted.get(key) and wanted[key] != metadata.get(key):
                return False
    if (wanted := owner.get("controller")) is not None:
        if wanted.get("namespace") and wanted["namespace"] != metadata.get("namespace"):
            return False
        references = metadata.get("ownerReferences") or ()
        keys = [key for key in ("uid", "name", "kind", "apiVersion") if wanted.get(key)]
        if not any(all(each.get(key) == wanted[key] for key in keys) for each in references):
            return False
    wanted = owner.get("labelSelector")
    return wanted is None or selects(wanted, metadata.get("labels") or {})
