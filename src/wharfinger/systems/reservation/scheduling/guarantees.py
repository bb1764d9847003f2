"""Preemption with a guarantee: what victims free is reserved for the preemptor before they are evicted. Pure."""

from __future__ import annotations

from copy import deepcopy
from enum import Enum

from wharfinger.api.registry import Document
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.rules.reservations import PREEMPTOR, guarantee_name

TTL = "10m"


class Room(Enum):
    """What became of the wish to reserve what victims free."""

    RESERVED = "reserved"
    OPEN = "open"  # nothing is reserved: it is off, or did not come about; whoever comes first takes the room
    TAKEN = "taken"  # somebody else's reservation has it, so that evictions would help nobody


_LEFT_OUT = (
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "topologySpreadConstraints",
    "schedulingGates",
    "volumes",
)


def guarantee(pod: Document, node: str, *, aligned: bool) -> Document:
    """A pre-allocation on the node for this one pod. Only what takes room is asked for: whatever else keeps the pod from
    the node while the victims are there is checked when the pod itself goes."""
    metadata = pod["metadata"]
    spec = {name: deepcopy(value) for name, value in pod["spec"].items() if name not in _LEFT_OUT}
    spec["nodeName"] = node
    affinity = spec.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        affinity.pop(side, None)
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        container.pop("ports", None)
    made: Document = {
        "template": {
            "metadata": {"namespace": metadata["namespace"], "labels": dict(metadata.get("labels") or {})},
            "spec": spec,
        },
        "owners": [{"object": {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}}],
        "ttl": TTL,
        "preAllocation": True,
        "allocateOnce": True,
    }
    if aligned:
        made["allocatePolicy"] = "Aligned"
    return {
        "apiVersion": RESERVATIONS.api_version,
        "kind": RESERVATIONS.kind,
        "metadata": {"name": guarantee_name(metadata["uid"]), "labels": {PREEMPTOR: metadata["uid"]}},
        "spec": made,
    }
