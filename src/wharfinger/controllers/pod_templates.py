"""Pods made from the template of a workload. Pure."""

from __future__ import annotations

import copy
from typing import Any

from wharfinger.api.registry import Document


def pod_from_template(template: dict[str, Any], owner: Document) -> Document:
    """A new pod that `owner`, an owner reference, controls; the server completes its name."""
    metadata = template.get("metadata") or {}
    made: Document = {"generateName": f"{owner['name']}-", "ownerReferences": [owner]}
    for field in ("labels", "annotations", "finalizers"):
        if metadata.get(field):
            made[field] = copy.deepcopy(metadata[field])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": made,
        "spec": copy.deepcopy(template.get("spec") or {}),
    }
