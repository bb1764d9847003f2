"""The packing policies: FGD and the baselines that its paper compares it with.

A policy scores nodes from 0 to 100, and for a share of a device the devices of a node. The score of a node assumes that
the pod gets the best device there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from wharfinger.framework.columns import Ints
from wharfinger.plugins.device_packing.fragmentation import Fragmentation, WorkloadShape, typical_shapes
from wharfinger.plugins.device_packing.rooms import WHOLE, ModelNumbers, NodeRooms, PodDemand

MAX_SCORE = 100
LARGEST_CPU = 128_000  # millicores; amounts are relative to a node of this size
LARGEST_DEVICES = 8 * WHOLE
GROWTH = 1.25  # of the number of pods on nodes, after which a policy that learns takes them into account


class PackingPolicy:
    """Nodes and devices that cannot take the pod are not to be asked about, or their scores are to be ignored."""

    name: ClassVar[str]
    learns: ClassVar[bool] = False  # whether it uses the workload, the devices that there are, and the pods on nodes
    draws: ClassVar[bool] = False  # whether scores differ from one decision to the next without a change of the node

    def __init__(self, workload: Sequence[WorkloadShape], models: ModelNumbers, seed: int = 0) -> None:
        self.models = models
        self.seed = seed
        self.turn = 0  # number of pods on nodes; for policies that draw

    def supplied(self, devices: Mapping[str, int]) -> None:
        """How many devices of each model there are."""

    def placed(self, demand: PodDemand, change: int = 1) -> bool:
        """A pod was placed on a node, or (-1) has left it. Returns whether all scores may have changed."""
        return False

    def nodes(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        """[node] scores."""
        raise NotImplementedError

    def devices(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        """[node, device] how good each device is for a share; more is better. Here: the fullest one on which it fits."""
        return WHOLE - rooms.free


class BestFit(PackingPolicy):
    """The node with the least left, of CPU and devices together, after the pod was placed."""

    name = "BestFit"

    def nodes(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        left = 0.0 + (rooms.cpu - demand.cpu) / LARGEST_CPU * 0.5
        left = left + (rooms.total() - demand.total) / LARGEST_DEVICES * 0.5
        return _whole((1.0 - left) * MAX_SCORE)


class DotProd(PackingPolicy):
    """The node whose idle resources have the least dot product with what the pod asks for."""

    name = "DotProd"

    def nodes(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        product = (rooms.cpu / LARGEST_CPU) * (demand.cpu / LARGEST_CPU)
        product = product + (rooms.total() / LARGEST_DEVICES) * (demand.total / LARGEST_DEVICES)
        return _whole((1.0 - product / 2) * MAX_SCORE)


class GpuClustering(PackingPolicy):
    """Nodes that have pods of the same kind: a share, one whole device, two, and so on; among them the fullest."""

    name = "GpuClustering"

    def nodes(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        kind = demand.kind
        if not kind:
            return np.zeros(len(rooms.cpu), dtype=np.int64)
        quarter = MAX_SCORE // 4
        fullness = quarter * (LARGEST_DEVICES - rooms.total()) // LARGEST_DEVICES
        others = np.where(rooms.kinds == 0, quarter, 0)
        same = np.where(rooms.kinds == kind, 3 * quarter, 2 * quarter)
        return fullness + np.where(rooms.kinds & kind, same, others)


class GpuPacking(PackingPolicy):
    """Devices in use first, then unused devices of nodes in use, then nodes of which no device is in use."""

    name = "GpuPacking"

    def nodes(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        if not demand.devices:
            return np.zeros(len(rooms.cpu), dtype=np.int64)
        unused = rooms.unused()
        fresh_node = np.maximum(MAX_SCORE // 3 - unused, unused)
        if demand.shared:
            # The fullest device on which the share fits.
            left = np.where(rooms.free >= demand.milli, rooms.free, WHOLE).min(axis=1)
            in_use = np.maximum(MAX_SCORE - left * 100 // WHOLE // 10, MAX_SCORE // 2)
            used_node = np.where(left < WHOLE, in_use, MAX_SCORE // 2 - 1)
        else:
            used_node = np.full_like(unused, max(MAX_SCORE // 2 - demand.devices, MAX_SCORE // 3))
        return np.where(unused == rooms.devices, fresh_node, used_node)


class RandomChoice(PackingPolicy):
    """Any node, and any device on which the share fits."""

    name = "Random"
    draws = True

    def nodes(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        """Random numbers, larger than other policies' scores: the largest wins."""
        return _mixed(rooms.keys, self.seed, self.turn) >> 44

    def devices(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        numbers = np.arange(rooms.free.shape[1]) + 1
        return _mixed(rooms.keys[:, None] ^ numbers, self.seed, ~self.turn) >> 44


class FGD(PackingPolicy):
    """Fragmentation gradient descent: the node and device where fragmentation grows the least, or shrinks the most. If it is
    not told which pods usually come, it learns that from those on the nodes."""

    name = "FGD"
    learns = True

    def __init__(self, workload: Sequence[WorkloadShape], models: ModelNumbers, seed: int = 0) -> None:
        super().__init__(workload, models, seed)
        self._told = list(workload)
        self._pods: Counter[PodDemand] = Counter()  # on nodes, unless the workload is told
        self._known = 0  # number of pods that were taken into account
        self._plan()

    def placed(self, demand: PodDemand, change: int = 1) -> bool:
        if self._told:
            return False
        self._pods[demand] += change
        if not self._pods[demand]:
            del self._pods[demand]
        total = self._pods.total()
        if self._known / GROWTH <= total <= self._known * GROWTH:
            return False
        self._plan()
        return True

    def _plan(self) -> None:
        """Computes what follows from the workload."""
        self._known = self._pods.total()
        self.fragmentation = Fragmentation(self._told or typical_shapes(self._pods), self.models)

    def nodes(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        if demand.shared:
            scores = np.where(rooms.free >= demand.milli, self.devices(rooms, demand), 0)
            best: Ints = scores.max(axis=1)
            return best
        return self._scores(self._before(rooms) - self.fragmentation.after(rooms, demand))

    def devices(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        gained = self._before(rooms)[:, None] - self.fragmentation.after_share(rooms, demand)
        return self._scores(gained)

    def _before(self, rooms: NodeRooms) -> Ints:
        return self.fragmentation.of(rooms) if rooms.fragmented is None else rooms.fragmented

    def _scores(self, gained: Ints) -> Ints:
        devices = gained / (self.fragmentation.weight * WHOLE)
        return _whole(MAX_SCORE / (1.0 + np.exp(-devices)))


def _whole(scores: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Ints:
    return scores.astype(np.int64)


def _mixed(keys: Ints, seed: int, turn: int) -> Ints:
    """Random non-negative numbers that follow from the arguments (splitmix64)."""
    salt = (seed * 0x9E3779B97F4A7C15 + turn * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    state = keys.astype(np.uint64) + np.uint64(salt)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    state ^= state >> np.uint64(31)
    return (state >> np.uint64(1)).astype(np.int64)
