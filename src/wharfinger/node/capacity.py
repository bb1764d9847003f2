"""What a node can hold: allocatable from capacity, and whether a pod fits at admission and for in-place resizes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

import msgspec

from wharfinger.api.quantity import family, format_nano, milli_value, parse_nano, value
from wharfinger.api.resources import CPU, Amounts
from wharfinger.api.validation.resources import is_extended
from wharfinger.api.views import Node
from wharfinger.api.views.nodes import NodeStatus

DEFAULT_PODS = 110


class InsufficientResource(msgspec.Struct, frozen=True):
    """A resource of which the node does not have enough; `str` is the kubelet's message."""

    resource: str
    requested: int
    used: int
    capacity: int

    def __str__(self) -> str:
        return (
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}"
        )


class NodeUsage(msgspec.Struct):
    """The sum of the requests of all pods that a node has admitted."""

    pods: dict[str, Amounts] = msgspec.field(default_factory=dict)  # requests by pod UID
    used: Amounts = msgspec.field(default_factory=dict)

    def add(self, uid: str, requested: Amounts) -> None:
        before = self.pods.get(uid)
        if before == requested:
            return
        self.remove(uid)
        self.pods[uid] = requested
        for name, amount in requested.items():
            self.used[name] = self.used.get(name, 0) + amount

    def remove(self, uid: str) -> None:
        for name, amount in self.pods.pop(uid, {}).items():
            self.used[name] -= amount

    def insufficient(
        self, uid: str, requested: Amounts, node: Node, allocated: Collection[str] = ()
    ) -> InsufficientResource | None:
        """The first resource of which a pod would request too much next to the other pods. The kubelet does not check resources that
        the node does not list, nor those that it has as ComputeResources, which the scheduler allocates, nor other
        `allocated` ones."""
        capacity = allocatable(node)
        if allocated or node.status.compute_resources:
            devices = {*allocated, *(each.resource_name for each in node.status.compute_resources)}
            capacity = {name: amount for name, amount in capacity.items() if name not in devices}
        own: Mapping[str, int] = self.pods.get(uid, {})
        others = len(self.pods) - (uid in self.pods)
        most = capacity.get("pods", DEFAULT_PODS)
        if others + 1 > most:
            return InsufficientResource("pods", 1, others, most)
        for name, amount in sorted(requested.items()):
            used = self.used.get(name, 0) - own.get(name, 0)
            if amount and name in capacity and used + amount > capacity[name]:
                return InsufficientResource(name, amount, used, capacity[name])
        return None


def allocatable(node: Node) -> Mapping[str, int]:
    return _amounts(tuple(node.status.allocatable.items()))


@lru_cache(1024)
def _amounts(quantities: tuple[tuple[str, str | int | float], ...]) -> Mapping[str, int]:
    return {name: milli_value(quantity) if name == CPU else value(quantity) for name, quantity in quantities}


def changed_allocatable(old: NodeStatus | None, new: NodeStatus) -> dict[str, str | None]:
    """What a kubelet changes in `allocatable` when the capacity of its node has changed; None removes a resource.

    As in upstream's nodestatus.MachineInfo: capacity less what is reserved, and no extended resource that capacity does not
    list. What a simulated node reserves is the difference between its two lists before the change. Without `old`, only
    resources that were never allocatable are added.
    """
    before = new if old is None else old
    changes: dict[str, str | None] = {}
    for name, quantity in new.capacity.items():
        given = new.allocatable.get(name)
        if given is not None and (before.capacity.get(name) == quantity or before.allocatable.get(name) != given):
            continue  # not changed, or changed together with what is allocatable
        reserved = 0
        if name in before.capacity and name in before.allocatable:
            reserved = max(0, parse_nano(before.capacity[name]) - parse_nano(before.allocatable[name]))
        wanted = max(0, parse_nano(quantity) - reserved)
        if given is None or parse_nano(given) != wanted:
            changes[name] = format_nano(wanted, family(quantity))
    for name in before.capacity:
        if name not in new.capacity and name in new.allocatable and is_extended(name):
            changes[name] = None
    return changes
