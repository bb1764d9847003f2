"""Writing status, only when it changed, as a merge patch on the status subresource; and lists of conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wharfinger.api.registry import Document, Resource
from wharfinger.client.interface import Client

_SHOWN_ZEROS = {
    "terminatingReplicas",
    "collisionCount",
    "currentNumberScheduled",
    "desiredNumberScheduled",
    "numberMisscheduled",
    "numberReady",
    "disruptionsAllowed",
    "currentHealthy",
    "desiredHealthy",
    "expectedPods",
    "ready",
    "terminating",
    "failedIndexes",
    "uncountedTerminatedPods",
}
_SHOWN_OF_KIND = {
    "ReplicaSet": {"replicas"},
    "ReplicationController": {"replicas"},
    "StatefulSet": {"replicas", "availableReplicas"},
}
"""Counts that Kubernetes writes even when they are nothing, of every kind and of some; others it leaves out."""


def differs(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether any member of `new` is not so in `old`; a count of 0, or nothing, equals absence."""
    return any(
        old.get(key) != value and not (key not in old and value in (0, None, "", [], {})) for key, value in new.items()
    )


async def patch_status(
    client: Client, resource: Resource, document: Document, status: Mapping[str, Any], *, locked: bool = False
) -> Document | None:
    """Writes `status` if it differs from the document's, and returns what was stored. `locked` refuses a stale document.

    All members are written together even where only one differs: the document may be stale, and numbers of two moments
    must not mix. None removes a member, as does nothing where Kubernetes would not show it.
    """
    if not differs(document.get("status") or {}, status):
        return None
    metadata = document["metadata"]
    identity = {"uid": metadata["uid"]}
    if locked:
        identity["resourceVersion"] = metadata["resourceVersion"]
    zeros = _SHOWN_ZEROS | _SHOWN_OF_KIND.get(resource.kind, set())
    shown = {key: value if value or key in zeros else None for key, value in status.items()}
    patch = {"metadata": identity, "status": shown}
    return await client.patch(resource, metadata["name"], patch, metadata.get("namespace") or "", subresource="status")


def condition_of(conditions: Sequence[Document], kind: str) -> Document | None:
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def with_condition(conditions: Sequence[Document], condition: Document) -> list[Document]:
    """The list with the condition in place of the one of its type, at the end, as upstream's helpers append it.

    One of the same status and reason is kept as it is; one of the same status keeps its transition time.
    """
    current = condition_of(conditions, condition["type"])
    if current is not None and current["status"] == condition["status"]:
        if current.get("reason") == condition.get("reason"):
            return list(conditions)
        if "lastTransitionTime" in current:
            condition = {**condition, "lastTransitionTime": current["lastTransitionTime"]}
    return [*without_condition(conditions, condition["type"]), condition]


def without_condition(conditions: Sequence[Document], kind: str) -> list[Document]:
    return [condition for condition in conditions if condition.get("type") != kind]
