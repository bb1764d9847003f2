"""A heap of the rows with the largest values, so that the best row is found without looking at all of them.

Every row whose value is above `_floor` is in the heap. When the heap runs empty, the floor is lowered and the heap is
filled again, so no row is ever left out.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from wharfinger.framework.columns import IntColumn


class Front:
    LEAST = 256  # rows taken into the heap at once, or one in SHARE if that is more
    SHARE = 64

    __slots__ = ("_floor", "_heap", "_values", "_worst")

    def __init__(self, values: IntColumn, worst: int) -> None:
        """`worst` is the value of rows that are not feasible."""
        self._values = values
        self._worst = worst
        self._heap: list[tuple[int, int]] = []  # (negated value, row); may contain outdated values
        self._advance()

    def _advance(self) -> None:
        values = self._values.view
        size = max(self.LEAST, len(values) // self.SHARE)
        bound = self._worst + 1
        if size < len(values):
            bound = max(bound, int(np.partition(values, len(values) - size)[len(values) - size]))
        rows = np.flatnonzero(values >= bound)
        negated = -values.take(rows)
        order = np.lexsort((rows, negated))
        # A sorted list is a heap.
        self._heap = list(zip(negated.take(order).tolist(), rows.take(order).tolist(), strict=True))
        self._floor = bound - 1

    def changed(self, row: int, value: int) -> None:
        """The value of a row changed."""
        if value > self._floor:
            heappush(self._heap, (-value, row))

    def best(self) -> int:
        """The row with the largest value; -1 if no row is feasible."""
        cells = self._values.cells
        while True:
            heap = self._heap
            while heap:
                negated, row = heap[0]
                if cells[row] == -negated:
                    return row
                heappop(heap)
            if self._floor == self._worst:
                return -1
            self._advance()
