"""The unit of a ResourcePolicy that each pod of a group is charged to: one rule for scheduling, status and deletion
costs.

Pods are charged oldest first. Each is charged to the first unit of its node that has room, in order of preference, or
to the first unit if none has room. `Charges` maintains the result incrementally, in time that depends on the number of
kinds of node, not on the number of pods.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence

Order = tuple[str, str, str]
"""Sort key for the age of pods: creation time, then uid. The name is for pods without a uid."""

Units = tuple[int, ...]
"""The units of a kind of node, as indexes into the policy's units, most preferred first."""


class Charges:
    """The pods of one group.

    Pods are filed by the units of their node and the rank of the unit they are charged to; the rank after the last unit
    is for pods that found no room. A new pod may displace the youngest pod of a full unit, and a removed pod makes room
    for the oldest one that was displaced or rejected. Either change may cascade through several units.
    """

    def __init__(self, limits: Sequence[int | None]) -> None:
        self._limits = limits
        self.counts = [0] * len(limits)  # pods charged to each unit, including those beyond its limit
        self.version = 0  # incremented when a unit becomes full or gains room
        self.moved: set[Order] | None = None  # if set, collects the pods whose charge changed
        self._taken = [0] * len(limits)  # pods within the limit
        self._filed: dict[Order, tuple[Units, int]] = {}
        self._files: dict[tuple[Units, int], list[Order]] = {}
        self._inside: list[list[tuple[Units, int]]] = [[] for _ in limits]  # by unit: files of pods within its limit
        self._outside: list[list[tuple[Units, int]]] = [[] for _ in limits]  # by unit: files of pods it had no room for
        self._flipped: set[int] = set()

    def __len__(self) -> int:
        return len(self._filed)

    def has_room(self, unit: int, size: Mapping[str, int] | None = None) -> bool:
        """Whether one more pod fits. `size` is ignored, because only pods are counted."""
        limit = self._limits[unit]
        return limit is None or self._taken[unit] < limit

    def shortages(self, unit: int, size: Mapping[str, int] | None = None) -> tuple[str, str]:
        """Why no pod fits: the limit on pods, and the resources that one lacks, of which there are none here."""
        limit = self._limits[unit]
        return ("" if limit is None else f"{self.counts[unit]} of {limit} pods"), ""

    def raised(self, unit: int, size: Mapping[str, int] | None = None) -> dict[str, int]:
        """How the limit of a unit must change so that one more pod fits."""
        return {} if self.has_room(unit) else {"maxCount": self._taken[unit] + 1}

    def unit(self, order: Order) -> int | None:
        """The unit a pod is charged to; None if its node is in no unit."""
        units, rank = self._filed[order]
        if not units:
            return None
        return units[rank] if rank < len(units) else units[0]

    def add(self, order: Order, units: Units, size: Mapping[str, int] | None = None, places: int = 1) -> None:
        """Add a pod on a node in these units. `size` and `places` are ignored: every pod takes one place."""
        rank, pushed = self._place(order, units)
        while pushed is not None:
            turned_out, _ = self._take(pushed)
            self._put(order, units, rank)
            order, units = pushed, turned_out
            rank, pushed = self._place(order, units)
        self._put(order, units, rank)
        self._settle()

    def _place(self, order: Order, units: Units) -> tuple[int, Order | None]:
        """The rank of the unit that takes the pod, and the pod it displaces there."""
        for rank, unit in enumerate(units):
            limit = self._limits[unit]
            if limit is None or self._taken[unit] < limit:
                return rank, None
            youngest = max((file[-1] for key in self._inside[unit] if (file := self._files[key])), default=None)
            if youngest is not None and youngest > order:
                return rank, youngest
        return len(units), None

    def remove(self, order: Order) -> None:
        """Remove a pod."""
        units, rank = self._take(order)
        while rank < len(units):
            freed = units[rank]
            limit = self._limits[freed]
            if limit is None or self._taken[freed] + 1 < limit:
                break  # the unit was not full, so no pod had been rejected
            oldest = min((file[0] for key in self._outside[freed] if (file := self._files[key])), default=None)
            if oldest is None:
                break
            units, rank = self._take(oldest)
            self._put(oldest, units, units.index(freed))
        self._settle()

    def _put(self, order: Order, units: Units, rank: int) -> None:
        key = (units, rank)
        file = self._files.get(key)
        if file is None:
            file = self._files[key] = []
            for unit in units[:rank]:
                self._outside[unit].append(key)
            if rank < len(units):
                self._inside[units[rank]].append(key)
        insort(file, order)
        self._filed[order] = key
        self._count(units, rank, 1)
        if self.moved is not None:
            self.moved.add(order)

    def _take(self, order: Order) -> tuple[Units, int]:
        units, rank = key = self._filed.pop(order)
        file = self._files[key]
        del file[bisect_left(file, order)]
        self._count(units, rank, -1)
        return key

    def _count(self, units: Units, rank: int, amount: int) -> None:
        if rank < len(units):
            unit = units[rank]
            limit = self._limits[unit]
            before = self._taken[unit]
            self._taken[unit] = before + amount
            if limit is not None and (before < limit) != (before + amount < limit):
                self._flipped ^= {unit}
            self.counts[unit] += amount
        elif units:
            self.counts[units[0]] += amount

    def _settle(self) -> None:
        if self._flipped:
            self._flipped.clear()
            self.version += 1
