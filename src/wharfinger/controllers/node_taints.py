"""The taints that a node should have according to its conditions. Pure."""

from __future__ import annotations

from wharfinger.api.taints import (
    DISK_PRESSURE,
    MEMORY_PRESSURE,
    NETWORK_UNAVAILABLE,
    NO_EXECUTE,
    NO_SCHEDULE,
    NOT_READY,
    PID_PRESSURE,
    UNREACHABLE,
    UNSCHEDULABLE,
)
from wharfinger.api.views.nodes import Node, Taint

_TAINT_OF_CONDITION = {
    "MemoryPressure": MEMORY_PRESSURE,
    "DiskPressure": DISK_PRESSURE,
    "PIDPressure": PID_PRESSURE,
    "NetworkUnavailable": NETWORK_UNAVAILABLE,
}
_MANAGED_NO_SCHEDULE = {NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_TAINT_OF_CONDITION.values()}
_MANAGED_NO_EXECUTE = {NOT_READY, UNREACHABLE}


def wanted_taints(node: Node) -> set[tuple[str, str]]:
    """Key and effect of every taint that the node's conditions call for."""
    states = {condition.type: condition.status for condition in node.status.conditions}
    wanted = {(key, NO_SCHEDULE) for type, key in _TAINT_OF_CONDITION.items() if states.get(type) == "True"}
    if node.spec.unschedulable:
        wanted.add((UNSCHEDULABLE, NO_SCHEDULE))
    ready = states.get("Ready")
    if ready == "Unknown":
        wanted |= {(UNREACHABLE, NO_SCHEDULE), (UNREACHABLE, NO_EXECUTE)}
    elif ready == "False":
        wanted |= {(NOT_READY, NO_SCHEDULE), (NOT_READY, NO_EXECUTE)}
    elif ready is None and any(taint.key == NOT_READY for taint in node.spec.taints):
        wanted.add((NOT_READY, NO_SCHEDULE))  # admission taints a new node, whose kubelet has not posted a status yet
    return wanted


def is_managed(taint: Taint) -> bool:
    """Whether only the node lifecycle controller adds and removes the taint."""
    if taint.effect == NO_SCHEDULE:
        return taint.key in _MANAGED_NO_SCHEDULE
    return taint.effect == NO_EXECUTE and taint.key in _MANAGED_NO_EXECUTE
