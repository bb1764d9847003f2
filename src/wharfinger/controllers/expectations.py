"""Expectations: what a controller has asked for and not yet seen, so that it does not ask twice on a stale view.

As upstream's ControllerExpectations: creations are counted, deletions remembered by name; after five minutes an
expectation counts as met, since a lost event must not stop a controller for ever.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

EXPIRY = 300.0  # seconds


@dataclass(slots=True)
class _Expected:
    since: float
    creations: int = 0
    deletions: set[Hashable] = field(default_factory=set)

    @property
    def met(self) -> bool:
        return self.creations <= 0 and not self.deletions


class Expectations:
    def __init__(self) -> None:
        self._by_key: dict[Hashable, _Expected] = {}

    def expect_creations(self, key: Hashable, count: int, now: float) -> None:
        self._by_key[key] = _Expected(now, creations=count)

    def expect_deletions(self, key: Hashable, names: Iterable[Hashable], now: float) -> None:
        self._by_key[key] = _Expected(now, deletions=set(names))

    def expect(self, key: Hashable, creations: int, names: Iterable[Hashable], now: float) -> None:
        self._by_key[key] = _Expected(now, creations, set(names))

    def creation_observed(self, key: Hashable, count: int = 1) -> None:
        """Also called for creations that failed or were never tried: nothing will be seen of them."""
        expected = self._by_key.get(key)
        if expected is not None:
            expected.creations -= count

    def deletion_observed(self, key: Hashable, name: Hashable) -> None:
        expected = self._by_key.get(key)
        if expected is not None:
            expected.deletions.discard(name)

    def satisfied(self, key: Hashable, now: float) -> bool:
        expected = self._by_key.get(key)
        return expected is None or expected.met or now - expected.since > EXPIRY

    def forget(self, key: Hashable) -> None:
        self._by_key.pop(key, None)
