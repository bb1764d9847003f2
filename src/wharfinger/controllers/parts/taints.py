"""Taints and tolerations as node controllers need them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from wharfinger.api.selectors import parse_int64
from wharfinger.api.times import parse_time
from wharfinger.api.views import Node
from wharfinger.api.views.nodes import Taint
from wharfinger.api.views.pods import Toleration

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
MANAGED_NO_SCHEDULE = {NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURES.values()}
MANAGED_NO_EXECUTE = {NOT_READY, UNREACHABLE}


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator or "Equal":
        case "Equal":
            return toleration.value == taint.value and bool(toleration.key)
        case "Exists":
            return True
        case "Lt" | "Gt":
            ours, theirs = parse_int64(toleration.value), parse_int64(taint.value)
            if ours is None or theirs is None:
                return False
            return theirs < ours if toleration.operator == "Lt" else theirs > ours
    return False


def tolerates_all(tolerations: Sequence[Toleration], taints: Iterable[Taint], effects: Iterable[str]) -> bool:
    """Whether every taint of these effects is tolerated."""
    wanted = set(effects)
    return all(
        any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints if taint.effect in wanted
    )


def evicted_at(
    tolerations: Sequence[Toleration],
    taints: Iterable[Taint],
    now: float,
    seen: Mapping[tuple[str, str], float] = MappingProxyType({}),
) -> float | None:
    """When a pod has to leave a node with these taints: None is never.

    A toleration with a limit counts from when the taint was added, so a controller that starts again keeps the moment.
    Where nobody wrote that time, it counts from when the taint was `seen` first, by key and value.
    """
    moments = []
    for taint in taints:
        if taint.effect != "NoExecute":
            continue
        having = [toleration for toleration in tolerations if tolerates(toleration, taint)]
        if not having:
            return now
        limits = [each.toleration_seconds for each in having if each.toleration_seconds is not None]
        if limits:
            first = seen.get((taint.key, taint.value), now)
            added = parse_time(taint.time_added) if taint.time_added else first
            moments.append(added + max(0, min(limits)))
    return min(moments, default=None)


def wanted_taints(node: Node) -> set[tuple[str, str]]:
    """The key and effect of all taints that the node's conditions call for."""
    states = {condition.type: condition.status for condition in node.status.conditions}
    wanted = {(key, "NoSchedule") for type, key in _PRESSURES.items() if states.get(type) == "True"}
    if node.spec.unschedulable:
        wanted.add((UNSCHEDULABLE, "NoSchedule"))
    ready = states.get("Ready")
    if ready == "Unknown":
        wanted |= {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
    elif ready == "False":
        wanted |= {(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")}
    elif ready is None and any(taint.key == NOT_READY for taint in node.spec.taints):
        wanted.add((NOT_READY, "NoSchedule"))  # a new node that has said nothing yet stays as the server made it
    return wanted


def is_managed(taint: Taint) -> bool:
    """Whether the node lifecycle alone decides about the taint."""
    if taint.effect == "NoSchedule":
        return taint.key in MANAGED_NO_SCHEDULE
    return taint.effect == "NoExecute" and taint.key in MANAGED_NO_EXECUTE
