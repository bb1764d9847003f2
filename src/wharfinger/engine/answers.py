"""What the plugins say on one shape, for every row, kept up to date.

`value` holds a row's total score and its turn among equals in one number, so that the best row is one argmax. Rows are
asked for again only when they changed: a few one by one, many as arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wharfinger.framework.columns import Bools, Column, Ints, Rows
from wharfinger.framework.plugin import Plugin, Prepared, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Code, Status, unresolvable
from wharfinger.framework.tables import Tables

SHIFT = 40  # the total stands above the turn
REFUSED = int(np.iinfo(np.int64).min)
FEW = 12  # up to so many rows are cheaper one by one


@dataclass(slots=True)
class Scorer:
    plugin: str
    prepared: Prepared
    weight: int
    raw: Ints | None = None  # kept raw scores of one that normalizes
    uniform: bool = False  # whether all raw scores are equal, so that normalising cannot tell rows apart


@dataclass(slots=True)
class ClusterPart:
    """A part that may change for all rows at once: the version it was computed at, and the result."""

    prepared: Prepared
    weight: int
    version: int = -1
    active: bool = False
    accepted: Bools | None = None
    scores: Ints | None = None


class Answers:
    def __init__(
        self, tables: Tables, shape: Shape, points: Mapping[str, Sequence[Plugin]], weights: Mapping[str, int]
    ) -> None:
        self._tables = tables
        self.shape = shape
        self.prepared: dict[str, Prepared] = {}
        self.refusal: Status | None = None
        self.only: frozenset[str] | None = None  # the nodes that plugins narrowed the choice to
        self.narrowed_by: list[str] = []
        self._prepare(points)
        self.filters = [
            (plugin.name, self.prepared[plugin.name])
            for plugin in points["filter"]
            if plugin.name in self.prepared and self.prepared[plugin.name].filters
        ]
        self.scorers = [
            Scorer(plugin.name, self.prepared[plugin.name], weights[plugin.name])
            for plugin in points["score"]
            if plugin.name in self.prepared and self.prepared[plugin.name].scores
        ]
        self.overlaying = [each for each in self.prepared.values() if each.overlaid]
        self._sort()
        self.value = Column(0)
        self._built = False

    def _prepare(self, points: Mapping[str, Sequence[Plugin]]) -> None:
        at_filter = [*points["preFilter"], *(each for each in points["filter"] if each not in points["preFilter"])]
        at_score = [each for each in points["score"] if each not in at_filter]
        for plugin in (*at_filter, *at_score):
            answer = plugin.prepare(self.shape)
            if answer is None:
                continue
            if isinstance(answer, Status):
                # One that only evictions could help is remembered while the others are asked.
                if plugin in at_filter and (self.refusal is None or answer.code is not Code.UNSCHEDULABLE):
                    self.refusal = answer.by(plugin.name)
                    if answer.code is not Code.UNSCHEDULABLE:
                        return
                continue
            self.prepared[plugin.name] = answer
            if answer.nodes is not None:
                self.narrowed_by.append(plugin.name)
                self.only = answer.nodes if self.only is None else self.only & answer.nodes
                if not self.only:
                    names = sorted(self.narrowed_by)
                    what = f"plugin {names[0]}" if len(names) == 1 else f"plugin(s) [{' '.join(names)}] simultaneously"
                    self.refusal = unresolvable(f"node(s) didn't satisfy {what}")
                    return

    def close(self) -> None:
        for prepared in self.prepared.values():
            prepared.close()

    # -- keeping up

    def _sort(self) -> None:
        """Parts by what their answers depend on."""
        self._node_filters = [each for _, each in self.filters if each.scope is Scope.NODE]
        self._row_filters = [each for _, each in self.filters if each.scope is Scope.ROW]
        self._cluster_filters = [ClusterPart(each, 0) for _, each in self.filters if each.scope is Scope.CLUSTER]
        plain = [each for each in self.scorers if not each.prepared.normalizes]
        self._node_scorers = [(e.prepared, e.weight) for e in plain if e.prepared.scope is Scope.NODE]
        self._row_scorers = [(e.prepared, e.weight) for e in plain if e.prepared.scope is Scope.ROW]
        self._cluster_scorers = [ClusterPart(e.prepared, e.weight) for e in plain if e.prepared.scope is Scope.CLUSTER]
        self._normalized = [each for each in self.scorers if each.prepared.normalizes]
        self._normalized_versions = [-1] * len(self._normalized)

    def _build(self) -> None:
        tables = self._tables
        size = tables.capacity
        self._tables.work.rebuilt += 1
        self._node_position = tables.node_log.position
        self._pod_position = tables.pod_log.position
        self._node_accepts: Bools = np.zeros(size, dtype=np.bool_)
        self._row_accepts: Bools = np.zeros(size, dtype=np.bool_)
        self._node_base = Column(size)
        self._row_base = Column(size)
        self._cluster_base = Column(size)  # plain cluster-wide scores and normalised ones that differ between rows
        self._constant = 0  # normalised scores that are the same for all
        self.value = Column(size, REFUSED)
        for scorer in self._normalized:
            scorer.raw = np.zeros(size, dtype=np.int64)
        self._refresh_nodes(tables.rows)
        self._built = True

    def _refresh_nodes(self, rows: Rows) -> None:
        """Everything about rows whose node changed, but for the cluster-wide parts."""
        alive = self._tables.alive[rows]
        self._node_accepts[rows] = alive
        rows = rows[alive]
        self._tables.work.rows += len(rows)
        accepts = np.ones(len(rows), dtype=np.bool_)
        for prepared in self._node_filters:
            accepts &= prepared.filter(rows) == 0
        self._node_accepts[rows] = accepts
        base = np.zeros(len(rows), dtype=np.int64)
        for prepared, weight in self._node_scorers:
            base += prepared.score(rows) * weight
        self._node_base.view[rows] = base
        for scorer in self._normalized:
            if scorer.prepared.scope is Scope.NODE:
                assert scorer.raw is not None
                scorer.raw[rows] = scorer.prepared.score(rows)
        self._refresh_rows(rows)

    def _refresh_rows(self, rows: Rows) -> None:
        """What depends on the pods of a row."""
        self._tables.work.rows += len(rows)
        accepts = np.ones(len(rows), dtype=np.bool_)
        for prepared in self._row_filters:
            accepts &= prepared.filter(rows) == 0
        self._row_accepts[rows] = accepts
        base = np.zeros(len(rows), dtype=np.int64)
        for prepared, weight in self._row_scorers:
            base += prepared.score(rows) * weight
        self._row_base.view[rows] = base
        for scorer in self._normalized:
            if scorer.prepared.scope is Scope.ROW:
                assert scorer.raw is not None
                scorer.raw[rows] = scorer.prepared.score(rows)

    def refresh(self) -> None:
        """Catches up with the tables."""
        tables = self._tables
        if not self._built:
            self._build()
            self._refresh_cluster()
            self._put_together()
            return
        node_rows = tables.node_log.since(self._node_position)
        pod_rows = tables.pod_log.since(self._pod_position)
        if node_rows is None or pod_rows is None:
            self._build()
            self._refresh_cluster()
            self._put_together()
            return
        all_changed = self._refresh_cluster()
        if node_rows:
            self._node_position = tables.node_log.position
            self._refresh_nodes(np.unique(node_rows))
            all_changed = True
        if pod_rows:
            self._pod_position = tables.pod_log.position
            if all_changed or len(pod_rows) > FEW:
                rows = np.unique(pod_rows)
                rows = rows[tables.alive[rows]]
                self._refresh_rows(rows)
                all_changed = all_changed or not self._put_rows(rows)
            else:
                all_changed = not self._put_each(pod_rows)
        if all_changed:
            self._put_together()

    def _refresh_cluster(self) -> bool:
        """The parts that may change for all rows at once; says whether one did."""
        changed = False
        for part in self._cluster_filters:
            version = part.prepared.version
            if version != part.version:
                part.version = version
                part.active = part.prepared.filtering()
                rows = self._tables.rows
                self._tables.work.rows += len(rows)
                if part.active:
                    part.accepted = np.zeros(self._tables.capacity, dtype=np.bool_)
                    part.accepted[rows] = part.prepared.filter(rows) == 0
                changed = True
        for part in self._cluster_scorers:
            version = part.prepared.version
            if version != part.version:
                part.version = version
                part.active = part.prepared.scoring()
                if part.active:
                    rows = self._tables.rows
                    part.scores = np.zeros(self._tables.capacity, dtype=np.int64)
                    part.scores[rows] = part.prepared.score(rows) * part.weight
                changed = True
        for index, scorer in enumerate(self._normalized):
            if scorer.prepared.scope is Scope.CLUSTER:
                version = scorer.prepared.version
                if version != self._normalized_versions[index]:
                    self._normalized_versions[index] = version
                    changed = True
        return changed

    # -- putting totals together

    def accepted(self) -> Bools:
        """The rows that pass all filters, as far as arrays tell."""
        accepted = self._node_accepts & self._row_accepts
        for part in self._cluster_filters:
            if part.active:
                assert part.accepted is not None
                accepted &= part.accepted
        return accepted

    def _put_together(self) -> None:
        self._tables.work.totals += 1
        self.value.view[:] = self.values(self.accepted(), keep=True)

    def values(self, accepted: Bools, *, keep: bool = False) -> Ints:
        """The values of all rows, for a set of feasible ones."""
        rows = np.flatnonzero(accepted)
        base = np.zeros(self._tables.capacity, dtype=np.int64)
        for part in self._cluster_scorers:
            if part.active:
                assert part.scores is not None
                base += part.scores
        constant = 0
        for scorer in self._normalized:
            scorer.uniform = False
            if not len(rows) or not scorer.prepared.scoring():
                continue
            raw = scorer.prepared.score(rows) if scorer.prepared.scope is Scope.CLUSTER else scorer.raw[rows]  # type: ignore[index]
            final = scorer.prepared.normalize(raw, rows)
            scorer.uniform = self._same_everywhere(scorer)
            if scorer.uniform:
                constant += int(final[0]) * scorer.weight
            else:
                base[rows] += final * scorer.weight
        if keep:
            self._cluster_base.view[:] = base
            self._constant = constant
        total = self._node_base.view + self._row_base.view + base + constant
        return np.where(accepted, (total << SHIFT) - self._tables.turn.view, REFUSED)

    def _same_everywhere(self, scorer: Scorer) -> bool:
        """Whether a normalised score is the same for all rows, feasible or not, whatever becomes of them."""
        if scorer.prepared.scope is Scope.CLUSTER or scorer.raw is None:
            return False
        raw = scorer.raw[self._tables.alive]
        return bool((raw == raw[0]).all())

    def _put_rows(self, rows: Rows) -> bool:
        """Values of these rows only; false when others may be touched by it."""
        accepted = self._node_accepts[rows] & self._row_accepts[rows]
        for part in self._cluster_filters:
            if part.active:
                assert part.accepted is not None
                accepted &= part.accepted[rows]
        before = self.value.view[rows] != REFUSED
        if self._normalized and not self._alone(bool((before != accepted).any())):
            return False
        total = self._node_base.view[rows] + self._row_base.view[rows] + self._cluster_base.view[rows] + self._constant
        self.value.view[rows] = np.where(accepted, (total << SHIFT) - self._tables.turn.view[rows], REFUSED)
        return True

    def _put_each(self, rows: Sequence[int]) -> bool:
        """The same, one by one."""
        alive, turn = self._tables.alive, self._tables.turn.cells
        value, node_base = self.value.cells, self._node_base.cells
        for row in dict.fromkeys(rows) if len(rows) > 1 else rows:
            if not alive[row]:
                continue
            self._tables.work.rows += 1
            accepts = True
            for prepared in self._row_filters:
                if prepared.filter_row(row):
                    accepts = False
                    break
            self._row_accepts[row] = accepts
            base = 0
            for prepared, weight in self._row_scorers:
                base += prepared.score_row(row) * weight
            self._row_base.cells[row] = base
            accepted = accepts and bool(self._node_accepts[row])
            for part in self._cluster_filters:
                if part.active:
                    assert part.accepted is not None
                    accepted = accepted and bool(part.accepted[row])
            if self._normalized and not self._alone((value[row] != REFUSED) != accepted):
                # Some normalised scores follow from which rows are feasible, or from this row's own score.
                self._refresh_raw(rows)
                return False
            if accepted:
                total = node_base[row] + base + self._cluster_base.cells[row] + self._constant
                value[row] = (total << SHIFT) - turn[row]
            else:
                value[row] = REFUSED
        return True

    def _alone(self, feasibility_changed: bool) -> bool:
        """Whether a row's change leaves the normalised scores of all rows as they are."""
        for scorer in self._normalized:
            if scorer.prepared.scope is Scope.ROW:
                return False
            if feasibility_changed and not scorer.uniform and scorer.prepared.scoring():
                return False
        return True

    def _refresh_raw(self, rows: Sequence[int]) -> None:
        chosen = np.unique(rows)
        self._refresh_rows(chosen[self._tables.alive[chosen]])
