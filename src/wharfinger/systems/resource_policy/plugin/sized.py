"""Charges for policies that limit units by resources or percentage. Pods are not interchangeable there, so if nodes are
in several units, the charges of the whole group are recomputed after each change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from wharfinger.api.resources import amount_text, quantity_of
from wharfinger.systems.resource_policy.plugin.charges import Order, Units

Size = Mapping[str, int]
"""Requests of a pod: CPU in millicores, other resources in whole units."""

NOTHING: Size = {}


class Limit(msgspec.Struct, frozen=True):
    """The limits of a unit for one group; None or empty means no limit."""

    count: int | None = None
    percent: int | None = None
    resources: Size = msgspec.field(default_factory=dict)

    def fits(self, count: int, used: Size, size: Size, total: int, places: int = 1) -> bool:
        """Whether a pod fits in addition to `count` and `used`. `total` is the number of places in the group, including
        this pod's."""
        if places and self.count is not None and count >= self.count:
            return False
        if places and self.percent is not None and count + 1 > -(-self.percent * total // 100):
            return False
        return all(
            used.get(name, 0) + size[name] <= most for name, most in self.resources.items() if size.get(name, 0) > 0
        )

    def shortages(self, count: int, used: Size, size: Size, total: int) -> tuple[str, str]:
        """Why a pod does not fit: the limits on pods that are reached, and the resources that it lacks."""
        full, lacking = [], []
        if self.count is not None and count >= self.count:
            full.append(f"{count} of {self.count} pods")
        elif self.percent is not None and count + 1 > -(-self.percent * total // 100):
            full.append(f"{count} of {-(-self.percent * total // 100)} pods, {self.percent}% of {total}")
        for name, most in sorted(self.resources.items()):
            if size.get(name, 0) > 0 and used.get(name, 0) + size[name] > most:
                texts = (amount_text(name, amount) for amount in (used.get(name, 0), most, size[name]))
                lacking.append("{}: {} of {} used, {} requested".format(name, *texts))
        return ", ".join(full), ", ".join(lacking)

    def raised(self, count: int, used: Size, size: Size, total: int) -> dict[str, Any]:
        """The fields of a unit, as manifests write them, that must change so that a pod fits, with the least values."""
        found: dict[str, Any] = {}
        if self.count is not None and count >= self.count:
            found["maxCount"] = count + 1
        if self.percent is not None and count + 1 > -(-self.percent * total // 100):
            found["maxPercent"] = min(count * 100 // total + 1, 100)
        short = {
            name: quantity_of(name, used.get(name, 0) + size[name])
            for name, most in self.resources.items()
            if size.get(name, 0) > 0 and used.get(name, 0) + size[name] > most
        }
        if short:
            found["maxResources"] = short
        return found


class SizedCharges:
    """Like `Charges`, for limits of any kind."""

    def __init__(self, limits: Sequence[Limit]) -> None:
        self._limits = limits
        self.version = 0  # incremented with every change
        self.moved: set[Order] | None = None
        self._pods: dict[Order, tuple[Units, Size, int]] = {}  # with the number of places: 0 for a reservation in use
        self._total = 0  # places in the group
        self._several = 0  # pods on nodes in several units
        self._units: dict[Order, int | None] = {}
        self._counts = [0] * len(limits)
        self._used: list[dict[str, int]] = [{} for _ in limits]
        self._stale = False

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def counts(self) -> list[int]:
        self._recompute()
        return self._counts

    def has_room(self, unit: int, size: Size = NOTHING) -> bool:
        self._recompute()
        return self._limits[unit].fits(self._counts[unit], self._used[unit], size, self._total + 1)

    def shortages(self, unit: int, size: Size = NOTHING) -> tuple[str, str]:
        self._recompute()
        return self._limits[unit].shortages(self._counts[unit], self._used[unit], size, self._total + 1)

    def raised(self, unit: int, size: Size = NOTHING) -> dict[str, Any]:
        """How the limits of a unit must change so that a pod fits; see `Limit.raised`."""
        self._recompute()
        return self._limits[unit].raised(self._counts[unit], self._used[unit], size, self._total + 1)

    def unit(self, order: Order) -> int | None:
        self._recompute()
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
        self._report_moved((order,))

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
        self._report_moved(())

    def _report_moved(self, added: Iterable[Order]) -> None:
        """Report pods whose charge changed to `moved`, which requires recomputing immediately."""
        if self.moved is not None:
            self.moved.update(added)
            before = self._units
            self._recompute()
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

    def _recompute(self) -> None:
        """Recompute if stale: pods are charged oldest first, each to the first of its units with room or else to its
        first unit."""
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
