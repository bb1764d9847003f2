"""Replays arrivals on a cluster of which nobody leaves: the packing policies alone, without API server and scheduler.

The decisions are those of the scheduler with the plugin of the same policy. Scores are kept for every kind of pod, and
only nodes that changed since it was seen last are scored again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from wharfinger.engine.rows import REFUSED, SHIFT
from wharfinger.framework.columns import Ints
from wharfinger.plugins.device_packing.fragmentation import Fragmentation, WorkloadShape, typical_shapes
from wharfinger.plugins.device_packing.policies import FGD, PackingPolicy
from wharfinger.plugins.device_packing.rooms import WHOLE, ModelNumbers, NodeRooms, PodDemand
from wharfinger.replay.openb import OpenbNode, OpenbTrace

NOTHING_KNOWN, STALE = -2, -1  # in place of a position; stale: only which nodes do not fit is known


class NodeOrder(Protocol):
    """The order among nodes of equal score: the smallest number first."""

    view: Ints

    def chosen(self, row: int) -> None:
        """A pod was placed on the row."""


class FixedOrder:
    """An order that never changes."""

    def __init__(self, order: Ints) -> None:
        self.view = order

    def chosen(self, row: int) -> None:
        return


class PodKind(NamedTuple):
    """Pods that ask for the same."""

    demand: PodDemand
    memory: int  # MiB


class PackedPlace(NamedTuple):
    """Where a pod was placed: the row of the node, and the devices there."""

    row: int
    devices: tuple[int, ...]


class _KnownScores:
    """The scores of all nodes for one kind of pod, as of a position in the log of changes."""

    __slots__ = ("position", "value")

    def __init__(self, nodes: int) -> None:
        self.value = np.full(nodes, REFUSED, dtype=np.int64)  # score in the high bits, order in the low ones
        self.position = NOTHING_KNOWN


class PackingRun:
    """The state of one run: what the nodes have left, and what is known of their scores."""

    def __init__(
        self,
        nodes: Sequence[OpenbNode],
        kinds: Sequence[PodKind],
        policy: PackingPolicy,
        measure: Fragmentation,
        order: NodeOrder,
        keys: Ints,
    ) -> None:
        """`measure` is what fragmentation is measured with, whatever the policy knows of the workload."""
        models = policy.models
        self.policy = policy
        self._measure = measure
        self._kinds = kinds
        self._models = models
        self._order = order
        most = max((node.devices for node in nodes), default=0)
        devices = np.array([node.devices for node in nodes], dtype=np.int64)
        self.rooms = NodeRooms(
            cpu=np.array([node.cpu for node in nodes], dtype=np.int64),
            free=np.where(np.arange(max(most, 1)) < devices[:, None], WHOLE, 0).astype(np.int64),
            devices=devices,
            model=np.array([models[node.model] for node in nodes], dtype=np.int64),
            kinds=np.zeros(len(nodes), dtype=np.int64),
            keys=keys,
        )
        self._memory = np.array([node.memory for node in nodes], dtype=np.int64)
        self._fragmented = measure.of(self.rooms)
        if isinstance(policy, FGD) and policy.fragmentation.shapes == measure.shapes:
            self.rooms.fragmented = self._fragmented
        self.fragmented = int(self._fragmented.sum())  # of all nodes, times the weight of the workload
        self.allocated = 0  # thousandths of devices
        self._log: list[int] = []  # rows that changed
        self._known = [_KnownScores(len(nodes)) for _ in kinds]
        supply: Counter[str] = Counter()
        for node in nodes:
            supply[node.model] += node.devices
        policy.supplied(supply)

    def place(self, number: int) -> PackedPlace | None:
        """Places a pod of a kind on the best node; None if it fits nowhere."""
        kind = self._kinds[number]
        known = self._known[number]
        self._refresh(kind, known)
        row = int(known.value.argmax())
        if known.value[row] == REFUSED:
            return None
        devices = self._devices(row, kind.demand)
        self._take(row, kind, devices)
        return PackedPlace(row, devices)

    def _refresh(self, kind: PodKind, known: _KnownScores) -> None:
        if known.position < 0 or self.policy.draws:
            rows = np.arange(len(self._memory))
        elif known.position == len(self._log):
            return
        else:
            rows = np.array(list(dict.fromkeys(self._log[known.position :])), dtype=np.int64)
        if known.position > NOTHING_KNOWN:
            # What did not fit fits no more: nobody leaves.
            rows = rows[known.value.take(rows) != REFUSED]
        known.position = len(self._log)
        if not len(rows):
            return
        rooms = self.rooms.take(rows)
        fits = rooms.fits(kind.demand, self._models) & (self._memory.take(rows) >= kind.memory)
        scores = (self.policy.nodes(rooms, kind.demand) << SHIFT) - self._order.view.take(rows)
        known.value[rows] = np.where(fits, scores, REFUSED)

    def _devices(self, row: int, demand: PodDemand) -> tuple[int, ...]:
        """The devices that a pod gets on a node: for a share the best one, otherwise the first that nobody uses."""
        free = self.rooms.free[row]
        if not demand.shared:
            return tuple(np.flatnonzero(free == WHOLE)[: demand.devices].tolist())
        scores = self.policy.devices(self.rooms.take(np.array([row])), demand)[0]
        fitting = np.flatnonzero(free >= demand.milli)
        return (int(fitting[scores[fitting].argmax()]),)

    def _take(self, row: int, kind: PodKind, devices: tuple[int, ...]) -> None:
        rooms, demand = self.rooms, kind.demand
        rooms.cpu[row] -= demand.cpu
        self._memory[row] -= kind.memory
        rooms.kinds[row] |= demand.kind
        for device in devices:
            rooms.free[row, device] -= demand.milli
        self.allocated += demand.total
        before = int(self._fragmented[row])
        self._fragmented[row] = after = int(self._measure.of(rooms.take(np.array([row])))[0])
        self.fragmented += after - before
        self._log.append(row)
        self._order.chosen(row)
        self.policy.turn += 1
        if self.policy.learns and self.policy.placed(demand):
            for known in self._known:
                known.position = min(known.position, STALE)


def workload_of(trace: OpenbTrace) -> list[WorkloadShape]:
    """The typical shapes of the pods of a trace."""
    return typical_shapes(Counter(pod.demand for pod in trace.pods))


def models_of(trace: OpenbTrace) -> ModelNumbers:
    models = ModelNumbers()
    for node in trace.nodes:
        models[node.model]
    return models
