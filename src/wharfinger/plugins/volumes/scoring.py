"""VolumeBinding's score since 1.37 (StorageCapacityScoring): nodes whose storage would be used less are better.

If volumes are found for claims, these alone count: by class, what is requested of what they hold. Otherwise the claims to
be provisioned count, as far as their driver reports capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from wharfinger.framework.columns import Bools, Ints
from wharfinger.plugins.node_resources.scoring import MAX_CUSTOM_SCORE, UtilizationPoint, scores_by_percent

DEFAULT_SHAPE = (UtilizationPoint(0, MAX_CUSTOM_SCORE), UtilizationPoint(100, 0))


class Provision(NamedTuple):
    """A claim that may be provisioned."""

    class_name: str
    requested: int  # bytes
    where: Bools  # [row] whether it would be
    capacity: Ints  # [row] bytes that its driver reports; -1 where that is not known


class CapacityScore:
    def __init__(self, shape: Iterable[UtilizationPoint]) -> None:
        self._by_percent = scores_by_percent(tuple(shape))

    def of_volumes(self, by_class: Mapping[str, tuple[int, int]]) -> int:
        """The score for bytes requested and available, by class."""
        total = sum(int(self._of(np.array([asked]), np.array([there]))[0]) for asked, there in by_class.values())
        count = len(by_class)
        return (2 * total + count) // (2 * count) if count else 0

    def of_provisions(self, provisions: Iterable[Provision], rows: int) -> Ints:
        """As upstream, the capacity is that of the last claim of a class, and the requests are those of all."""
        requested: dict[str, Ints] = {}
        capacity: dict[str, Ints] = {}
        for each in provisions:
            asked = requested.setdefault(each.class_name, np.zeros(rows, dtype=np.int64))
            there = capacity.setdefault(each.class_name, np.full(rows, -1, dtype=np.int64))
            known = each.where & (each.capacity >= 0)
            asked[known] += each.requested
            there[known] = each.capacity[known]
        total, count = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        for name, asked in requested.items():
            known = capacity[name] >= 0
            total += np.where(known, self._of(asked, np.maximum(capacity[name], 0)), 0)
            count += known
        divisor = np.maximum(count, 1)
        mean: Ints = (2 * total + divisor) // (2 * divisor)  # rounds half up, as math.Round
        return mean

    def _of(self, requested: Ints, capacity: Ints) -> Ints:
        full = (capacity == 0) | (requested > capacity)
        percent = np.where(full, 100, requested * 100 // np.maximum(capacity, 1))
        found: Ints = self._by_percent[np.minimum(percent, 100)]
        return found
