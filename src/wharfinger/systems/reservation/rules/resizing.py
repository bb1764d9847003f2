"""Resizes a reservation to match its template. It never shrinks below what its pods use and grows only if the node has
room. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wharfinger.api.quantity import family, format_nano, parse_nano
from wharfinger.api.resources import in_units
from wharfinger.api.views.pods import Quantities
from wharfinger.systems.reservation.kinds.views import Reservation

AS_WANTED, IN_USE, INSUFFICIENT = "Resized", "InUse", "InsufficientResources"


class Resizing(msgspec.Struct, frozen=True):
    """The outcome of a resize: the new `status.allocatable` and the resources that could not be resized as requested."""

    allocatable: Quantities
    changes: bool
    grows: bool
    refused: tuple[str, ...] = ()  # resources the node lacks
    in_use: tuple[str, ...] = ()  # resources of which pods use more than the template requests

    @property
    def reason(self) -> str:
        return INSUFFICIENT if self.refused else IN_USE if self.in_use else AS_WANTED

    @property
    def message(self) -> str:
        """Why the resize is incomplete; empty if the template is met in full."""
        parts = []
        if self.refused:
            parts.append(f"the node has insufficient {', '.join(self.refused)} for the size in the template")
        if self.in_use:
            parts.append(f"pods use more {', '.join(self.in_use)} than the template requests")
        return "; ".join(parts)

    def says_more(self, reservation: Reservation) -> bool:
        """Whether the Resized condition of the reservation is out of date."""
        said = reservation.status.condition("Resized")
        if said is None:
            return bool(self.message)
        return said.reason != self.reason or (bool(self.message) and said.message != self.message)


def plan(now: Quantities, wanted: Quantities, used: Mapping[str, int], free: Mapping[str, int]) -> Resizing:
    """Decide how far a reservation can be resized.

    `used` is what pods use and `free` what is free on the node, both by resource name in the scheduler's units. A
    reservation grows in all resources or in none; each resource shrinks independently.
    """
    has, asks = _units(now), _units(wanted)
    target: Quantities = {}
    refused, in_use = [], []
    for name in sorted({*has, *asks}):
        if asks.get(name, 0) < used.get(name, 0):
            in_use.append(name)
    growing = [name for name in asks if asks[name] > has.get(name, 0)]
    # Pods may already use more than is reserved; that part needs no additional room.
    refused = [
        name
        for name in sorted(growing)
        if asks[name] - max(has.get(name, 0), used.get(name, 0)) > max(free.get(name, 0), 0)
    ]
    for name in {**now, **wanted}:
        if name in growing:
            quantity = wanted[name] if not refused else now.get(name)
        elif name in in_use and used[name] < has.get(name, 0):
            quantity = _written(name, used[name], now[name])
        elif name in in_use:
            quantity = now.get(name)
        else:
            quantity = wanted.get(name)
        if quantity is not None:
            target[name] = quantity
    changes = _units(target) != has
    grows = any(amount > has.get(name, 0) for name, amount in _units(target).items())
    return Resizing(target, changes, grows, tuple(refused), tuple(in_use))


def _units(quantities: Quantities) -> dict[str, int]:
    return in_units({name: parse_nano(quantity) for name, quantity in quantities.items()})


def _written(name: str, amount: int, like: str | int | float) -> str:
    return format_nano(amount * (1_000_000 if name == "cpu" else 1_000_000_000), family(like))
