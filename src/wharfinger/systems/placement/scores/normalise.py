"""Normalises measurements to scores between -100 and 100."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

LOWEST, HIGHEST = -100, 100


def normalise(value: float, minimum: float, maximum: float) -> int:
    """-100 at or below the minimum, 100 above the maximum, linear in between, truncated towards zero."""
    if value <= minimum:
        return LOWEST
    if value > maximum:
        return HIGHEST
    return math.trunc((value - minimum) / (maximum - minimum) * (HIGHEST - LOWEST) + LOWEST)


class Linear(msgspec.Struct, frozen=True):
    """A fixed scale: `worst` scores -100, `best` 100. `worst` may be the larger number, as for latencies."""

    worst: float
    best: float

    def score(self, value: float) -> int:
        if self.worst <= self.best:
            return normalise(value, self.worst, self.best)
        return normalise(-value, -self.worst, -self.best)

    def scores(self, values: Mapping[str, float]) -> dict[str, int]:
        return {name: self.score(value) for name, value in values.items() if not math.isnan(value)}


class Relative(msgspec.Struct, frozen=True):
    """A scale relative to the values themselves: the worst scores -100, the best 100; if all are equal, they score 0."""

    less_is_better: bool = False

    def scores(self, values: Mapping[str, float]) -> dict[str, int]:
        real = {name: value for name, value in values.items() if math.isfinite(value)}
        if not real:
            return {}
        low, high = min(real.values()), max(real.values())
        if low == high:
            return dict.fromkeys(real, 0)
        return Linear(*((high, low) if self.less_is_better else (low, high))).scores(real)


Normalisation = Linear | Relative
