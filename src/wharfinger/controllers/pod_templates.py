"""Pods made from the template of a workload. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.api.registry import Document


def pod_from_template(template: dict[str, Any], owner: Document) -> Document:
    """A new pod that `owner`, an owner reference, controls; the server completes its name."""
    metadata = template.get("metadata") or {}
    made: Document = {"generateName": f"{owner['name']}-", "ownerReferences": [owner]}
    for field in ("labels", "annotations", "finalizers"):
        if metadata.get(field):
            made[field] = _copied(metadata[field])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": made,
        "spec": _copied(template.get("spec") or {}),
    }


def _copied(value: Any) -> Any:
    """A deep copy; templates are JSON, and so it takes a tenth of the time of `copy.deepcopy`."""
    return msgspec.json.decode(msgspec.json.encode(value))
