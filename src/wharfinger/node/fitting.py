"""Whether a pod fits on its node, as a kubelet checks it before running the pod, and for a resize. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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


def allocatable(node: Node) -> Amounts:
    return {
        name: milli_value(quantity) if name == CPU else value(quantity)
        for name, quantity in node.status.allocatable.items()
    }


def shortage(pod: Pod, node: Node, others: Iterable[Pod]) -> Shortage | None:
    """The first resource of the node that the pod would overdraw beside the others. What the node does not have by
    name is not the kubelet's to check, nor what it has as ComputeResources: those are the scheduler's to give."""
    devices = {each.resource_name for each in node.status.compute_resources}
    capacity = {name: amount for name, amount in allocatable(node).items() if name not in devices}
    used: Amounts = {}
    count = 0
    for other in others:
        count += 1
        for name, amount in requests(other).items():
            used[name] = used.get(name, 0) + amount
    most = capacity.get("pods", DEFAULT_PODS)
    if count + 1 > most:
        return Shortage("pods", 1, count, most)
    for name, amount in sorted(requests(pod).items()):
        if amount and name in capacity and used.get(name, 0) + amount > capacity[name]:
            return Shortage(name, amount, used.get(name, 0), capacity[name])
    return None
