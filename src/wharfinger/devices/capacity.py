"""Consumable capacity: what a request takes of a device that several claims may share.

The rules are those of upstream's consumable_capacity.go without DRAFractionalCapacityRange, which is off by default:
ranges are computed in whole units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from wharfinger.api.quantity import NANO, canonical, family, format_nano, parse_nano, value

_MOST = (1 << 63) - 1

Amounts = Mapping[str, int]
"""Capacity name to amount, in nano-units."""


class CapacityError(Exception):
    """The capacity cannot be computed; the allocation is given up."""


class Quantity(NamedTuple):
    nano: int
    text: str  # canonical


def quantity(text: Any) -> Quantity:
    return Quantity(parse_nano(text), canonical(text))


class DeviceCapacity:
    """One capacity of a device, and its request policy."""

    __slots__ = ("default", "highest", "lowest", "policy", "ranged", "step", "total", "values")

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.total = quantity(document.get("value", "0"))
        policy = document.get("requestPolicy")
        self.policy = policy is not None
        given: Mapping[str, Any] = policy or {}
        valid = given.get("validRange")
        self.ranged = valid is not None
        self.default = _optional(given.get("default"))
        self.lowest = _optional((valid or {}).get("min"))
        self.highest = _optional((valid or {}).get("max"))
        self.step = _optional((valid or {}).get("step"))
        self.values: list[Quantity] | None = (
            [quantity(each) for each in given["validValues"]] if given.get("validValues") is not None else None
        )

    def consumed(self, requested: Quantity | None) -> Quantity:
        """What a request takes; None stands for one that does not name this capacity. Raises CapacityError."""
        if requested is None:
            return self.default if self.default is not None else self.total
        if self.lowest is not None:
            return self._rounded(requested)
        if self.values is not None:
            return next((each for each in self.values if requested.nano <= each.nano), requested)
        return requested

    def _rounded(self, requested: Quantity) -> Quantity:
        assert self.lowest is not None
        if requested.nano < self.lowest.nano:
            return self.lowest
        if self.step is None:
            return requested
        lowest, step = value(self.lowest.text), value(self.step.text)
        units = lowest + step * -(-(value(requested.text) - lowest) // step)
        if units > _MOST and lowest >= 0:
            raise CapacityError(
                "capacity request cannot be represented in the device's range arithmetic: rounding request"
                f" {requested.text} up to the next step passes MaxInt64"
            )
        return Quantity(units * NANO, format_nano(units * NANO, family(self.step.text)))

    def allows(self, consumed: Quantity) -> bool:
        """Whether the request policy allows this amount."""
        if not self.policy or (self.default is not None and consumed.nano == self.default.nano):
            return True
        if self.ranged:
            if self.highest is not None and consumed.nano > self.highest.nano:
                return False
            if self.step is None:
                return True
            lowest = 0 if self.lowest is None else value(self.lowest.text)
            return (value(consumed.text) - lowest) % value(self.step.text) == 0
        return not self.values or any(consumed.nano == each.nano for each in self.values)


def _optional(text: Any) -> Quantity | None:
    return None if text is None else quantity(text)


def consumption(requests: Mapping[str, Quantity], capacities: Mapping[str, DeviceCapacity]) -> dict[str, Quantity]:
    """What a request takes of each capacity. Raises CapacityError."""
    found = {}
    for name in sorted(capacities):
        try:
            found[name] = capacities[name].consumed(requests.get(name))
        except CapacityError as error:
            raise CapacityError(f'capacity "{name}": {error}') from None
        if found[name].nano < 0:
            raise CapacityError(f'capacity "{name}": capacity value is negative')
    return found


def fits(
    requests: Mapping[str, Quantity], capacities: Mapping[str, DeviceCapacity], used: Amounts, taking: Amounts
) -> bool:
    """Whether a request can be added to what is used and what is being taken. Raises CapacityError."""
    if any(name not in capacities for name in requests):
        return False
    for name, amount in consumption(requests, capacities).items():
        capacity = capacities[name]
        if not capacity.allows(amount):
            return False
        if amount.nano + used.get(name, 0) + taking.get(name, 0) > capacity.total.nano:
            return False
    return True
