"""Computes the status of a reservation from the cluster state: its consumers, its end, and when it may be deleted.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from wharfinger.api.registry import Document
from wharfinger.api.resources import requests_nano
from wharfinger.api.times import BadTime, parse_time
from wharfinger.api.views import Pod
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.conditions import EXPIRED, SUCCEEDED
from wharfinger.systems.reservation.rules.reservations import written

PODS = "pods"


class ReservationUse(msgspec.Struct, frozen=True):
    """The consumers of a reservation and what they use of it, in the form of its status."""

    owners: list[dict[str, str]]
    allocated: Mapping[str, str | int | float]

    @classmethod
    def stated(cls, reservation: Reservation) -> ReservationUse:
        """The use recorded in the status."""
        owners = [
            {"namespace": owner.namespace, "name": owner.name, "uid": owner.uid}
            for owner in reservation.status.current_owners
        ]
        return cls(owners, reservation.status.allocated)

    def is_stated(self, reservation: Reservation) -> bool:
        return self == self.stated(reservation)


def use_of(reservation: Reservation, consumers: Iterable[Pod]) -> ReservationUse:
    status = reservation.status
    pods = sorted(
        (pod for pod in consumers if pod.spec.node_name == status.node_name), key=lambda pod: pod.metadata.uid
    )
    total: dict[str, int] = {}
    for pod in pods:
        for name, amount in requests_nano(pod).items():
            if name in status.allocatable:
                total[name] = total.get(name, 0) + amount
    if PODS in status.allocatable and pods:
        total[PODS] = len(pods) * 1_000_000_000
    owners = [{"namespace": pod.metadata.namespace, "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in pods]
    return ReservationUse(owners, written(total, status.allocatable))


def used(reservation: Reservation, use: ReservationUse, conditions: Sequence[Document]) -> Document:
    """The status fields to write when the use changed. With allocateOnce, the first use ends the reservation."""
    gone: Document = {name: None for name in reservation.status.allocated if name not in use.allocated}
    status: Document = {"currentOwners": use.owners, "allocated": {**gone, **use.allocated}}
    if reservation.once:
        status |= {"phase": "Succeeded", "conditions": list(conditions)}
    return status


def deletable_at(reservation: Reservation, keep_seconds: float, *, node_missing: bool) -> float | None:
    """When garbage collection may delete it: `keep_seconds` after it succeeded or expired, or immediately if its node
    is gone. None if it must be kept."""
    ready = reservation.status.condition("Ready")
    if not reservation.ended or ready is None or ready.status != "False" or ready.reason not in (SUCCEEDED, EXPIRED):
        return None
    if node_missing:
        return 0.0
    return parse_time(ready.last_transition_time) + keep_seconds if ready.last_transition_time else None


def stops_at(pod: Pod, now: float) -> float:
    """When a terminating pod should have stopped, which is not before now."""
    try:
        return max(parse_time(pod.metadata.deletion_timestamp or ""), now)
    except BadTime:
        return now
