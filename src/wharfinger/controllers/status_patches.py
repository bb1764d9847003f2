"""Writing the status of an object, if it changed, as a merge patch to the status subresource."""

from __future__ import annotations

from collections.abc import Mapping
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
"""Counts that Kubernetes writes even if they are 0, for all kinds and by kind. It omits others (`omitempty`)."""


def _differs(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether any member of `new` differs in `old`. Zero and empty values equal absent ones."""
    return any(
        old.get(key) != value and not (key not in old and value in (0, None, "", [], {})) for key, value in new.items()
    )


async def patch_status(
    client: Client, resource: Resource, document: Document, status: Mapping[str, Any], *, locked: bool = False
) -> Document | None:
    """Writes `status` if it differs from that of the document, and returns the stored object. With `locked` the write fails
    if the document is stale.

    All members are written even if only one differs: the document may be stale, and counts of different times must not be
    mixed. None removes a member, as does an empty value that Kubernetes omits.
    """
    if not _differs(document.get("status") or {}, status):
        return None
    metadata = document["metadata"]
    identity = {"uid": metadata["uid"]}
    if locked:
        identity["resourceVersion"] = metadata["resourceVersion"]
    zeros = _SHOWN_ZEROS | _SHOWN_OF_KIND.get(resource.kind, set())
    shown = {key: value if value or key in zeros else None for key, value in status.items()}
    patch = {"metadata": identity, "status": shown}
    return await client.patch(resource, metadata["name"], patch, metadata.get("namespace") or "", subresource="status")
