"""NodeResourcesFit and NodeResourcesBalancedAllocation for many shapes at once.

Quotients are computed in floating point. They are exact where they are rounded down: amounts below `LARGEST` are exact, and
so small that no quotient is rounded up to a whole number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wharfinger.framework.columns import Bools, Floats, IntColumn
from wharfinger.framework.joint import JointAnswers
from wharfinger.framework.plugin import MAX_SCORE
from wharfinger.framework.tables import Tables
from wharfinger.plugins.node_resources.scoring import Used

LARGEST = 1 << 45

_HALF, _ONE, _ZERO, _FULL = (np.array(each) for each in (0.5, 1.0, 0.0, float(MAX_SCORE)))


def _column(values: Sequence[float]) -> Floats:
    """[row, 1]"""
    return np.array(values, dtype=np.float64)[:, None]


class _Amounts:
    """What the pods of each shape take of one resource."""

    __slots__ = ("allocatable", "amounts", "capacities", "most", "requested", "scaled", "weight")

    def __init__(self, resource: Used, amounts: Sequence[int]) -> None:
        self.allocatable = resource.allocatable
        self.capacities = resource.allocatable.cells
        self.requested = resource.requested.cells
        self.weight = resource.weight
        self.amounts: Floats = np.array(amounts, dtype=np.float64)
        self.scaled: Floats = self.amounts * MAX_SCORE
        self.most = max(amounts)


class JointResources(JointAnswers):
    """Amounts of the same resources for several shapes. `used` are those of each shape, in the same order."""

    def __init__(self, tables: Tables, used: Sequence[Sequence[Used]]) -> None:
        self._tables = tables
        self._resources = [_Amounts(each[0], [one.amount for one in each]) for each in zip(*used, strict=True)]
        self._weights = np.array(float(sum(each.weight for each in self._resources)))

    def possible(self) -> bool:
        tables = self._tables
        return all(
            each.most < LARGEST
            and tables.everywhere(each.allocatable)
            and int(each.allocatable.view.max(initial=0)) < LARGEST
            for each in self._resources
        )


class JointLeast(JointResources):
    """The scores of LeastAllocated."""

    def scores(self, rows: Sequence[int]) -> Floats:
        total: Floats | None = None
        for each in self._resources:
            capacities = [each.capacities[row] for row in rows]
            free = [capacity - each.requested[row] for capacity, row in zip(capacities, rows, strict=True)]
            part: Floats = _column([MAX_SCORE * amount for amount in free]) - each.scaled
            if min(free) < each.most:
                np.maximum(part, _ZERO, out=part)
            part /= _column(capacities)
            np.floor(part, out=part)
            if each.weight != 1:
                part *= each.weight
            total = part if total is None else np.add(total, part, out=total)
        assert total is not None
        total /= self._weights
        return np.floor(total, out=total)


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

    def scores(self, rows: Sequence[int]) -> Floats:
        first, second = self._resources
        apart = self._fractions(first, rows)
        apart -= self._fractions(second, rows)
        np.abs(apart, out=apart)
        apart *= _HALF
        np.subtract(_ONE, apart, out=apart)
        apart *= _FULL
        np.floor(apart, out=apart)
        half = MAX_SCORE // 2
        apart += _column([half - self._evenness(row) for row in rows])
        apart *= _HALF
        np.floor(apart, out=apart)
        apart += half
        return apart

    @staticmethod
    def _fractions(each: _Amounts, rows: Sequence[int]) -> Floats:
        """The utilization with the pod."""
        capacities = [each.capacities[row] for row in rows]
        requested = [each.requested[row] for row in rows]
        found: Floats = _column(requested) + each.amounts
        found /= _column(capacities)
        if min([capacity - used for used, capacity in zip(requested, capacities, strict=True)]) < each.most:
            np.minimum(found, _ONE, out=found)
        return found

    def _evenness(self, row: int) -> int:
        """Without the pod."""
        first, second = [min(each.requested[row] / each.capacities[row], 1.0) for each in self._resources]
        return int((1 - abs((first - second) / 2)) * 100.0)
