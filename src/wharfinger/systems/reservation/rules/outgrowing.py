"""Whether an in-place resize of a pod would take resources that are reserved on its node. Pure.

The kubelet, which decides about resizes, knows nothing of reservations, so they are refused at admission.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.quantity import BadQuantity, parse_nano
from wharfinger.api.quota import shown
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
    """A reservation that holds the node, and what its consumers use of it."""

    def __init__(self, reservation: Reservation, consumers: Iterable[Pod]) -> None:
        self.reservation = reservation
        self.reserved = _amounts(reservation)
        self.used = dict.fromkeys(self.reserved, 0)
        for pod in consumers:
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


def growth_of(old: Pod, new: Pod) -> Amounts:
    """How much more of each resource a resized pod requests."""
    before, after = requests_nano(old), requests_nano(new)
    return {name: amount - before.get(name, 0) for name, amount in after.items() if amount > before.get(name, 0)}


def resize_refusal(
    node: Node, pods: Iterable[Pod], reservations: Iterable[Reservation], new: Pod, growth: Amounts
) -> str:
    """Why the resized pod may not have its new size; empty if nothing reserved is concerned. `pods` are those on the
    node, with or without the pod itself, and `reservations` those that hold it."""
    key = new.metadata.key
    running = [pod for pod in pods if pod.metadata.key != key and not pod.terminal] + [new]
    shares = {
        each.metadata.uid: ReservedShare(each, [pod for pod in running if uses(pod) == each.metadata.uid])
        for each in reservations
    }
    own = shares.get(uses(new))
    for name, more in growth.items():
        limit = None if own is None else own.limit(name)
        if own is not None and limit is not None and own.used[name] > limit:
            left = max(0, limit - own.used[name] + more)
            return (
                f"reservation {own.reservation.metadata.name}, which the pod uses, has {shown(name, left)} {name} left, "
                f"but the resize needs {shown(name, more)} more"
            )
        holders = [share for share in shares.values() if share.unused(name)]
        if not holders:
            continue
        taken = sum(requests_nano(pod).get(name, 0) for pod in running) + sum(each.unused(name) for each in holders)
        over = taken - parse_nano(node.status.allocatable.get(name, 0))
        if over > 0:
            names = ", ".join(sorted(each.reservation.metadata.name for each in holders))
            return (
                f"node {node.metadata.name} has {shown(name, max(0, more - over))} {name} left that is not reserved, but "
                f"the resize needs {shown(name, more)} more (reserved by {names})"
            )
    return ""
