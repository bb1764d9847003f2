"""The value of every row for one shape, kept up to date.

A value holds the row's total score and its tie-break in one number, so that the best row is one argmax. Only rows that
changed are evaluated again: a few one by one, many as arrays.

A value combines what depends on the node, on the node and its pods, and on the whole cluster. Each of these is cached, so
that a change costs no more than the part it concerns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wharfinger.engine.cluster import ClusterScope, NormalizedScorer
from wharfinger.engine.front import Front
from wharfinger.engine.preparation import PreparedShape
from wharfinger.engine.rows import RowScope
from wharfinger.framework.columns import Bools, Flags, IntColumn, Ints, Rows, distinct
from wharfinger.framework.plugin import Scope
from wharfinger.framework.tables import Tables

SHIFT = 40  # score in the high bits, tie-break in the low 40
REFUSED = int(np.iinfo(np.int64).min)
CALM = 8  # decisions in a row without a change of many rows, after which a heap pays

_NO_ROWS, _NO_FLAGS = IntColumn(0), Flags(0)


class RowValues:
    """`refresh` brings the values up to date; everything else reads them as of the last refresh."""

    def __init__(self, tables: Tables, prepared: PreparedShape) -> None:
        self._tables = tables
        filters = [each for _, each in prepared.filters]
        plain = [each for each in prepared.scorers if not each.prepared.normalizes]
        self._node_filters = [each for each in filters if each.scope is Scope.NODE]
        self._node_scorers = [(each.prepared, each.weight) for each in plain if each.prepared.scope is Scope.NODE]
        self._row_scope = RowScope(
            tables,
            [each for each in filters if each.scope is Scope.ROW],
            [(each.prepared, each.weight) for each in plain if each.prepared.scope is Scope.ROW],
        )
        self._evaluate = self._row_scope.evaluate
        self._cluster = ClusterScope(prepared.filters, prepared.scorers)
        self._guards, self._tracked = self._cluster.guards, self._cluster.tracked  # here for fast access
        self._following = self._cluster.following
        self._row_normalized = [each for each in self._cluster.normalized if each.prepared.scope is Scope.ROW]
        self._overlaid = bool(prepared.overlays)

        # The state of the tables that the values reflect.
        self._node_position = self._pod_position = -1
        self._tables_version = -1
        self._built = False

        # [row], allocated by `_build`.
        self.value = _NO_ROWS
        self._unguarded = _NO_ROWS  # values regardless of the guards; kept while there are guards
        self._node_accepts = self._row_accepts = _NO_FLAGS
        self._node_base = _NO_ROWS  # plain scores of node scope
        self._base = _NO_ROWS  # plain scores of node and row scope
        self._cluster_base = _NO_ROWS  # plain scores of cluster scope, and normalized ones that differ between rows

        # About the values as a whole.
        self._constant = 0  # normalized scores that are the same for all rows
        self._has_cluster_base = False
        self._sensitive = False  # whether scores depend on which rows are feasible
        self._feasible: tuple[Bools, Rows] | None = None

        self._front: Front | None = None
        self._calm = 0  # decisions since many rows changed at once

    # -- reading

    def best(self) -> int:
        """The row with the largest value; -1 if no row is feasible."""
        if self._front is None:
            self._calm += 1
            if self._calm < CALM:
                row = int(self.value.view.argmax())
                return row if self.value.cells[row] != REFUSED else -1
            self._front = Front(self.value, REFUSED)
        return self._front.best()

    def accepted(self) -> Bools:
        """The rows that pass all filters, regardless of nominated pods and overlays."""
        return self._cluster.accepted(self._node_accepts.view & self._row_accepts.view)

    def node_accepts(self, row: int) -> bool:
        """Whether all filters of node scope accept the row."""
        return bool(self._node_accepts.cells[row])

    def among(self, feasible: Bools) -> Ints:
        """The values of all rows if these were the feasible ones."""
        return np.where(feasible, self._totals(feasible), REFUSED)

    # -- catching up with the tables

    def refresh(self) -> None:
        tables = self._tables
        pod_log = tables.pod_log
        behind = pod_log.position - self._pod_position
        if (
            behind > self._row_scope.few
            or tables.version != self._tables_version
            or tables.node_log.position != self._node_position
            or self._tracked
        ):
            self._catch_up()
        elif behind == 1 and not self._row_normalized:
            # The usual case after a pod was placed: one row changed, and nothing else.
            self._pod_position += 1
            if self._refresh_row(pod_log.last):
                self._combine()
        elif behind and self._refresh_few(pod_log.since(self._pod_position) or ()):
            self._combine()

    def _catch_up(self) -> None:
        tables = self._tables
        node_log, pod_log = tables.node_log, tables.pod_log
        node_rows: Sequence[int] | None = ()
        if node_log.position != self._node_position:
            node_rows = node_log.since(self._node_position)
            self._node_position = node_log.position
        pod_rows = pod_log.since(self._pod_position)
        self._pod_position = pod_log.position
        if node_rows is None or pod_rows is None or not self._built:
            self._build()
            self._refresh_cluster()
            self._combine()
            return
        filtered, all_changed = self._refresh_cluster()
        if node_rows:
            self._refresh_nodes(distinct(node_rows))
            all_changed = True
        if pod_rows:
            if len(pod_rows) <= self._row_scope.few:
                all_changed = self._refresh_few(pod_rows) or all_changed
            else:
                rows = np.array(pod_rows, dtype=np.int64)
                if len(rows) > 256:
                    rows = distinct(rows)
                all_changed = self._refresh_rows(rows[tables.alive.take(rows)]) or all_changed
        if all_changed or (filtered and (self._sensitive or self._overlaid)):
            self._combine()
            return
        if filtered:
            self._apply_guards()
        for scorer in self._tracked:
            if scorer.stale:
                self._rescore(scorer)

    def _build(self) -> None:
        """Evaluates all rows from scratch."""
        tables = self._tables
        size = tables.capacity
        tables.work.rebuilt += 1
        self._tables_version = -1
        self.value = IntColumn(size, REFUSED)
        self._unguarded = IntColumn(size, REFUSED)
        self._node_accepts = Flags(size)
        self._row_accepts = Flags(size)
        self._node_base = IntColumn(size)
        self._base = IntColumn(size)
        self._cluster_base = IntColumn(size)
        self._constant = 0
        self._has_cluster_base = self._sensitive = False
        self._feasible = None
        self._cluster.reset(size)
        self._guards, self._tracked = self._cluster.guards, self._cluster.tracked
        self._refresh_nodes(tables.rows)
        self._built = True

    # -- rows that changed
    #
    # These return whether the change affects other rows too, so that all values must be combined again.

    def _refresh_nodes(self, rows: Rows) -> None:
        """Evaluates rows whose node changed, except for cluster scope."""
        tables = self._tables
        alive = tables.alive[rows]
        self._node_accepts.view[rows] = alive
        rows = rows[alive]
        accepts = np.ones(len(rows), dtype=np.bool_)
        for prepared in self._node_filters:
            accepts &= prepared.accepts(rows)
        self._node_accepts.view[rows] = accepts
        base = np.zeros(len(rows), dtype=np.int64)
        for prepared, weight in self._node_scorers:
            base += prepared.score(rows) * weight
        self._node_base.view[rows] = base
        for scorer in self._cluster.normalized:
            if scorer.prepared.scope is Scope.NODE:
                scorer.nodes_changed(tables, rows)
        self._refresh_rows(rows)

    def _refresh_few(self, rows: Sequence[int]) -> bool:
        self._pod_position = self._tables.pod_log.position
        all_changed = False
        distinct = dict.fromkeys(rows)  # a pod that uses a reservation changes its row twice
        for row in distinct:
            all_changed = self._refresh_row(row) or all_changed
        if self._row_normalized:
            alive = [row for row in distinct if self._tables.nodes[row] is not None]
            self._score_rows(np.array(alive, dtype=np.int64))
        return all_changed

    def _refresh_row(self, row: int) -> bool:
        """`_refresh_rows` for one row, without arrays."""
        tables = self._tables
        if tables.nodes[row] is None:
            return False
        tables.work.rows += 1
        accepts, base = self._evaluate(row)
        self._row_accepts.cells[row] = accepts
        base += self._node_base.cells[row]
        self._base.cells[row] = base
        if not self._node_accepts.cells[row]:
            accepts = False
        feasible = accepts
        for guard in self._guards:
            if guard.prepared.follows_pods:
                guard.accepted[row] = guard.prepared.filter_row(row) == 0
            feasible = feasible and bool(guard.accepted[row])
        for scorer in self._tracked:
            raw = scorer.prepared.score_row(row)
            if raw != scorer.raw[row]:
                scorer.raw[row] = raw
                scorer.stale = True
        for part in self._following:
            self._cluster_base.cells[row] += part.gained(row)
        cells = self.value.cells
        if self._row_normalized or (self._sensitive and (cells[row] != REFUSED) != feasible):
            return True
        value = REFUSED
        if accepts:
            value = (base + self._cluster_base.cells[row] + self._constant << SHIFT) - tables.tie_breaks.cells[row]
        if self._guards:
            self._unguarded.cells[row] = value
            if not feasible:
                value = REFUSED
        cells[row] = value
        if self._front is not None:
            self._front.changed(row, value)
        return False

    def _refresh_rows(self, rows: Rows) -> bool:
        """Evaluates rows whose pods changed, as arrays."""
        self._tables.work.rows += len(rows)
        accepts = self._row_scope.accepts(rows)
        self._row_accepts.view[rows] = accepts
        base = self._node_base.take(rows)
        self._row_scope.add_scores(rows, base)
        self._base.view[rows] = base
        if self._row_normalized:
            self._score_rows(rows)
        accepts = accepts & self._node_accepts.view.take(rows)
        guarded: Bools | None = None
        for guard in self._guards:
            if guard.prepared.follows_pods:
                guard.accepted[rows] = guard.prepared.accepts(rows)
            found = guard.accepted.take(rows)
            guarded = found if guarded is None else guarded & found
        for scorer in self._tracked:
            scorer.raw[rows] = scorer.prepared.score(rows)
            scorer.stale = True
        for part in self._following:
            self._cluster_base.view[rows] += part.gained_on(rows)
        if self._row_normalized:
            return True
        if self._sensitive:
            feasible = accepts if guarded is None else accepts & guarded
            if ((self.value.take(rows) != REFUSED) != feasible).any():
                return True
        if self._has_cluster_base:
            base += self._cluster_base.take(rows)
        base += self._constant
        base <<= SHIFT
        base -= self._tables.tie_breaks.take(rows)
        base = np.where(accepts, base, REFUSED)
        if guarded is not None:
            self._unguarded.view[rows] = base
            base = np.where(guarded, base, REFUSED)
        self.value.view[rows] = base
        self._many_changed()
        return False

    def _score_rows(self, rows: Rows) -> None:
        """The raw scores of normalizing scorers of row scope."""
        for scorer in self._row_normalized:
            scorer.raw[rows] = scorer.prepared.score(rows)

    # -- cluster scope

    def _refresh_cluster(self) -> tuple[bool, bool]:
        """Evaluates cluster scope; returns whether filters changed, and whether all values must be combined again."""
        tables = self._tables
        if self._tables_version == tables.version:
            return False, False
        self._tables_version = tables.version
        cluster = self._cluster
        filtered, scored, rescored = cluster.refresh(tables)
        self._guards, self._tracked = cluster.guards, cluster.tracked
        if not scored:
            for scorer in rescored:
                self._rescore(scorer)
        return filtered, scored

    def _rescore(self, scorer: NormalizedScorer) -> None:
        """Adds the difference to all values when raw scores changed while the same rows are feasible."""
        before, rows = scorer.final, scorer.rows
        scorer.stale = False
        if before is None or rows is None:
            return  # no row is feasible
        final = scorer.final = scorer.normalized(self._tables, rows)
        if final is before:
            return
        gained = final - before
        where = np.flatnonzero(gained)
        if not len(where):
            return
        if len(where) < len(rows):
            rows, gained = rows.take(where), gained.take(where)
        gained *= scorer.weight
        self._cluster_base.view[rows] += gained
        gained <<= SHIFT
        self.value.view[rows] += gained
        self._many_changed()

    def _apply_guards(self) -> None:
        """Applies the guards again, to the same scores."""
        self.value.view[:] = np.where(self._cluster.accepted(self._tables.alive), self._unguarded.view, REFUSED)
        self._many_changed()

    # -- combining

    def _combine(self) -> None:
        """Computes all values from the cached parts."""
        if self._overlaid:
            return  # `among` does so for each pod, once the rows with overlays have been evaluated
        self._tables.work.totals += 1
        own = self._node_accepts.view & self._row_accepts.view
        feasible = self._cluster.accepted(own)
        total = self._totals(feasible, keep=True)
        if self._guards:
            self._unguarded.view[:] = np.where(own, total, REFUSED)
        self.value.view[:] = np.where(feasible, total, REFUSED)
        self._many_changed()

    def _totals(self, accepted: Bools, *, keep: bool = False) -> Ints:
        """Values for a set of feasible rows; for the other rows they lack the normalized scores. `keep` remembers what
        single rows need to be updated later."""
        constant, base = 0, self._cluster.plain_scores()
        rows: Rows | None = None
        for scorer in self._cluster.normalized:
            if keep:
                scorer.final, scorer.rows, scorer.stale = None, None, False
            if not scorer.active:
                continue
            if scorer.uniform:
                constant += scorer.constant
                continue
            rows = self._feasible_rows(accepted) if rows is None else rows
            if not len(rows):
                continue
            final = scorer.normalized(self._tables, rows)
            if keep:
                scorer.final, scorer.rows = final, rows
            if base is None:
                base = np.zeros(self._tables.capacity, dtype=np.int64)
                base[rows] = final * scorer.weight
            else:
                base[rows] += final * scorer.weight
        total = self._base.view + constant
        if base is not None:
            total += base
        if keep:
            self._sensitive = any(each.active and not each.uniform for each in self._cluster.normalized)
            self._constant = constant
            if base is not None:
                self._cluster_base.view[:] = base
            elif self._has_cluster_base:
                self._cluster_base.view[:] = 0
            self._has_cluster_base = base is not None
        total <<= SHIFT
        total -= self._tables.tie_breaks.view
        return total

    def _feasible_rows(self, accepted: Bools) -> Rows:
        """The same array while the same rows are feasible, so that plugins may cache what follows from it."""
        if self._feasible is None or not np.array_equal(accepted, self._feasible[0]):
            self._feasible = (accepted.copy(), np.flatnonzero(accepted))
        return self._feasible[1]

    def _many_changed(self) -> None:
        self._front = None
        self._calm = 0
