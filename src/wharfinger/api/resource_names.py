"""Several names for one resource, such as a device class and its alias: they are counted as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

A = TypeVar("A", int, float)


class ResourceNames:
    """By default every name stands for itself."""

    def canonical(self, name: str) -> str:
        """The name under which the resource is counted."""
        return name

    def others(self, name: str) -> Iterable[str]:
        """The other names of a resource, given its canonical one."""
        return ()


PLAIN = ResourceNames()


def canonical_amounts(amounts: Mapping[str, A], names: ResourceNames) -> dict[str, A]:
    """Amounts by canonical name; those under several names of one resource are added up."""
    found: dict[str, A] = {}
    for name, amount in amounts.items():
        own = names.canonical(name)
        found[own] = found[own] + amount if own in found else amount
    return found


class JointNames(ResourceNames):
    """The names of several systems."""

    def __init__(self, parts: Iterable[ResourceNames]) -> None:
        self._parts = tuple(parts)

    def canonical(self, name: str) -> str:
        for part in self._parts:
            name = part.canonical(name)
        return name

    def others(self, name: str) -> list[str]:
        return [other for part in self._parts for other in part.others(name)]
