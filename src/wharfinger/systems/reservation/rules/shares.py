"""How much of a reservation is in use, computed from objects alone. Pure; amounts are in nano-units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.api.quantity import BadQuantity, parse_nano
from wharfinger.api.resources import Amounts, requests_nano
from wharfinger.api.views import Node, Pod
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.reservations import (
    INNER,
    RESTRICTED_OPTIONS,
    BadReservation,
    annotated_names,
    annotated_quantities,
    uses,
)


class ReservedShare:
    """What a reservation holds, and what its consumers use of it."""

    def __init__(
        self, reservation: Reservation, consumers: Iterable[Pod], reserved: Mapping[str, int] | None = None
    ) -> None:
        """`reserved` is what it holds, in nano-units, where that is not what the status says."""
        self.reservation = reservation
        self.reserved = _amounts(reservation) if reserved is None else reserved
        self.used = dict.fromkeys(self.reserved, 0)
        for pod in consumers:
            self.add(pod)

    def add(self, pod: Pod) -> None:
        """Count a consumer."""
        for name, amount in requests_nano(pod).items():
            if name in self.used:
                self.used[name] += amount

    def unused(self, name: str) -> int:
        return max(0, self.reserved.get(name, 0) - self.used.get(name, 0))

    def limit(self, name: str) -> int | None:
        """The most that consumers may use of a resource; None if the node may give more."""
        if self.reservation.spec.allocate_policy != "Restricted" or name not in self.reserved:
            return None
        metadata = self.reservation.metadata
        try:
            named = [
                each for each in annotated_names(metadata, RESTRICTED_OPTIONS, "resources") if each in self.reserved
            ]
            inner = annotated_quantities(metadata, INNER).get(name, 0)
        except BadReservation:
            named, inner = [], 0
        return self.reserved[name] - parse_nano(inner) if not named or name in named else None


def _amounts(reservation: Reservation) -> Amounts:
    try:
        return {name: parse_nano(quantity) for name, quantity in reservation.status.allocatable.items()}
    except BadQuantity:
        return {}


def shares_of(reservations: Iterable[Reservation], pods: Iterable[Pod]) -> dict[str, ReservedShare]:
    """The shares of reservations by uid, where `pods` are the possible consumers."""
    consumers: dict[str, list[Pod]] = {}
    for pod in pods:
        if uid := uses(pod):
            consumers.setdefault(uid, []).append(pod)
    return {each.metadata.uid: ReservedShare(each, consumers.get(each.metadata.uid, ())) for each in reservations}


def free_on(node: Node, pods: Iterable[Pod], shares: Iterable[ReservedShare]) -> Amounts:
    """What is neither used by the pods on a node nor reserved there."""
    free = {name: parse_nano(quantity) for name, quantity in node.status.allocatable.items()}
    for pod in pods:
        for name, amount in requests_nano(pod).items() if not pod.terminal else ():
            free[name] = free.get(name, 0) - amount
    for share in shares:
        for name in share.reserved:
            free[name] = free.get(name, 0) - share.unused(name)
    return free
