"""Waiting longer after every failure, with jitter. Who waits, and on which timer, is the caller's business."""

from __future__ import annotations

import random


class Backoff:
    """Delays that double from `base` to `limit`; each is stretched by up to `jitter` of itself."""

    def __init__(
        self, base: float, limit: float, *, factor: float = 2.0, jitter: float = 1.0, rng: random.Random | None = None
    ) -> None:
        self._base = base
        self._limit = limit
        self._factor = factor
        self._jitter = jitter
        self._rng = rng  # one of our own is made with the first delay: most never come to one
        self.failures = 0

    def next(self) -> float:
        delay = min(self._limit, self._base * self._factor ** min(self.failures, 60))
        self.failures += 1
        if self._rng is None:
            self._rng = random.Random()
        return delay * (1 + self._jitter * self._rng.random())

    def reset(self) -> None:
        self.failures = 0
