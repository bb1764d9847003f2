"""NodeResourcesFit and NodeResourcesBalancedAllocation for many shapes at once.

Quotients are computed in floating point. They are exact where they are rounded down: amounts below `LARGEST` are exact, and
so small that no quotient is rounded up to a whole number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from wharfinger.framework.columns import Bools, Floats, IntColumn, Ints
from wharfinger.framework.joint import JointAnswers
from wharfinger.framework.plugin import MAX_SCORE
from wharfinger.framework.tables import Tables
from wharfinger.plugins.node_resources.scoring import Used

LARGEST = 1 << 45

_HALF, _ONE, _ZERO, _FULL = (np.array(each) for each in (0.5, 1.0, 0.0, float(MAX_SCORE)))


def _columns(values: Sequence[Sequence[int]]) -> Floats:
    """[resource, row, 1]"""
    return np.array(values, dtype=np.float64)[:, :, None]


class JointResources(JointAnswers):
    """Amounts of the same resources for several shapes. `used` are those of each shape, in the same order."""

    def __init__(self, tables: Tables, used: Sequence[Sequence[Used]]) -> None:
        self._tables = tables
        self._resources = used[0]
        self._cells = [(each.allocatable.cells, each.requested.cells) for each in used[0]]
        amounts = [[each.amount for each in of_resource] for of_resource in zip(*used, strict=True)]
        self._most = [max(each) for each in amounts]
        self._amounts: Floats = np.array(amounts, dtype=np.float64)[:, None]  # [resource, 1, shape]

    def possible(self) -> bool:
        tables = self._tables
        return all(
            most < LARGEST
            and tables.everywhere(each.allocatable)
            and int(each.allocatable.view.max(initial=0)) < LARGEST
            for each, most in zip(self._resources, self._most, strict=True)
        )

    def _fits(self, free: Iterable[Sequence[int]]) -> bool:
        """Whether what is free of each resource is enough for every shape, [resource][row]."""
        return all(min(amounts) >= most for amounts, most in zip(free, self._most, strict=True))


class JointLeast(JointResources):
    """The scores of LeastAllocated."""

    def __init__(self, tables: Tables, used: Sequence[Sequence[Used]]) -> None:
        super().__init__(tables, used)
        self._scaled = self._amounts * MAX_SCORE
        weights = [each.weight for each in self._resources]
        self._total_weight = np.array(float(sum(weights)))
        self._weights: Floats | None = (
            None if set(weights) == {1} else np.array(weights, dtype=np.float64)[:, None, None]
        )

    def scores(self, rows: Sequence[int]) -> Ints:
        capacities = [[has[row] for row in rows] for has, _ in self._cells]
        free = [[has[row] - used[row] for row in rows] for has, used in self._cells]
        parts: Floats = _columns([[MAX_SCORE * each for each in amounts] for amounts in free]) - self._scaled
        if not self._fits(free):
            np.maximum(parts, _ZERO, out=parts)
        parts /= _columns(capacities)
        np.floor(parts, out=parts)
        if self._weights is not None:
            parts *= self._weights
        total: Floats = parts[0]
        for part in parts[1:]:
            total += part
        total /= self._total_weight
        return total.astype(np.int64)


class JointFit(JointLeast):
    """NodeResourcesFit with the strategy LeastAllocated."""

    def __init__(
        self,
        tables: Tables,
        used: Sequence[Sequence[Used]],
        wanted: Sequence[tuple[IntColumn, IntColumn, Sequence[int]]],
    ) -> None:
        """`wanted` are the columns of what nodes have and what is used of it, with the amount for each shape."""
        super().__init__(tables, used)
        self._number = len(used)
        self._wanted = [
            (has.cells, requested.cells, np.array(amounts, dtype=np.int64), max(amounts))
            for has, requested, amounts in wanted
        ]

    def accepts(self, rows: Sequence[int]) -> Bools | None:
        found: Bools | None = None
        counts, limits = self._tables.pod_count.cells, self._tables.pod_limit.cells
        for index, row in enumerate(rows):
            full = counts[row] >= limits[row]
            short = [
                (amounts, has[row] - used[row])
                for has, used, amounts, most in self._wanted
                if has[row] - used[row] < most
            ]
            if not full and not short:
                continue
            if found is None:
                found = np.ones((len(rows), self._number), dtype=np.bool_)
            found[index] = not full
            for amounts, free in short:
                found[index] &= amounts <= free
        return found


class JointBalance(JointResources):
    """NodeResourcesBalancedAllocation for two resources."""

    def scores(self, rows: Sequence[int]) -> Ints:
        capacities = [[has[row] for row in rows] for has, _ in self._cells]
        requested = [[used[row] for row in rows] for _, used in self._cells]
        fractions: Floats = _columns(requested) + self._amounts
        fractions /= _columns([[2 * capacity for capacity in each] for each in capacities])
        if not self._fits([[has[row] - used[row] for row in rows] for has, used in self._cells]):
            np.minimum(fractions, _HALF, out=fractions)
        # Halving is exact, so these are half the distances between the utilizations with the pod.
        apart: Floats = fractions[0]
        apart -= fractions[1]
        np.abs(apart, out=apart)
        np.subtract(_ONE, apart, out=apart)
        apart *= _FULL
        scores = apart.astype(np.int64)
        half = MAX_SCORE // 2
        scores += np.array([3 * half - each for each in _evenness(*requested, *capacities)])[:, None]
        scores >>= 1
        return scores


def _evenness(
    used: Iterable[int], other_used: Iterable[int], capacities: Iterable[int], others: Iterable[int]
) -> list[int]:
    """Without the pod, by row."""
    return [
        int((1 - abs((min(amount / capacity, 1.0) - min(other_amount / other, 1.0)) / 2)) * 100.0)
        for amount, other_amount, capacity, other in zip(used, other_used, capacities, others, strict=True)
    ]
