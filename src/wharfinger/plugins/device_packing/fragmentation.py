"""Fragmentation: how much of the idle devices the pods of a workload cannot use.

For one shape of pods, all that is idle on a node is fragmented if such a pod cannot run there: CPU or devices are
lacking, the model is not allowed, or it needs no device. Otherwise only the devices are that have too little left for it.
The fragmentation of a node is the mean over the shapes, weighted by how often they occur; see FGD (USENIX ATC'23).

All amounts here are multiplied by the weight of the whole workload, so that they are whole numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wharfinger.framework.columns import Ints
from wharfinger.plugins.device_packing.rooms import WHOLE, ModelNumbers, NodeRooms, PodDemand

POPULARITY = 95  # per cent of the pods of a workload that its typical shapes cover
MOST_ASKED = 32  # devices that one pod may ask for


class WorkloadShape(NamedTuple):
    demand: PodDemand
    weight: int  # how often it occurs


def typical_shapes(counts: Counter[PodDemand], popularity: int = POPULARITY) -> list[WorkloadShape]:
    """The most frequent shapes that together make up `popularity` per cent of the pods. Among equally frequent ones those
    that ask for more come first."""
    ordered = sorted(
        counts.items(),
        key=lambda each: (each[1], each[0].cpu, each[0].milli, each[0].devices, "|".join(sorted(each[0].models))),
        reverse=True,
    )
    wanted = counts.total() * popularity
    found: list[WorkloadShape] = []
    covered = 0
    for demand, count in ordered:
        if covered * 100 >= wanted:
            break
        covered += count
        found.append(WorkloadShape(demand, count))
    return found


class Fragmentation:
    """Tables from which the fragmentation of any node is a few look-ups.

    What is not fragmented is the sum over the shapes of what they can use. For shapes that ask for one device or less, a
    device counts by itself: what it has left, times the weight of the shapes for which that, and the CPU, is enough.
    Shapes that ask for several devices can use all unused ones, if there are enough.
    """

    def __init__(self, shapes: Sequence[WorkloadShape], models: ModelNumbers) -> None:
        self.weight = sum(each.weight for each in shapes) or 1
        self.shapes = shapes
        self._models = models
        self._cpus = np.array(sorted({each.demand.cpu for each in shapes}), dtype=np.int64)
        self._steps = len(self._cpus) + 1  # how many different amounts of CPU matter
        self._known = -1
        self._single = self._several = np.zeros(0, dtype=np.int64)

    def of(self, rooms: NodeRooms) -> Ints:
        """[node]"""
        place = self._place(rooms.cpu, rooms.model)
        usable = self._usable(place, rooms.free).sum(axis=1) + self._by_several(place, rooms.unused())
        fragmented: Ints = rooms.total() * self.weight - usable
        return fragmented

    def after(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        """[node] with the pod placed on devices that nobody uses, or on none."""
        place = self._place(rooms.cpu - demand.cpu, rooms.model)
        usable = self._usable(place, rooms.free).sum(axis=1)
        if demand.devices:
            usable -= demand.devices * self._single.take(place * (WHOLE + 1) + WHOLE)
        usable += self._by_several(place, rooms.unused() - demand.devices)
        fragmented: Ints = (rooms.total() - demand.total) * self.weight - usable
        return fragmented

    def after_share(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        """[node, device] with the pod on that device; meaningless where it does not fit."""
        place = self._place(rooms.cpu - demand.cpu, rooms.model)
        before = self._usable(place, rooms.free)
        left = np.maximum(rooms.free - demand.milli, 0)
        usable = before.sum(axis=1, keepdims=True) - before + self._usable(place, left)
        usable += self._by_several(place[:, None], rooms.unused()[:, None] - (rooms.free == WHOLE))
        fragmented: Ints = (rooms.total() - demand.milli)[:, None] * self.weight - usable
        return fragmented

    def _place(self, cpu: Ints, model: Ints) -> Ints:
        """[node] where its row is in the tables: by model, and by which shapes find enough CPU."""
        if len(self._models) != self._known:
            self._build()
        place: Ints = model * self._steps + self._cpus.searchsorted(cpu, side="right")
        return place

    def _usable(self, place: Ints, free: Ints) -> Ints:
        """[node, device] what shapes that ask for one device or less can use of it."""
        return self._single.take((place * (WHOLE + 1))[:, None] + free)

    def _by_several(self, place: Ints, unused: Ints) -> Ints:
        """[node] what shapes that ask for several devices can use of the unused ones."""
        weights = self._several.take(place * (MOST_ASKED + 1) + np.clip(unused, 0, MOST_ASKED))
        usable: Ints = weights * unused * WHOLE
        return usable

    def _build(self) -> None:
        self._known = len(self._models)
        single = np.zeros((self._known, self._steps, WHOLE + 1), dtype=np.int64)  # [model, CPU, left of a device]
        several = np.zeros((self._known, self._steps, MOST_ASKED + 1), dtype=np.int64)  # [model, CPU, unused devices]
        for (cpu, count, milli, allowed), weight in self.shapes:
            enough = int(self._cpus.searchsorted(cpu)) + 1
            for model, number in self._models.items():
                if not count or (allowed and model not in allowed):
                    continue
                if count == 1:
                    single[number, enough:, milli:] += weight
                else:
                    several[number, enough:, count:] += weight
        single *= np.arange(WHOLE + 1)
        self._single, self._several = single.ravel(), several.ravel()
