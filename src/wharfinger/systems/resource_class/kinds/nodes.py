"""What this system adds to Node: defaulting of names and validation in `status.computeResources`."""

from __future__ import annotations

from wharfinger.api.fields import FieldError
from wharfinger.api.registry import Document, KindExtension
from wharfinger.systems.resource_class.kinds.validation import compute_resources_faults
from wharfinger.systems.resource_class.rules.compute_resources import name_compute_resources


def _default(node: Document) -> None:
    status = node.get("status")
    if isinstance(status, dict):
        name_compute_resources(status.get("computeResources"))


def _validate(node: Document, old: Document | None) -> list[FieldError]:
    resources = (node.get("status") or {}).get("computeResources") or ()
    return list(compute_resources_faults(resources, "status.computeResources"))


NODE_EXTENSION = KindExtension(_default, _validate)
