"""Exponential back-off with jitter. It computes delays; the caller does the waiting."""

from __future__ import annotations

import random


class Backoff:
    """Delays that grow by `factor` from `base` to `limit`; each is extended by a random share of up to `jitter`."""

    def __init__(
        self, base: float, limit: float, *, factor: float = 2.0, jitter: float = 1.0, rng: random.Random | None = None
    ) -> None:
        self._base = base
        self._limit = limit
        self._factor = factor
        self._jitter = jitter
        self._rng = rng  # created with the first delay if None: most requests never need one
        self.failures = 0

    def next(self) -> float:
        delay = min(self._limit, self._base * self._factor ** min(self.failures, 60))
        self.failures += 1
        if self._rng is None:
            self._rng = random.Random()
        return delay * (1 + self._jitter * self._rng.random())

    def reset(self) -> None:
        self.failures = 0
