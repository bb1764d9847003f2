"""Caches of results that follow from single rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf

import numpy as np

from wharfinger.engine.outcome import Candidate, RankedCandidates
from wharfinger.engine.preparation import Filters
from wharfinger.engine.victims import DryRuns
from wharfinger.framework.columns import Bools, Floats, Ints, Rows
from wharfinger.framework.plugin import Prepared
from wharfinger.framework.status import Status
from wharfinger.framework.tables import Tables


class RowCache(ABC):
    """Results for rows, dropped when the node or the pods of a row change.

    Results for rows with nominated pods depend on those too, so they are dropped at every `catch_up`, and once more when
    the nominated pods are gone.
    """

    def __init__(self) -> None:
        self._node_position = self._pod_position = -1
        self._nominated: list[int] = []

    def catch_up(self, tables: Tables) -> None:
        self.drop(tables.node_log.since(self._node_position))
        self.drop(tables.pod_log.since(self._pod_position))
        self._node_position, self._pod_position = tables.node_log.position, tables.pod_log.position
        self.drop(self._nominated)
        self._nominated = [tables.row_of[name] for name in tables.nominated if name in tables.row_of]
        self.drop(self._nominated)

    @abstractmethod
    def drop(self, rows: Sequence[int] | None) -> None:
        """Drops the results of some rows, or of all with None."""


class VerdictCache(RowCache):
    """Whether rows are feasible: 1, 0, or -1 for not evaluated yet."""

    def __init__(self) -> None:
        super().__init__()
        self.by_row: Ints = np.zeros(0, dtype=np.int64)
        self._beyond_rows = False  # whether the verdicts depend on more than their rows

    def depend(self, *, beyond_rows: bool) -> None:
        """Says whether verdicts depend on more than their rows now. If they do or did, none is kept."""
        if beyond_rows or self._beyond_rows:
            self.drop(None)
        self._beyond_rows = beyond_rows

    def catch_up(self, tables: Tables) -> None:
        if len(self.by_row) != tables.capacity:
            self.by_row = np.full(tables.capacity, -1, dtype=np.int64)
        super().catch_up(tables)

    def drop(self, rows: Sequence[int] | None) -> None:
        if rows is None:
            self.by_row[:] = -1
        elif rows:
            self.by_row[rows] = -1


class CandidateCache(RowCache):
    """What evictions would achieve on rows. Also depends on the disruption budgets: see `budgets_changed`.

    The ranks of the candidates are columns, so that the best are found without a loop over all rows.
    """

    PARTS = 5  # of a rank

    def __init__(self) -> None:
        super().__init__()
        self.by_row: list[Candidate | Status | None] = []  # outdated where the row is not known
        self._known: Bools = np.zeros(0, dtype=np.bool_)  # [row]
        self._ranks: Floats = np.zeros((self.PARTS, 0))  # [part, row]; infinite where evictions do not help
        self.sparing: dict[int, frozenset[str]] = {}  # by row: the plugins that keep pods of lower priority there
        self.refusing: set[str] = set()  # plugins that refuse rows even after evictions, under any of their overlays
        self._budgets_version = -1
        self._runs: dict[tuple[Prepared, ...], DryRuns] = {}  # by filters

    def runs(self, tables: Tables, filters: Filters) -> DryRuns:
        """The dry runs of the filters, with what they know already."""
        key = tuple([prepared for _, prepared in filters])
        found = self._runs.get(key)
        if found is None:
            found = self._runs[key] = DryRuns(tables, filters)
        return found

    def budgets_changed(self, version: int) -> None:
        """Drops everything unless the version is the one seen before."""
        if self._budgets_version != version:
            self._budgets_version = version
            self.drop(None)

    def catch_up(self, tables: Tables) -> None:
        if len(self.by_row) != tables.capacity:
            self.by_row = [None] * tables.capacity
            self._known = np.zeros(tables.capacity, dtype=np.bool_)
            self._ranks = np.full((self.PARTS, tables.capacity), np.inf)
        super().catch_up(tables)

    def drop(self, rows: Sequence[int] | None) -> None:
        if rows is None:
            self._known[:] = False
            self.sparing.clear()
        elif rows:
            self._known[rows] = False
            for row in rows if self.sparing else ():
                self.sparing.pop(row, None)

    def size(self) -> int:
        """The bytes that the results take, approximately."""
        return self._ranks.nbytes + len(self.by_row) * 8

    def unknown(self, rows: Rows) -> list[int]:
        """Those of the rows that are not known."""
        found: list[int] = rows[~self._known.take(rows)].tolist()
        return found

    def learn(self, rows: Sequence[int], found: Sequence[Candidate | Status]) -> None:
        nothing = (inf,) * self.PARTS
        for row, each in zip(rows, found, strict=True):
            self.by_row[row] = each
        self._known[rows] = True
        self._ranks[:, rows] = np.array([each.rank if isinstance(each, Candidate) else nothing for each in found]).T

    def cheapest(self, rows: Rows) -> Rows:
        """The best of the rows by everything in a rank but the start time; none if evictions help nowhere."""
        for part in self._ranks[:-1]:
            of_rows = part.take(rows)
            least = of_rows.min()
            if least == inf:
                return rows[:0]
            rows = rows[of_rows == least]
        return rows

    def latest(self, rows: Rows) -> Rows:
        """The best of the rows by start time."""
        of_rows = self._ranks[-1].take(rows)
        return rows[of_rows == of_rows.min()] if len(rows) else rows

    def ranked(self, rows: Rows, best: Rows, chosen: int) -> RankedCandidates:
        """The candidates on the rows, as they are now."""
        candidate = self.by_row[chosen]
        assert isinstance(candidate, Candidate)
        return RankedCandidates(self.by_row.copy(), rows, best, candidate)
