"""Whether a pod fits on its node, which the kubelet checks at admission and for in-place resizes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wharfinger.api.quantity import milli_value, value
from wharfinger.api.resources import CPU, Amounts, requests
from wharfinger.api.views import Node, Pod

DEFAULT_PODS = 110


@dataclass(frozen=True, slots=True)
class InsufficientResource:
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


@dataclass(slots=True)
class NodeUsage:
    """The sum of the requests of all pods that a node has admitted."""

    pods: dict[str, Amounts] = field(default_factory=dict)  # requests by pod UID
    used: Amounts = field(default_factory=dict)

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

    def insufficient(self, pod: Pod, node: Node) -> InsufficientResource | None:
        """The first resource that the pod would exceed next to the other pods. The kubelet does not check resources that
        the node does not list, nor those that it has as ComputeResources, which the scheduler allocates."""
        devices = {each.resource_name for each in node.status.compute_resources}
        capacity = {name: amount for name, amount in allocatable(node).items() if name not in devices}
        own: Mapping[str, int] = self.pods.get(pod.metadata.uid, {})
        others = len(self.pods) - (pod.metadata.uid in self.pods)
        most = capacity.get("pods", DEFAULT_PODS)
        if others + 1 > most:
            return InsufficientResource("pods", 1, others, most)
        for name, amount in sorted(requests(pod).items()):
            used = self.used.get(name, 0) - own.get(name, 0)
            if amount and name in capacity and used + amount > capacity[name]:
                return InsufficientResource(name, amount, used, capacity[name])
        return None


def allocatable(node: Node) -> Amounts:
    return {
        name: milli_value(quantity) if name == CPU else value(quantity)
        for name, quantity in node.status.allocatable.items()
    }
