"""The value of every row for one shape, kept up to date.

A value holds the row's total score and its tie-break in one number, so that the best row is one argmax. Only rows that
changed are evaluated again: a few one by one, many as arrays.

A value combines what depends on the node, on the node and its pods, and on the whole cluster. Each of these is cached, so
that a change costs no more than the part it concerns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wharfinger.engine.cluster import ClusterScope
from wharfinger.engine.cohort import CohortPlace, Cohorts
from wharfinger.engine.front import DomainFronts, Front
from wharfinger.engine.normalized import NormalizedScorer, gapless
from wharfinger.engine.preparation import PreparedShape
from wharfinger.engine.rows import REFUSED, SHIFT, RowParts
from wharfinger.framework.columns import Bools, Flags, IntColumn, Ints, Rows, distinct
from wharfinger.framework.domains import DomainScores
from wharfinger.framework.plugin import Scope
from wharfinger.framework.tables import Tables

CALM = 8  # decisions in a row without a change of many rows, after which a heap pays
FEW_SHIFTED = 16  # up to this many rows whose normalized score changed are updated in the heap

_NO_ROWS, _NO_FLAGS = IntColumn(0), Flags(0)


class RowValues:
    """`refresh` brings the values up to date; everything else reads them as of the last refresh."""

    def __init__(self, tables: Tables, prepared: PreparedShape, cohorts: Cohorts) -> None:
        self._tables = tables
        self._parts = RowParts(tables, prepared)
        self._row_scope = self._parts.scope
        self._evaluate = self._row_scope.evaluate
        self._cohort = CohortPlace(tables, self._parts, cohorts)
        self._cluster = ClusterScope(prepared.filters, prepared.scorers)
        self._guards, self._tracked = self._cluster.guards, self._cluster.tracked  # here for fast access
        self._following = self._cluster.following
        self._row_normalized = [each for each in self._cluster.normalized if each.prepared.scope is Scope.ROW]
        self._moving = self._row_normalized  # normalizing scorers whose raw scores are kept row by row

        # The state of the tables that the values reflect.
        self._node_position = self._pod_position = -1
        self._tables_version = -1
        self._built = False

        # [row], allocated by `_build`.
        self.value = _NO_ROWS
        self._unguarded = _NO_ROWS  # values regardless of the guards; kept while there are guards
        self._node_accepts = _NO_FLAGS  # these two are those of the parts, for fast access
        self._node_base = _NO_ROWS
        # Plain scores of cluster scope, and normalized ones that differ between rows; the tables' zeros if there are none.
        self._cluster_base = _NO_ROWS

        # About the values as a whole.
        self._constant = 0  # normalized scores that are the same for all rows
        self._has_cluster_base = False
        self._sensitive = False  # whether scores depend on which rows are feasible
        self._feasible: tuple[Bools, Rows] | None = None
        self._by_domain: NormalizedScorer | None = None  # the only scorer of domains, which shifts their values

        self._front: Front | DomainFronts | None = None
        self._calm = 0  # decisions since many rows changed at once

    # -- reading

    def best(self) -> int:
        """The row with the largest value; -1 if no row is feasible."""
        if self._front is None:
            self._calm += 1
            if self._calm < CALM:
                row = int(self.value.view.argmax())
                return row if self.value.cells[row] != REFUSED else -1
            self._front = self._new_front()
        return self._front.best()

    def _new_front(self) -> Front | DomainFronts:
        scorer = self._by_domain
        if scorer is None or scorer.rows is None or scorer.domains is None:
            return Front(self.value, REFUSED)
        return DomainFronts(self.value, REFUSED, scorer.rows, scorer.domains)

    def value_of(self, row: int) -> int:
        """The value of a row, with what is not written to the rows."""
        value, front = self.value.cells[row], self._front
        return value if value == REFUSED or not isinstance(front, DomainFronts) else value + front.shift_of(row)

    def accepted(self) -> Bools:
        """The rows that pass all filters, regardless of nominated pods and overlays."""
        return self._cluster.accepted(self._parts.keep_all()[0])

    @property
    def nodes_accept(self) -> bool:
        """Whether all filters of node scope accept all rows."""
        return self._parts.nodes_accept

    def node_accepts(self, row: int) -> bool:
        """Whether all filters of node scope accept the row."""
        return bool(self._node_accepts.cells[row])

    def among(self, feasible: Bools) -> Ints:
        """The values of all rows if these were the feasible ones."""
        return np.where(feasible, self._totals(self._parts.keep_all()[1], feasible), REFUSED)

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
        elif behind == 1:
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
        position = self._pod_position
        pod_rows = pod_log.since(position)
        self._pod_position = pod_log.position
        if node_rows is None or pod_rows is None or not self._built:
            self._build()
            return
        filtered, all_changed = self._refresh_cluster()
        if node_rows:
            self._refresh_nodes(distinct(node_rows))
            all_changed = True
        if pod_rows:
            if len(pod_rows) == 1:
                all_changed = self._refresh_row(pod_rows[0]) or all_changed
            elif len(pod_rows) <= self._row_scope.few:
                all_changed = self._refresh_few(pod_rows) or all_changed
            elif node_rows or filtered or all_changed or not self._refresh_together(position):
                rows = np.array(pod_rows, dtype=np.int64)
                if len(rows) > 256:
                    rows = distinct(rows)
                all_changed = self._refresh_rows(rows[tables.alive.take(rows)]) or all_changed
        if all_changed or (filtered and self._sensitive):
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
        self._unguarded = _NO_ROWS
        parts = self._parts
        parts.allocate(size)
        self._node_accepts = parts.node_accepts
        self._cluster_base = tables.zeros
        self._constant = 0
        self._has_cluster_base = self._sensitive = False
        self._feasible = None
        self._cluster.reset(size)
        self._follow_cluster()
        self._evaluate_nodes(tables.rows)
        tables.work.rows += len(tables.row_of)
        evaluated = parts.evaluate_all()
        for scorer in self._moving:
            self._score_moving(scorer, tables.rows)
        self._built = True
        self._refresh_cluster()
        self._combine(evaluated)

    # -- rows that changed
    #
    # These return whether the change affects other rows too, so that all values must be combined again.

    def _refresh_nodes(self, rows: Rows) -> None:
        """Evaluates rows whose node changed, except for cluster scope."""
        self._refresh_rows(self._evaluate_nodes(rows))

    def _evaluate_nodes(self, rows: Rows) -> Rows:
        """Evaluates node scope; returns those of the rows that have a node."""
        rows = self._parts.evaluate_nodes(rows)
        self._node_base = self._parts.node_base
        for scorer in self._cluster.normalized:
            if scorer.prepared.scope is Scope.NODE:
                scorer.nodes_changed(self._tables, rows)
        return rows

    def _refresh_few(self, rows: Sequence[int]) -> bool:
        self._pod_position = self._tables.pod_log.position
        all_changed = False
        distinct = dict.fromkeys(rows)  # a pod that uses a reservation changes its row twice
        for row in distinct:
            all_changed = self._refresh_row(row) or all_changed
        return all_changed

    def _refresh_row(self, row: int) -> bool:
        """`_refresh_rows` for one row, without arrays."""
        tables = self._tables
        if tables.nodes[row] is None:
            return False
        tables.work.rows += 1
        accepts, base = self._evaluate(row)
        base += self._node_base.cells[row]
        if self._parts.kept:
            self._parts.row_accepts.cells[row] = accepts
            self._parts.base.cells[row] = base
        if not self._node_accepts.cells[row]:
            accepts = False
        feasible = accepts
        for guard in self._guards:
            if guard.prepared.follows_pods:
                guard.accepted[row] = guard.prepared.filter_row(row) == 0
            feasible = feasible and bool(guard.accepted[row])
        for part in self._following:
            gained = part.gained(row)
            if gained:
                self._cluster_base.cells[row] += gained
        cells = self.value.cells
        flips = self._sensitive and (cells[row] != REFUSED) != feasible
        if flips and not feasible and self._leave_row(row):
            flips = False
        if self._moving and self._move_row(row, counted=feasible and not flips):
            flips = True
        if flips:
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

    def _move_row(self, row: int, *, counted: bool) -> bool:
        """Scores a row again for the normalizing scorers. `counted` is whether the row is feasible, as it was before."""
        all_changed = False
        for scorer in self._moving:
            raw = scorer.prepared.score_row(row)
            before = int(scorer.raw[row])
            if not scorer.tracked and not (scorer.scaled and scorer.prepared.scales):
                all_changed = True  # final scores may change although raw scores do not
            if raw == before:
                continue
            if not counted or scorer.rows is None:
                scorer.raw[row] = raw
                continue
            classes = scorer.classify()
            scorer.raw[row] = raw
            if classes is None:
                scorer.stale = True
                all_changed = all_changed or not scorer.tracked
                continue
            final = classes.final(before)
            changed = classes.move(before, raw)
            if changed is None:
                scorer.classes = None
                all_changed = True
                continue
            self._cluster_base.cells[row] += (classes.final(raw) - final) * scorer.weight
            if changed:
                self._shift_classes(scorer, changed, row)
        return all_changed

    def _leave_row(self, row: int) -> bool:
        """Takes a row that is no longer feasible out of the classes of all scores that depend on which rows are feasible;
        returns whether that is enough."""
        scorers = [each for each in self._cluster.normalized if each.active and not each.uniform]
        if any(each not in self._moving or each.classify() is None for each in scorers):
            return False
        for scorer in scorers:
            changed = scorer.classes.leave(int(scorer.raw[row])) if scorer.classes is not None else None
            if changed is None:
                return False
            if changed:
                self._shift_classes(scorer, changed, row)
        return True

    def _shift_classes(self, scorer: NormalizedScorer, changed: Mapping[int, int], row: int) -> None:
        """Adds to the values of the rows whose raw score got another final score, except for one row."""
        assert scorer.rows is not None
        raw = scorer.raw.take(scorer.rows)
        for value, gained in changed.items():
            rows = scorer.rows[raw == value]
            rows = rows[(rows != row) & (self.value.take(rows) != REFUSED)]
            self._add(rows, np.int64(gained * scorer.weight))

    def _add(self, rows: Rows, gained: Ints | np.int64) -> None:
        """Adds to the scores of feasible rows, and keeps the heap if they are few."""
        self._write(rows, gained)
        if len(rows) > FEW_SHIFTED:
            self._many_changed()
        elif self._front is not None:
            for row in rows.tolist():
                self._front.changed(row, self.value.cells[row])

    def _refresh_rows(self, rows: Rows) -> bool:
        """Evaluates rows whose pods changed, as arrays."""
        self._tables.work.rows += len(rows)
        accepts, base = self._parts.evaluate_rows(rows)
        guarded: Bools | None = None
        for guard in self._guards:
            if guard.prepared.follows_pods:
                guard.accepted[rows] = guard.prepared.accepts(rows)
            found = guard.accepted.take(rows)
            guarded = found if guarded is None else guarded & found
        for scorer in self._moving:
            self._score_moving(scorer, rows)
        for part in self._following:
            gained = part.gained_on(rows)
            if gained.any():
                self._cluster_base.view[rows] += gained
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

    @staticmethod
    def _score_moving(scorer: NormalizedScorer, rows: Rows) -> None:
        scorer.raw[rows] = scorer.prepared.score(rows)
        scorer.stale = True
        scorer.classes = None

    # -- rows that were evaluated for many shapes at once

    def _refresh_together(self, position: int) -> bool:
        """Takes the values of the rows that changed after a position of the pod log from the cohort; returns whether it has
        them. Not where the values of some rows depend on others."""
        if self._sensitive or self._guards or self._moving or self._following:
            return False
        found = self._cohort.changed(position, self._constant, self._cluster_base if self._has_cluster_base else None)
        if found is None:
            return False
        rows, values, late = found
        self.value.view[rows] = values
        self._parts.leave_out(position)
        self._many_changed()
        self._refresh_late(late)
        return True

    def _refresh_late(self, rows: Sequence[int]) -> None:
        """Evaluates rows whose parts are left out and whose values depend on no others."""
        self._tables.work.rows += len(rows)
        values, ties = self.value.cells, self._tables.tie_breaks.cells
        accepted, node_base, cluster_base = self._node_accepts.cells, self._node_base.cells, self._cluster_base.cells
        for row in rows:
            value = REFUSED
            if accepted[row]:
                accepts, base = self._evaluate(row)
                if accepts:
                    value = (base + node_base[row] + cluster_base[row] + self._constant << SHIFT) - ties[row]
            values[row] = value

    def size(self) -> int:
        """The bytes that the arrays take."""
        columns = [self.value, self._unguarded, *((self._cluster_base,) if self._has_cluster_base else ())]
        return self._parts.size() + self._cluster.size() + sum(8 * len(each.cells) for each in columns)

    def close(self) -> None:
        """The values are dropped."""
        self._cohort.leave()

    # -- cluster scope

    def _refresh_cluster(self) -> tuple[bool, bool]:
        """Evaluates cluster scope; returns whether filters changed, and whether all values must be combined again."""
        tables = self._tables
        if self._tables_version == tables.version:
            return False, False
        self._tables_version = tables.version
        cluster = self._cluster
        filtered, scored, rescored = cluster.refresh(tables)
        self._follow_cluster()
        if not scored:
            for scorer in rescored:
                self._rescore(scorer)
        return filtered, scored

    def _follow_cluster(self) -> None:
        """The cluster scope may have other guards and other tracked scorers."""
        self._guards = self._cluster.guards
        if self._guards and self._unguarded is _NO_ROWS:
            self._unguarded = IntColumn(len(self.value.cells), REFUSED)
        if self._tracked is not self._cluster.tracked:
            self._tracked = self._cluster.tracked
            self._moving = [*self._tracked, *self._row_normalized]

    def _rescore(self, scorer: NormalizedScorer) -> None:
        """Adds the difference to all values when scores changed while the same rows are feasible."""
        if scorer.rows is None:
            scorer.stale = False
            return  # no row is feasible
        if scorer.domains is not None:
            self._rescore_domains(scorer, scorer.rows, scorer.domains)
            return
        found = scorer.gained(self._tables)
        if found is None:
            self._combine()
        elif len(found[0]):
            self._add(found[0], found[1] * scorer.weight)

    def _rescore_domains(self, scorer: NormalizedScorer, rows: Rows, domains: DomainScores) -> None:
        """`_rescore` where whole domains got another score."""
        found = scorer.prepared.by_domain(rows)
        if found is None or found[0] is not domains:
            self._combine()
            return
        before, after = scorer.by_domain, found[1]
        if before == after:
            return
        scorer.by_domain = after
        if isinstance(self._front, DomainFronts) and scorer is self._by_domain:
            self._front.rescore(before, after, scorer.weight << SHIFT)
            return
        gained = [(new - old) * scorer.weight for new, old in zip(after, before, strict=True)]
        self._tables.work.rows += len(rows)
        self._write(rows, np.array(gained, dtype=np.int64).take(domains.index))
        if self._front is not None or scorer is not self._by_domain:
            self._many_changed()

    def _apply_guards(self) -> None:
        """Applies the guards again, to the same scores."""
        self.value.view[:] = np.where(self._cluster.accepted(self._tables.alive), self._unguarded.view, REFUSED)
        self._many_changed()

    # -- combining

    def _combine(self, evaluated: tuple[Bools, Ints] | None = None) -> None:
        """Computes all values, from what was evaluated just now or from the parts that are kept."""
        self._tables.work.totals += 1
        self._front = None
        own, base = self._parts.keep_all() if evaluated is None else evaluated
        feasible = self._cluster.accepted(own)
        total = self._totals(base, feasible, keep=True)
        if self._guards:
            self._unguarded.view[:] = np.where(own, total, REFUSED)
        self.value.view[:] = np.where(feasible, total, REFUSED)
        self._many_changed()

    def _totals(self, own: Ints, accepted: Bools, *, keep: bool = False) -> Ints:
        """Values for a set of feasible rows, from the scores of node and row scope; for the other rows they lack the normalized
        scores. `keep` remembers what single rows need to be updated later."""
        constant, base = 0, self._cluster.plain_scores()
        rows: Rows | None = None
        for scorer in self._cluster.normalized:
            if keep:
                scorer.forget()
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
                scorer.contained(rows, final)
            if base is None:
                base = np.zeros(self._tables.capacity, dtype=np.int64)
                base[rows] = final * scorer.weight
            else:
                base[rows] += final * scorer.weight
        total = own + constant
        if base is not None:
            total += base
        if keep:
            self._sensitive = any(each.active and not each.uniform for each in self._cluster.normalized)
            by_domain = [each for each in self._cluster.normalized if each.domains is not None]
            self._by_domain = by_domain[0] if len(by_domain) == 1 else None
            self._constant = constant
            if base is not None:
                if not self._has_cluster_base:
                    self._cluster_base = IntColumn(len(base))
                self._cluster_base.view[:] = base
            elif self._has_cluster_base:
                self._cluster_base = self._tables.zeros
            self._has_cluster_base = base is not None
        total <<= SHIFT
        total -= self._tables.tie_breaks.view
        return total

    def _feasible_rows(self, accepted: Bools) -> Rows:
        """The same array while the same rows are feasible, so that plugins may cache what follows from it."""
        if self._feasible is None or not np.array_equal(accepted, self._feasible[0]):
            alive = self._tables.alive
            if np.array_equal(accepted, alive):  # all shapes of which that is true share their rows
                self._feasible = (accepted.copy(), self._tables.rows)
            else:
                self._feasible = (accepted.copy(), np.flatnonzero(accepted))
        return self._feasible[1]

    def _many_changed(self) -> None:
        front, self._front = self._front, None
        self._calm = 0
        if isinstance(front, DomainFronts) and any(front.shifts):
            self._write(front.rows, front.by_row() >> SHIFT)

    def _write(self, rows: Rows, gained: Ints | np.int64) -> None:
        """Adds to the scores of feasible rows, which are in order."""
        if gapless(rows):
            within = slice(rows[0], rows[-1] + 1)
            self._cluster_base.view[within] += gained
            self.value.view[within] += gained << SHIFT
            return
        self._cluster_base.view[rows] += gained
        self.value.view[rows] += gained << SHIFT
