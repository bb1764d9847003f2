"""The members of a reservation's status that the scheduler writes. Pure."""

from __future__ import annotations

from wharfinger.api.registry import Document
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.conditions import probed_condition, with_condition
from wharfinger.systems.reservation.rules.reservations import wanted_quantities
from wharfinger.systems.reservation.rules.resizing import Resizing

SCHEDULED = "Scheduled"
READY = "Ready"
RESIZED = "Resized"


def unschedulable(reservation: Reservation, reason: str, message: str, now: float) -> Document:
    return {
        "conditions": with_condition(
            reservation.status.conditions, probed_condition(SCHEDULED, False, reason, message, now)
        )
    }


def available(reservation: Reservation, node: str, phase: str, now: float) -> Document:
    """For a reservation that is bound to a node; a Waiting one is not ready yet."""
    ready = phase == "Available"
    message = f"reserved on node {node}" if ready else f"waiting until the resources on node {node} are free"
    return {
        "phase": phase,
        "nodeName": node,
        "allocatable": wanted_quantities(reservation),
        "conditions": [
            probed_condition(SCHEDULED, True, "Scheduled", f"assigned to node {node}", now),
            probed_condition(READY, ready, "Available" if ready else "WaitingForResources", message, now),
        ],
    }


def promoted(reservation: Reservation, now: float) -> Document:
    node = reservation.status.node_name
    ready = probed_condition(READY, True, "Available", f"reserved on node {node}", now)
    return {"phase": "Available", "conditions": with_condition(reservation.status.conditions, ready)}


def resized(reservation: Reservation, plan: Resizing, now: float) -> Document:
    note = probed_condition(RESIZED, not plan.message, plan.reason, plan.message or "as the template says", now)
    # A merge patch keeps what it does not name: a resource that is no longer reserved must be removed by name.
    allocatable: Document = {name: None for name in reservation.status.allocatable if name not in plan.allocatable}
    return {
        "allocatable": {**allocatable, **plan.allocatable},
        "conditions": with_condition(reservation.status.conditions, note),
    }
