"""Charges for policies that limit units by resources or by percent. There a place is not as good as another, so where
nodes are in several units the whole group is gone through again after a change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.systems.resource_policy.plugin.charges import Order, Units

Size = Mapping[str, int]
"""What a pod asks for: cpu in thousandths, everything else whole."""

NOTHING: Size = {}


@dataclass(frozen=True, slots=True)
class Limit:
    """What a unit takes of a group; None and empty for no limit."""

    count: int | None = None
    percent: int | None = None
    resources: Size = field(default_factory=dict)

    def fits(self, count: int, used: Size, size: Size, total: int, places: int = 1) -> bool:
        """Whether a pod gets in beside these; `total` are all places of the group, with those of this one."""
        if places and self.count is not None and count >= self.count:
            return False
        if places and self.percent is not None and count + 1 > -(-self.percent * total // 100):
            return False
        return all(
            used.get(name, 0) + size[name] <= most for name, most in self.resources.items() if size.get(name, 0) > 0
        )


class SizedCharges:
    """As `Charges`, for limits of any kind."""

    def __init__(self, limits: Sequence[Limit]) -> None:
        self._limits = limits
        self.version = 0  # moves with every change
        self.moved: set[Order] | None = None
        self._pods: dict[Order, tuple[Units, Size, int]] = {}  # with the places taken: a reservation in use takes none
        self._total = 0  # of places
        self._several = 0  # pods on nodes in several units
        self._units: dict[Order, int | None] = {}
        self._counts = [0] * len(limits)
        self._used: list[dict[str, int]] = [{} for _ in limits]
        self._stale = False

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def counts(self) -> list[int]:
        self._go_through()
        return self._counts

    def has_room(self, unit: int, size: Size = NOTHING) -> bool:
        self._go_through()
        return self._limits[unit].fits(self._counts[unit], self._used[unit], size, self._total + 1)

    def unit(self, order: Order) -> int | None:
        self._go_through()
        return self._units[order]

    def add(self, order: Order, units: Units, size: Size = NOTHING, places: int = 1) -> None:
        self._pods[order] = (units, size, places)
        self._total += places
        self._several += len(units) > 1
        self.version += 1
        if self._several or self._stale:
            self._stale = True
        else:
            self._charge(order, units[0] if units else None, size, places, 1)
        self._tell((order,))

    def remove(self, order: Order) -> None:
        units, size, places = self._pods.pop(order)
        self._total -= places
        was_several = self._several
        self._several -= len(units) > 1
        self.version += 1
        if was_several or self._stale:
            self._stale = True
        else:
            self._charge(order, self._units.pop(order), size, places, -1)
        self._tell(())

    def _tell(self, came: Iterable[Order]) -> None:
        """Whoever wants to know of pods whose charge changed wants it at once."""
        if self.moved is not None:
            self.moved.update(came)
            before = self._units
            self._go_through()
            if before is not self._units:
                self.moved.update(order for order, unit in self._units.items() if before.get(order, unit) != unit)

    def _charge(self, order: Order, unit: int | None, size: Size, places: int, sign: int) -> None:
        if sign > 0:
            self._units[order] = unit
        if unit is not None:
            self._counts[unit] += sign * places
            used = self._used[unit]
            for name in self._limits[unit].resources:
                used[name] = used.get(name, 0) + sign * size.get(name, 0)

    def _go_through(self) -> None:
        """The rule itself: oldest first, each to the first of its units with room, or to the first of all."""
        if not self._stale:
            return
        self._stale = False
        self._units = {}
        self._counts = [0] * len(self._limits)
        self._used = [{} for _ in self._limits]
        for order in sorted(self._pods):
            units, size, places = self._pods[order]
            fitting = (
                unit
                for unit in units
                if self._limits[unit].fits(self._counts[unit], self._used[unit], size, self._total, places)
            )
            self._charge(order, next(fitting, units[0] if units else None), size, places, 1)
