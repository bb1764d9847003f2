"""The filters and plain scorers whose answers follow from a row: its node and the pods on it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import repeat
from operator import getitem

import numpy as np

from wharfinger.engine.preparation import PreparedShape
from wharfinger.framework.columns import Bools, Flags, IntColumn, Ints, Rows, distinct
from wharfinger.framework.plugin import Prepared, Scope
from wharfinger.framework.tables import Tables

SHIFT = 40  # of a row's value: score in the high bits, tie-break in the low 40
REFUSED = int(np.iinfo(np.int64).min)

FEW = 12  # up to this many rows are cheaper one by one than as arrays
FEW_MEMOIZED = 40  # the same where most rows are looked up
MOST_MEMOIZED = 512  # distinct inputs; with more, looking up does not pay


class RowScope:
    """Evaluates rows, one by one or as arrays.

    When every plugin names the columns its answer depends on, single rows are memoized by the cells of those columns:
    most nodes of a cluster are alike.
    """

    __slots__ = (
        "_filters",
        "_memo",
        "_row_filters",
        "_row_scorers",
        "_scorers",
        "few",
        "inputs",
        "names_inputs",
        "parts",
    )

    def __init__(self, tables: Tables, filters: Sequence[Prepared], scorers: Sequence[tuple[Prepared, int]]) -> None:
        self._filters = filters
        self._scorers = scorers
        functions = {each: each.row_functions() for each in (*filters, *(each for each, _ in scorers))}
        self._row_filters = [functions[each].refuses for each in filters]
        self._row_scorers = [(functions[each].score, weight) for each, weight in scorers]
        inputs = [each.inputs for each in functions.values()]
        self.names_inputs = None not in inputs
        self._memo: dict[tuple[int, ...], tuple[bool, int]] | None = {} if self.names_inputs else None
        columns = {id(column): column for columns in inputs if columns is not None for column in columns}
        #: With `names_inputs`, the cells on which the results for a row depend.
        self.inputs = [tables.sizes.cells, *(column.cells for column in columns.values())]
        self.few = FEW if self._memo is None else FEW_MEMOIZED
        #: All plugins, with whether they filter and the weight of their scores.
        self.parts = [
            (each, each in filters, next((weight for one, weight in scorers if one is each), 0)) for each in functions
        ]

    def joint_key(self) -> Hashable | None:
        """Equal for shapes whose rows can be evaluated together; None if that is not possible."""
        keys = [each.joint_key() for each, _, _ in self.parts]
        if not keys or None in keys:
            return None
        return tuple(
            (type(each), key, filters, weight) for (each, filters, weight), key in zip(self.parts, keys, strict=True)
        )

    def evaluate(self, row: int) -> tuple[bool, int]:
        """Whether all filters accept the row, and the sum of its scores."""
        memo = self._memo
        if memo is None:
            return self._evaluate(row)
        key = tuple(map(getitem, self.inputs, repeat(row)))
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


class NodeParts:
    """What node scope says about each row, apart from scores that are normalized."""

    def __init__(self, tables: Tables, filters: Sequence[Prepared], scorers: Sequence[tuple[Prepared, int]]) -> None:
        """The filters, and the scorers with their weights, are those of node scope."""
        self._tables = tables
        self._node_filters = filters
        self._node_scorers = scorers
        self.allocate(0)

    def allocate(self, size: int) -> None:
        """Everything is to be evaluated."""
        self.node_accepts = Flags(size)
        self.node_base = self._tables.zeros  # scores
        self.nodes_accept = False  # whether filters accept all rows
        self.nodes_score = False  # whether scores are not all zero

    def evaluate_nodes(self, rows: Rows) -> Rows:
        """Evaluates rows; returns those of them that have a node."""
        tables = self._tables
        alive = tables.alive[rows]
        self.node_accepts.view[rows] = alive
        rows = rows[alive]
        accepts = np.ones(len(rows), dtype=np.bool_)
        for prepared in self._node_filters:
            accepts &= prepared.accepts(rows)
        self.node_accepts.view[rows] = accepts
        base = np.zeros(len(rows), dtype=np.int64)
        for prepared, weight in self._node_scorers:
            base += prepared.score(rows) * weight
        if self.node_base is tables.zeros and base.any():
            self.node_base = IntColumn(tables.capacity)
        if self.node_base is not tables.zeros:
            self.node_base.view[rows] = base
        everything = len(rows) == len(tables.row_of)
        self.nodes_accept = bool((accepts if everything else self.node_accepts.view.take(tables.rows)).all())
        self.nodes_score = self.node_base is not tables.zeros
        return rows

    def size(self) -> int:
        """The bytes that this takes."""
        return len(self.node_accepts.cells) * (9 if self.nodes_score else 1)


class RowParts(NodeParts):
    """What node scope and row scope say about each row, apart from scores that are normalized."""

    def __init__(self, tables: Tables, prepared: PreparedShape) -> None:
        filters = [each for _, each in prepared.filters]
        plain = [(each.prepared, each.weight) for each in prepared.scorers if not each.prepared.normalizes]
        self.scope = RowScope(
            tables,
            [each for each in filters if each.scope is Scope.ROW],
            [each for each in plain if each[0].scope is Scope.ROW],
        )
        super().__init__(
            tables,
            [each for each in filters if each.scope is Scope.NODE],
            [each for each in plain if each[0].scope is Scope.NODE],
        )

    def allocate(self, size: int) -> None:
        super().allocate(size)
        self.kept = False  # whether the columns are kept: they are needed only where values are combined again
        self.row_accepts = Flags(0)
        self.base = IntColumn(0)  # scores of node and row scope
        self._unsettled = -1  # position of the pod log after which rows were left out; -1: none were

    def evaluate_rows(self, rows: Rows) -> tuple[Bools, Ints]:
        """Evaluates row scope; returns the verdicts and scores of both scopes."""
        accepts = self.scope.accepts(rows)
        base = self.node_base.take(rows)
        self.scope.add_scores(rows, base)
        if self.kept:
            self.row_accepts.view[rows] = accepts
            self.base.view[rows] = base
        return accepts & self.node_accepts.view.take(rows), base

    def evaluate_all(self) -> tuple[Bools, Ints]:
        """The verdicts and scores of both scopes for all rows, without keeping them. [row]"""
        tables = self._tables
        accepts, base = np.zeros(tables.capacity, dtype=np.bool_), np.zeros(tables.capacity, dtype=np.int64)
        accepts[tables.rows], base[tables.rows] = self.evaluate_rows(tables.rows)
        return accepts, base

    def keep_all(self) -> tuple[Bools, Ints]:
        """The same from columns that are kept from now on."""
        if self.kept:
            self._settle()
        else:
            self.kept = True
            tables = self._tables
            tables.work.rows += len(tables.row_of)
            self.row_accepts, self.base = Flags(tables.capacity), IntColumn(tables.capacity)
            self.evaluate_rows(tables.rows)
        return self.node_accepts.view & self.row_accepts.view, self.base.view

    def size(self) -> int:
        return super().size() + len(self.row_accepts.cells) * 9

    def leave_out(self, position: int) -> None:
        """Row scope is not evaluated for the rows that changed after a position of the pod log, until it is needed."""
        if self.kept and self._unsettled < 0:
            self._unsettled = position

    def _settle(self) -> None:
        """Evaluates the rows that were left out."""
        if self._unsettled < 0:
            return
        tables, rows = self._tables, self._tables.pod_log.since(self._unsettled)
        self._unsettled = -1
        if rows is None:
            self.evaluate_rows(tables.rows)
        elif rows:
            found = distinct(rows)
            self.evaluate_rows(found[tables.alive.take(found)])
