"""Expectations: creations and deletions that a controller has requested and its informers have not shown yet.

As in upstream's ControllerExpectations, a controller does not act again on a stale cache. Creations are counted, deletions
kept by name. Expectations expire after five minutes, so that a lost event does not block a controller forever.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import msgspec

EXPIRY = 300.0  # seconds


class _Expected(msgspec.Struct):
    since: float
    creations: int = 0
    deletions: set[Hashable] = msgspec.field(default_factory=set)

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
        """Also for creations that failed or were skipped: there will be no event for them."""
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

    def expires_in(self, key: Hashable, now: float) -> float:
        """The seconds until expectations that are not met expire; 0 if there are none."""
        expected = self._by_key.get(key)
        return 0.0 if expected is None or expected.met else max(0.0, EXPIRY - (now - expected.since))

    def are_met(self, now: float) -> bool:
        return all(self.satisfied(key, now) for key in self._by_key)

    def forget(self, key: Hashable) -> None:
        self._by_key.pop(key, None)
