"""What pods ask for and what nodes have left, as the packing policies see it: CPU, and shares of devices.

Shares are in thousandths of a device. The number of a model is its position in a `ModelNumbers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wharfinger.framework.columns import Bools, Ints, Rows

WHOLE = 1000  # thousandths of a device


class PodDemand(NamedTuple):
    """What one pod asks for: several whole devices, a share of one, or none."""

    cpu: int  # millicores
    devices: int = 0
    milli: int = 0  # of each of them
    models: frozenset[str] = frozenset()  # those that are allowed; empty: all

    @property
    def shared(self) -> bool:
        """Whether it asks for a share of a device."""
        return self.devices == 1 and self.milli < WHOLE

    @property
    def total(self) -> int:
        return self.devices * self.milli

    @property
    def kind(self) -> int:
        """A bit for the kind of demand: none, a share, one whole device, two, …"""
        return 0 if not self.devices else 1 if self.shared else 1 << self.devices


class ModelNumbers(dict[str, int]):
    """Numbers for models of devices, in the order in which they were seen."""

    def __missing__(self, model: str) -> int:
        self[model] = len(self)
        return self[model]


@dataclass(slots=True)
class NodeRooms:
    """What some nodes have left. Nodes with fewer devices than others are filled up with devices that have nothing left."""

    cpu: Ints  # [node] millicores
    free: Ints  # [node, device] thousandths
    devices: Ints  # [node] how many devices it has
    model: Ints  # [node] number of the model
    kinds: Ints  # [node] the kinds of the pods on it, as bits
    keys: Ints  # [node] a random number for each
    fragmented: Ints | None = None  # [node] `Fragmentation.of`, where it is known

    def take(self, rows: Rows) -> NodeRooms:
        return NodeRooms(
            self.cpu.take(rows),
            self.free.take(rows, axis=0),
            self.devices.take(rows),
            self.model.take(rows),
            self.kinds.take(rows),
            self.keys.take(rows),
            None if self.fragmented is None else self.fragmented.take(rows),
        )

    def total(self) -> Ints:
        """[node] what is left of all devices."""
        total: Ints = self.free.sum(axis=1)
        return total

    def unused(self) -> Ints:
        """[node] how many devices nobody uses."""
        unused: Ints = np.count_nonzero(self.free == WHOLE, axis=1)
        return unused

    def fits(self, demand: PodDemand, models: ModelNumbers) -> Bools:
        """[node] whether the pod finds the CPU and the devices that it asks for."""
        fitting: Bools = self.cpu >= demand.cpu
        if demand.devices == 1:
            fitting &= self.free.max(axis=1) >= demand.milli
        elif demand.devices:
            fitting &= np.count_nonzero(self.free >= demand.milli, axis=1) >= demand.devices
        if demand.devices and demand.models:
            allowed = np.zeros(len(models) + 1, dtype=np.bool_)
            allowed[[models[each] for each in demand.models if each in models]] = True
            fitting &= allowed.take(self.model)
        return fitting
