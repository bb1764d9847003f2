"""The status fields of a reservation that the scheduler writes. Pure."""

from __future__ import annotations

from wharfinger.api.registry import Document
from wharfinger.api.views import ObjectMeta
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.conditions import SUCCEEDED, probed_condition, with_condition
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
    """The status of a reservation bound to a node. In phase Waiting it is not ready yet."""
    ready = phase == "Available"
    message = f"reserved on node {node}" if ready else f"waiting for resources on node {node}"
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


def used_up(reservation: Reservation, consumer: ObjectMeta, now: float) -> Document:
    """The status of a reservation that is used once and was left by its consumer."""
    message = f"used by {consumer.namespace}/{consumer.name}"
    ended = probed_condition(READY, False, SUCCEEDED, message, now)
    return {
        "phase": "Succeeded",
        "currentOwners": [{"namespace": consumer.namespace, "name": consumer.name, "uid": consumer.uid}],
        "conditions": with_condition(reservation.status.conditions, ended),
    }


def resized(reservation: Reservation, plan: Resizing, now: float) -> Document:
    note = probed_condition(
        RESIZED, not plan.message, plan.reason, plan.message or "resized to match the template", now
    )
    # A merge patch keeps keys that it omits, so resources that are no longer reserved are set to null.
    allocatable: Document = {name: None for name in reservation.status.allocatable if name not in plan.allocatable}
    return {
        "allocatable": {**allocatable, **plan.allocatable},
        "conditions": with_condition(reservation.status.conditions, note),
    }
