"""Whether an in-place resize of a pod would take resources that are reserved on its node. Pure.

The kubelet, which decides about resizes, knows nothing of reservations, so they are refused at admission.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.quota import shown
from wharfinger.api.resources import Amounts, requests_nano
from wharfinger.api.views import Node, Pod
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.reservations import uses
from wharfinger.systems.reservation.rules.shares import free_on, shares_of


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
    shares = shares_of(reservations, running)
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
        over = -free_on(node, running, shares.values()).get(name, 0)
        if over > 0:
            names = ", ".join(sorted(each.reservation.metadata.name for each in holders))
            return (
                f"node {node.metadata.name} has {shown(name, max(0, more - over))} {name} left that is not reserved, but "
                f"the resize needs {shown(name, more)} more (reserved by {names})"
            )
    return ""
