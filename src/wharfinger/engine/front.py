"""The front runners: the rows with the largest values, kept in order while single rows change.

All rows stay in the race. Values above `_floor` are all in the heap; those that are not in it are at or below the floor,
so that they need no look until the heap is empty.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from wharfinger.framework.columns import IntColumn


class Front:
    LEAST = 256  # front runners taken at once, or more where rows are very many
    SHARE = 64

    __slots__ = ("_floor", "_heap", "_values", "_worst")

    def __init__(self, values: IntColumn, worst: int) -> None:
        """`worst` is the value of rows that cannot win."""
        self._values = values
        self._worst = worst
        self._heap: list[tuple[int, int]] = []  # (value negated, row), also with values that rows had before
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
        # A list in order is a heap already.
        self._heap = list(zip(negated.take(order).tolist(), rows.take(order).tolist(), strict=True))
        self._floor = bound - 1

    def changed(self, row: int, value: int) -> None:
        """A row's value is another now."""
        if value > self._floor:
            heappush(self._heap, (-value, row))

    def best(self) -> int:
        """The row with the largest value, the first of equals; -1 where none can win."""
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
