"""Whether a pod that has no node yet can use a reservation, as far as objects tell without a scheduler. Pure.

Quota relies on it: a pod that will use a reservation is charged instead of it, any other pod beside it.
"""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.api.node_affinity import required_node_affinity
from wharfinger.api.resources import Amounts, requests_nano
from wharfinger.api.taints import NO_SCHEDULE, UNSCHEDULABLE, any_tolerates, has_untolerated_taint
from wharfinger.api.views import Node, Pod
from wharfinger.api.views.nodes import Taint
from wharfinger.systems.reservation.plugin.demands import BadDemand, demands_of
from wharfinger.systems.reservation.rules.reservations import is_guarantee
from wharfinger.systems.reservation.rules.shares import ReservedShare


def can_use(pod: Pod, share: ReservedShare, node: Node | None, free: Callable[[], Amounts]) -> bool:
    """Whether an owner can use the reservation. `node` is the node that it holds, if it is known, and `free`
    returns what is neither used nor reserved there."""
    reservation = share.reservation
    if is_guarantee(reservation):
        return True
    try:
        demands = demands_of(pod.metadata)
    except BadDemand:
        return False
    if reservation.terminating or reservation.phase != "Available" or node is None:
        return False  # one that does not hold a node may never do so, and its owners would run beside it
    if not demands.accepts(reservation, node.metadata.labels):
        return False
    wanted = requests_nano(pod)
    if any(share.reserved.get(name) != wanted.get(name) for name in demands.exact):
        return False
    if not demands.required and wanted and not any(wanted.get(name) for name in share.reserved):
        return False
    return _fits(wanted, share, free) and _admits(node, pod)


def _fits(wanted: Amounts, share: ReservedShare, free: Callable[[], Amounts]) -> bool:
    for name, amount in wanted.items():
        if name not in share.reserved:
            continue
        limit = share.limit(name)
        if limit is not None and share.used[name] + amount > limit:
            return False
        if limit is None and amount > share.unused(name):
            # The rest comes from the node.
            if amount > share.unused(name) + free().get(name, 0):
                return False
    return True


def _admits(node: Node, pod: Pod) -> bool:
    tolerations = pod.spec.tolerations
    if node.spec.unschedulable and not any_tolerates(tolerations, Taint(key=UNSCHEDULABLE, effect=NO_SCHEDULE)):
        return False
    if has_untolerated_taint(tolerations, node.spec.taints):
        return False
    return required_node_affinity(pod.spec).matches(node)
