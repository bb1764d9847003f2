"""The filters and plain scorers whose answers follow from a row: its node and the pods on it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import getitem

import numpy as np

from wharfinger.framework.columns import Bools, Ints, Rows
from wharfinger.framework.plugin import Prepared
from wharfinger.framework.tables import Tables

FEW = 12  # up to this many rows are cheaper one by one than as arrays
FEW_MEMOIZED = 40  # the same where most rows are looked up
MOST_MEMOIZED = 512  # distinct inputs; with more, looking up does not pay


class RowScope:
    """Evaluates rows, one by one or as arrays.

    When every plugin names the columns its answer depends on, single rows are memoized by the cells of those columns:
    most nodes of a cluster are alike.
    """

    __slots__ = ("_filters", "_inputs", "_memo", "_row_filters", "_row_scorers", "_scorers", "few")

    def __init__(self, tables: Tables, filters: Sequence[Prepared], scorers: Sequence[tuple[Prepared, int]]) -> None:
        self._filters = filters
        self._scorers = scorers
        functions = {each: each.row_functions() for each in (*filters, *(each for each, _ in scorers))}
        self._row_filters = [functions[each].refuses for each in filters]
        self._row_scorers = [(functions[each].score, weight) for each, weight in scorers]
        inputs = [each.inputs for each in functions.values()]
        self._memo: dict[tuple[int, ...], tuple[bool, int]] | None = None if None in inputs else {}
        columns = {id(column): column for columns in inputs if columns is not None for column in columns}
        self._inputs = [tables.sizes.cells, *(column.cells for column in columns.values())]
        self.few = FEW if self._memo is None else FEW_MEMOIZED

    def evaluate(self, row: int) -> tuple[bool, int]:
        """Whether all filters accept the row, and the sum of its scores."""
        memo = self._memo
        if memo is None:
            return self._evaluate(row)
        key = tuple(map(getitem, self._inputs, repeat(row)))
        found = memo.get(key)
        if found is None:
            found = memo[key] = self._evaluate(row)
            if len(memo) > MOST_MEMOIZED:
                self._memo, self.few = None, FEW
        return found

    def _evaluate(self, row: int) -> tuple[bool, int]:
        accepts = True
        for refuses in self._row_filters:
            if refuses(row):
                accepts = False
                break
        total = 0
        for score, weight in self._row_scorers:
            total += score(row) * weight
        return accepts, total

    def accepts(self, rows: Rows) -> Bools:
        accepts: Bools | None = None
        for prepared in self._filters:
            passed = prepared.accepts(rows)
            accepts = passed if accepts is None else accepts & passed
        return np.ones(len(rows), dtype=np.bool_) if accepts is None else accepts

    def add_scores(self, rows: Rows, total: Ints) -> None:
        """Adds the weighted scores of the rows to a total."""
        for prepared, weight in self._scorers:
            scores = prepared.score(rows)
            total += scores if weight == 1 else scores * weight
