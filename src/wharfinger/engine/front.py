"""Heaps of the rows with the largest values, so that the best row is found without looking at all of them.

Every row whose value is above `_floor` is in the heap. When the heap runs empty, the floor is lowered and the heap is
filled again, so no row is ever left out. Where the values of whole topology domains change with every pod, each domain has
a heap of its own, and the change is a number beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from wharfinger.framework.columns import IntColumn, Ints, Rows
from wharfinger.framework.domains import DomainScores


class Front:
    LEAST = 256  # rows taken into the heap at once, or one in SHARE if that is more
    SHARE = 64

    __slots__ = ("_floor", "_rows", "_values", "_worst", "first")

    def __init__(self, values: IntColumn, worst: int, rows: Rows | None = None) -> None:
        """`worst` is the value of rows that are not feasible. Only the given rows are considered, if any are given."""
        self._values = values
        self._worst = worst
        self._rows = rows
        self.first: list[tuple[int, int]] = []  # a heap of (negated value, row); may contain outdated values
        self._advance()

    def _advance(self) -> None:
        values = self._values.view if self._rows is None else self._values.take(self._rows)
        size = max(self.LEAST, len(values) // self.SHARE)
        bound = self._worst + 1
        if size < len(values):
            bound = max(bound, int(np.partition(values, len(values) - size)[len(values) - size]))
        rows = np.flatnonzero(values >= bound)
        negated = -values.take(rows)
        if self._rows is not None:
            rows = self._rows.take(rows)
        order = np.lexsort((rows, negated))
        # A sorted list is a heap.
        self.first = list(zip(negated.take(order).tolist(), rows.take(order).tolist(), strict=True))
        self._floor = bound - 1

    def changed(self, row: int, value: int) -> None:
        """The value of a row changed."""
        if value > self._floor:
            heappush(self.first, (-value, row))

    def best(self) -> int:
        """The row with the largest value; -1 if no row is feasible."""
        cells = self._values.cells
        while True:
            heap = self.first
            while heap:
                negated, row = heap[0]
                if cells[row] == -negated:
                    return row
                heappop(heap)
            if self._floor == self._worst:
                return -1
            self._advance()


_NO_DOMAIN = 255


class DomainFronts:
    """A `Front` for each domain of the feasible rows. The values of all rows of a domain are shifted by the same number,
    which is not written to the rows."""

    MOST = 64  # domains

    __slots__ = ("_domain_of", "_fronts", "_values", "domains", "rows", "shifts")

    def __init__(self, values: IntColumn, worst: int, rows: Rows, domains: DomainScores) -> None:
        """`rows` are the feasible rows."""
        self._values = values
        self.rows = rows
        self.domains = domains
        number = len(domains.codes)
        domain_of = np.full(len(values.cells), _NO_DOMAIN, dtype=np.uint8)
        domain_of[rows] = domains.index
        self._domain_of = domain_of.tobytes()  # [row]
        self._fronts = [Front(values, worst, rows[domains.index == each]) for each in range(number)]
        self.shifts = [0] * number  # [domain]

    def rescore(self, before: Sequence[int], after: Sequence[int], unit: int) -> None:
        """Adds the difference of the domains' scores, in units of a value, to the values of all their rows."""
        self.shifts = [shift + (new - old) * unit for shift, old, new in zip(self.shifts, before, after, strict=True)]

    def shift_of(self, row: int) -> int:
        domain = self._domain_of[row]
        return 0 if domain == _NO_DOMAIN else self.shifts[domain]

    def by_row(self) -> Ints:
        """The shift of each of the rows."""
        return np.array(self.shifts, dtype=np.int64).take(self.domains.index)

    def changed(self, row: int, value: int) -> None:
        """The value of a row, without the shift, changed."""
        domain = self._domain_of[row]
        if domain != _NO_DOMAIN:
            self._fronts[domain].changed(row, value)

    def best(self) -> int:
        """The row with the largest value; -1 if no row is feasible."""
        cells, best, value = self._values.cells, -1, 0
        for front, shift in zip(self._fronts, self.shifts, strict=True):
            first = front.first
            row = first[0][1] if first and cells[first[0][1]] == -first[0][0] else front.best()
            if row >= 0:
                shifted = cells[row] + shift
                if best < 0 or shifted > value or (shifted == value and row < best):
                    best, value = row, shifted
        return best
