"""Whether a pod fits on its node, as a kubelet checks it before running the pod, and for a resize. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wharfinger.api.quantity import milli_value, value
from wharfinger.api.resources import CPU, Amounts, requests
from wharfinger.api.views import Node, Pod

DEFAULT_PODS = 110


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource that is not enough; `str` is the kubelet's message."""

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
class Room:
    """What the pods that a node has taken on ask of it, added up as they come and go."""

    pods: dict[str, Amounts] = field(default_factory=dict)  # by uid
    used: Amounts = field(default_factory=dict)

    def put(self, uid: str, asked: Amounts) -> None:
        before = self.pods.get(uid)
        if before == asked:
            return
        self.drop(uid)
        self.pods[uid] = asked
        for name, amount in asked.items():
            self.used[name] = self.used.get(name, 0) + amount

    def drop(self, uid: str) -> None:
        for name, amount in self.pods.pop(uid, {}).items():
            self.used[name] -= amount

    def shortage(self, pod: Pod, node: Node) -> Shortage | None:
        """The first resource of the node that the pod would overdraw beside the others. What the node does not have by
        name is not the kubelet's to check, nor what it has as ComputeResources: those are the scheduler's to give."""
        devices = {each.resource_name for each in node.status.compute_resources}
        capacity = {name: amount for name, amount in allocatable(node).items() if name not in devices}
        own: Mapping[str, int] = self.pods.get(pod.metadata.uid, {})
        others = len(self.pods) - (pod.metadata.uid in self.pods)
        most = capacity.get("pods", DEFAULT_PODS)
        if others + 1 > most:
            return Shortage("pods", 1, others, most)
        for name, amount in sorted(requests(pod).items()):
            used = self.used.get(name, 0) - own.get(name, 0)
            if amount and name in capacity and used + amount > capacity[name]:
                return Shortage(name, amount, used, capacity[name])
        return None


def allocatable(node: Node) -> Amounts:
    return {
        name: milli_value(quantity) if name == CPU else value(quantity)
        for name, quantity in node.status.allocatable.items()
    }
