"""What a replay is measured by: who waited how long, how full and how fragmented the nodes were, what they cost.

Averages over time are exact: they are integrated from change to change. Curves are samples at regular moments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wharfinger.api.keys import ObjectKey
from wharfinger.api.resources import Amounts, in_units, nano, requests
from wharfinger.api.views import Node, Pod

MOST_SHAPES = 64  # most frequent pod shapes that fragmentation is computed for
HOUR = 3600.0


@dataclass(slots=True)
class MeasuredNode:
    allocatable: Amounts
    price: float
    used: Amounts = field(default_factory=dict)
    pods: int = 0


@dataclass(slots=True)
class PodLife:
    """What happened to one pod of the trace in a replay. Times are seconds since the epoch."""

    arrival: float
    bound: float | None = None  # the first time
    node: str = ""  # the first one
    gone: float | None = None
    preemptions: int = 0
    resubmissions: int = 0
    refused: str = ""  # why the API server did not admit it
    message: str = ""  # why it waits at the end


class ReplayMeter:
    """Kept current by `wharfinger.replay.playing`, which tells it of every change."""

    def __init__(self, start: float, shapes: Sequence[Amounts], weights: Sequence[int]) -> None:
        self._start = start
        self._now = start
        self._shapes = shapes
        self._weights = np.array(weights, dtype=np.float64)
        self.nodes: dict[str, MeasuredNode] = {}
        self._placed: dict[ObjectKey, tuple[str, Amounts]] = {}
        self.capacity: Counter[str] = Counter()
        self.used: Counter[str] = Counter()
        self.waiting = 0
        self._in_use = 0.0  # prices of the nodes that have pods
        self._prices = 0.0
        self._integrals: defaultdict[str, float] = defaultdict(float)
        self.samples: list[dict[str, float]] = []

    # -- changes

    def advance(self, now: float) -> None:
        """Time passes with everything as it is."""
        span = now - self._now
        if span <= 0:
            return
        for resource, amount in self.capacity.items():
            self._integrals[f"capacity {resource}"] += amount * span
            self._integrals[f"used {resource}"] += self.used[resource] * span
        self._integrals["waiting"] += self.waiting * span
        self._integrals["cost"] += self._prices * span / HOUR
        self._integrals["cost in use"] += self._in_use * span / HOUR
        self._integrals["nodes"] += len(self.nodes) * span / HOUR
        self._now = now

    def set_node(self, node: Node, price: float) -> None:
        name = node.metadata.name
        known = self.nodes.pop(name, None)
        made = MeasuredNode(in_units(nano(node.status.allocatable)), price)
        if known is not None:
            made.used, made.pods = known.used, known.pods
            self._count(known, -1)
        self.nodes[name] = made
        self._count(made, 1)

    def remove_node(self, name: str) -> None:
        known = self.nodes.pop(name, None)
        if known is not None:
            self._count(known, -1)

    def _count(self, node: MeasuredNode, sign: int) -> None:
        for resource, amount in node.allocatable.items():
            self.capacity[resource] += sign * amount
        for resource, amount in node.used.items():
            self.used[resource] += sign * amount
        self._prices += sign * node.price
        self._in_use += sign * node.price * bool(node.pods)

    def place(self, key: ObjectKey, pod: Pod) -> None:
        if key in self._placed:
            return
        amounts = {**requests(pod), "pods": 1}
        self._placed[key] = (pod.spec.node_name, amounts)
        self._add(pod.spec.node_name, amounts, 1)

    def remove(self, key: ObjectKey) -> None:
        placed = self._placed.pop(key, None)
        if placed is not None:
            self._add(*placed, -1)

    def _add(self, name: str, amounts: Amounts, sign: int) -> None:
        node = self.nodes.get(name)
        if node is None:
            return
        before = bool(node.pods)
        node.pods += sign
        for resource, amount in amounts.items():
            node.used[resource] = node.used.get(resource, 0) + sign * amount
            self.used[resource] += sign * amount
        self._in_use += node.price * (bool(node.pods) - before)

    # -- results

    def sample(self, now: float, more: Mapping[str, float]) -> None:
        """Notes a point of every curve."""
        point: dict[str, float] = {"seconds": now - self._start, "waiting": self.waiting, "nodes": len(self.nodes)}
        point["costPerHour"], point["costInUsePerHour"] = round(self._prices, 6), round(self._in_use, 6)
        for resource, capacity in self.capacity.items():
            if capacity > 0 and resource != "pods":
                point[f"utilisation {resource}"] = self.used[resource] / capacity
        point |= {f"fragmentation {name}": share for name, share in self.fragmentation().items()}
        point |= more
        self.samples.append(point)

    def fragmentation(self) -> dict[str, float]:
        """For each resource: the share of all of it that is idle on nodes where a pod that asks for it does not fit, on
        average over the pod shapes of the trace."""
        wanted = sorted({name for shape in self._shapes for name, amount in shape.items() if amount})
        found: dict[str, float] = {}
        if not wanted or not self.nodes:
            return found
        names = sorted({*wanted, "pods"})
        nodes = list(self.nodes.values())
        idle = np.array(  # [node, resource]
            [[max(0, node.allocatable.get(name, 0) - node.used.get(name, 0)) for name in names] for node in nodes],
            dtype=np.float64,
        )
        asks = np.array([[shape.get(name, 0) for name in names] for shape in self._shapes], dtype=np.float64)
        fits = np.all(idle[None, :, :] >= asks[:, None, :], axis=2)  # [shape, node]
        for column, name in enumerate(names):
            asking = asks[:, column] > 0
            capacity = self.capacity[name]
            if name == "pods" or not asking.any() or capacity <= 0:
                continue
            lost = (~fits[asking]).astype(np.float64) @ idle[:, column]  # [shape]
            weights = self._weights[asking]
            found[name] = float(lost @ weights / weights.sum() / capacity)
        return found

    def averages(self) -> dict[str, float]:
        """Utilisation by resource, over the whole time."""
        found = {}
        for key, total in self._integrals.items():
            part, _, resource = key.partition(" ")
            if part == "capacity" and total > 0 and resource != "pods":
                found[resource] = self._integrals[f"used {resource}"] / total
        return found

    def total(self, name: str) -> float:
        return float(self._integrals[name])

    @property
    def elapsed(self) -> float:
        return self._now - self._start


def shapes_of(pods: Iterable[Pod]) -> tuple[list[Amounts], list[int]]:
    """The most frequent sizes of pods, and how often each occurs."""
    counted: Counter[tuple[tuple[str, int], ...]] = Counter()
    for pod in pods:
        amounts = {name: amount for name, amount in requests(pod).items() if amount}
        counted[tuple(sorted({**amounts, "pods": 1}.items()))] += 1
    common = counted.most_common(MOST_SHAPES)
    return [dict(shape) for shape, _ in common], [number for _, number in common]


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The usual ones; empty if there are no values. A value is one that occurred, not one in between."""
    if not values:
        return {}
    ordered = np.sort(np.array(values, dtype=np.float64))
    found = {f"p{share}": float(np.quantile(ordered, share / 100, method="inverted_cdf")) for share in (50, 90, 95, 99)}
    return {**found, "max": float(ordered[-1]), "mean": float(ordered.mean())}
