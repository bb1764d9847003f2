"""How many chunks of CapacityBuffers the quotas of a namespace allow, as the buffer controller of cluster-autoscaler
counts: what pods may still request, buffer by buffer. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wharfinger.api import quota as rules
from wharfinger.api.resources import Amounts
from wharfinger.api.views import Pod, ResourceQuota

_NOT_COUNTED = ("pods", "count/pods")  # a chunk is room, not an object


@dataclass(slots=True)
class QuotaRoom:
    """A quota, and what it leaves to buffers that have not been served yet."""

    quota: ResourceQuota
    left: Amounts  # by the names that the quota limits


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many of the chunks that a buffer wants it may have."""

    wanted: int
    allowed: int
    quotas: tuple[str, ...] = ()  # that allow fewer than are wanted

    @property
    def limited(self) -> bool:
        return self.allowed < self.wanted

    @property
    def message(self) -> str:
        if not self.limited:
            return ""
        names = ", ".join(self.quotas)
        return f"Buffer replicas limited from {self.wanted} to {self.allowed} due to quotas: {names}"


def room_of(quota: ResourceQuota, used: Amounts) -> QuotaRoom:
    return QuotaRoom(quota, {name: amount - used.get(name, 0) for name, amount in rules.hard(quota).items()})


def allot(rooms: Iterable[QuotaRoom], pod: Pod, wanted: int) -> Allowance:
    """Takes from the quotas what the chunks of one buffer request; `pod` is one chunk. Limits of containers do not
    count."""
    usage = rules.pod_usage(pod, 0.0)
    needs = {
        name: amount
        for name, amount in usage.items()
        if amount > 0 and name not in _NOT_COUNTED and not name.startswith("limits.")
    }
    # A chunk has no deadline, whatever its template says.
    traits = rules.pod_traits(pod)._replace(terminating=False)
    concerned = sorted(
        (room for room in rooms if rules.in_scopes(room.quota, traits)), key=lambda room: room.quota.metadata.name
    )
    most = {room.quota.metadata.name: _most(room, needs, wanted) for room in concerned}
    allowed = min([wanted, *most.values()])
    for room in concerned:
        rules.add(room.left, {name: needs[name] * allowed for name in room.left if name in needs}, -1)
    return Allowance(wanted, allowed, tuple(name for name, number in most.items() if number < wanted))


def _most(room: QuotaRoom, needs: Amounts, wanted: int) -> int:
    """How many of the wanted chunks the quota allows."""
    return min([wanted, *(max(left // needs[name], 0) for name, left in room.left.items() if name in needs)])
