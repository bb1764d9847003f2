"""What controllers ask of pods: active, available, and how one is made from a template. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from wharfinger.api.registry import Document, Resource
from wharfinger.api.times import parse_time
from wharfinger.api.views import ObjectMeta, Pod
from wharfinger.api.views.meta import OwnerReference


def active(pod: Pod) -> bool:
    """Neither finished nor on its way out."""
    return not pod.terminal and not pod.terminating


def ready_since(pod: Pod) -> float | None:
    """When the pod last became ready; None while it is not, or when nobody wrote the time."""
    condition = pod.status.condition("Ready")
    if condition is None or condition.status != "True" or not condition.last_transition_time:
        return None
    return parse_time(condition.last_transition_time)


def available(pod: Pod, min_ready_seconds: int, now: float) -> bool:
    """Ready for at least `min_ready_seconds`."""
    if not pod.ready:
        return False
    since = ready_since(pod)
    return min_ready_seconds == 0 or (since is not None and since + min_ready_seconds <= now)


def next_availability(pods: Iterable[Pod], min_ready_seconds: int, now: float) -> float | None:
    """Seconds until the first of the ready pods becomes available that is not yet."""
    waits = [
        since + min_ready_seconds - now
        for pod in pods
        if (since := ready_since(pod)) is not None and since + min_ready_seconds > now
    ]
    return min(waits, default=None)


def created_at(metadata: ObjectMeta) -> float:
    """Seconds since the epoch; 0 where the server has not said."""
    return parse_time(metadata.creation_timestamp) if metadata.creation_timestamp else 0.0


def controller_reference(resource: Resource, metadata: ObjectMeta) -> Document:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def reference_document(owner: OwnerReference) -> Document:
    """An owner reference as it is written."""
    document: Document = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
    if owner.controller:
        document["controller"] = True
    if owner.block_owner_deletion:
        document["blockOwnerDeletion"] = True
    return document


def pod_from_template(template: dict[str, Any], owner: Document, *, prefix: str) -> Document:
    """A new pod of a template, owned by its controller and named by the server from `prefix`."""
    metadata = template.get("metadata") or {}
    made: Document = {"generateName": prefix, "ownerReferences": [owner]}
    for field in ("labels", "annotations", "finalizers"):
        if metadata.get(field):
            made[field] = copy.deepcopy(metadata[field])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": made,
        "spec": copy.deepcopy(template.get("spec") or {}),
    }


def generated_prefix(owner_name: str) -> str:
    """Upstream lets the server append to `NAME-` where that is a valid prefix, which names of controllers are."""
    return f"{owner_name}-"
