"""What the plugins say on one shape, for every row, kept up to date.

`value` holds a row's total score and its turn among equals in one number, so that the best row is one argmax. Rows are
asked for again only when they changed: a few one by one, many as arrays.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import getitem
from typing import Generic, TypeVar

import numpy as np

from wharfinger.engine.front import Front
from wharfinger.engine.outcome import Candidate
from wharfinger.framework.columns import Bools, Column, Flags, Ints, Rows
from wharfinger.framework.plugin import Plugin, Prepared, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Code, Status, unresolvable
from wharfinger.framework.tables import Tables

SHIFT = 40  # the total stands above the turn
REFUSED = int(np.iinfo(np.int64).min)
FEW = 12  # up to so many rows are cheaper one by one
FEW_ALIKE = 40  # and so many where rows that are alike are not asked for
ALIKE = 512  # kinds of row whose answers are kept
CALM = 8  # decisions after which it pays to keep the front runners


@dataclass(slots=True, eq=False)
class Scorer:
    """A plugin that scores. The rest is kept for those that normalize."""

    plugin: str
    prepared: Prepared
    weight: int
    raw: Ints | None = None
    same: bool = False  # whether all rows' raw scores are equal, so that normalising cannot tell rows apart
    constant: int = 0  # what it adds to every total then
    version: Hashable = None
    active: bool = False
    follows: bool = False  # whether `raw` is kept up to date row by row, for a part of cluster scope
    stale: bool = False  # whether `raw` is newer than `final`
    final: Ints | None = None  # the normalised scores of `rows`, which the totals contain; None: nothing of the kind
    rows: Rows | None = None


@dataclass(slots=True, eq=False)
class ClusterPart:
    """A part that may change for all rows at once: the version it was computed at, and the result."""

    prepared: Prepared
    weight: int
    version: Hashable = None
    accepted: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    scores: Ints | None = None  # None: nothing scored


T = TypeVar("T")


class Kept(Generic[T]):
    """Something computed of single rows, kept while they do not change. What nominated pods have a say on is not."""

    def __init__(self) -> None:
        self.by_row: dict[int, T] = {}
        self._positions = (-1, -1)
        self._passing: list[int] = []

    def catch_up(self, tables: Tables) -> None:
        self.forget(tables.node_log.since(self._positions[0]))
        self.forget(tables.pod_log.since(self._positions[1]))
        self._positions = (tables.node_log.position, tables.pod_log.position)
        # Rows with nominated pods are looked at anew, and again when those are gone.
        self.forget(self._passing)
        self._passing = [tables.row_of[name] for name in tables.nominated if name in tables.row_of]
        self.forget(self._passing)

    def forget(self, rows: Sequence[int] | None) -> None:
        if rows is None:
            self.by_row.clear()
        else:
            for row in rows:
                self.by_row.pop(row, None)


class Verdicts:
    """Whether rows that arrays do not decide are feasible, kept while they do not change; -1 where that is to be found out."""

    def __init__(self) -> None:
        self.by_row: Ints = np.zeros(0, dtype=np.int64)
        self._positions = (-1, -1)
        self._passing: list[int] = []

    def catch_up(self, tables: Tables) -> None:
        if len(self.by_row) != tables.capacity:
            self.by_row = np.full(tables.capacity, -1, dtype=np.int64)
        for changed in (tables.node_log.since(self._positions[0]), tables.pod_log.since(self._positions[1])):
            if changed is None:
                self.by_row[:] = -1
            elif changed:
                self.by_row[changed] = -1
        self._positions = (tables.node_log.position, tables.pod_log.position)
        # Rows with nominated pods are looked at anew, and again when those are gone.
        self.by_row[self._passing] = -1
        self._passing = [tables.row_of[name] for name in tables.nominated if name in tables.row_of]
        self.by_row[self._passing] = -1

    def forget(self) -> None:
        self.by_row[:] = -1


class KeptVictims(Kept[Candidate | Status]):
    """What evictions would do on rows, kept while the disruption budgets do not change either."""

    def __init__(self) -> None:
        super().__init__()
        self.budgets_version = -1


class Answers:
    def __init__(
        self, tables: Tables, shape: Shape, points: Mapping[str, Sequence[Plugin]], weights: Mapping[str, int]
    ) -> None:
        self._tables = tables
        self.shape = shape
        self.prepared: dict[str, Prepared] = {}
        self.refusal: Status | None = None
        self.unasked: frozenset[str] = frozenset()  # plugins that were not asked any more after the refusal
        self.only: frozenset[str] | None = None  # the nodes that plugins narrowed the choice to
        self.narrowed_by: list[str] = []
        self._prepare(points)
        replaced = {name for each in self.prepared.values() for name in each.replaces}
        self.filters = [
            (plugin.name, self.prepared[plugin.name])
            for plugin in points["filter"]
            if plugin.name in self.prepared and self.prepared[plugin.name].filters and plugin.name not in replaced
        ]
        self.scorers = [
            Scorer(plugin.name, self.prepared[plugin.name], weights[plugin.name])
            for plugin in points["score"]
            if plugin.name in self.prepared and self.prepared[plugin.name].scores
        ]
        self.score_fault = next(
            (
                f'running PreScore plugin "{each.plugin}": {each.prepared.score_fault}'
                for each in self.scorers
                if each.prepared.score_fault
            ),
            "",
        )
        self.fails = any(each.fails for _, each in self.filters)
        self.reserving = [
            (plugin, self.prepared.get(plugin.name))
            for plugin in points["reserve"]
            if plugin.name in self.prepared or not plugin.reserves_prepared
        ]
        self.overlaying = [each for each in self.prepared.values() if type(each).overlays is not Prepared.overlays]
        self.judged = Verdicts()  # of rows with overlays: whether one of them passes
        self._sort()
        self.value = Column(0)
        self._front: Front | None = None
        self._calm = 0  # decisions since values changed for many rows at once
        self.victims: dict[int, KeptVictims] = {}  # by the priority of the pod that would evict
        self._node_position = self._pod_position = -1
        self._built = False

    def _prepare(self, points: Mapping[str, Sequence[Plugin]]) -> None:
        at_filter = [*points["preFilter"], *(each for each in points["filter"] if each not in points["preFilter"])]
        at_score = [each for each in points["score"] if each not in at_filter]
        plugins = (*at_filter, *at_score)
        for index, plugin in enumerate(plugins):
            answer = plugin.prepare(self.shape)
            if answer is None:
                continue
            if isinstance(answer, Status):
                # One that only evictions could help is remembered while the others are asked.
                if plugin in at_filter and (self.refusal is None or answer.code is not Code.UNSCHEDULABLE):
                    self.refusal = answer.by(plugin.name)
                    if answer.code is not Code.UNSCHEDULABLE:
                        self.unasked = frozenset(each.name for each in plugins[index + 1 :])
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
                    self.unasked = frozenset(each.name for each in plugins[index + 1 :])
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
        self._row_refuses = [each.row_filter() for each in self._row_filters]
        self._row_score = [(each.row_scorer(), weight) for each, weight in self._row_scorers]
        inputs = [each.row_inputs() for each in (*self._row_filters, *(prepared for prepared, _ in self._row_scorers))]
        # What is known of rows by what it follows from: most nodes of a cluster are alike.
        self._alike: dict[tuple[int, ...], tuple[bool, int]] | None = None if None in inputs else {}
        columns = {id(column): column for columns in inputs if columns is not None for column in columns}
        self._row_inputs = [self._tables.sizes.cells, *(column.cells for column in columns.values())]
        self._by_row = any(each.prepared.scope is Scope.ROW for each in self._normalized)
        # Cluster-wide ones that normalize and keep raw scores, since a pod changes few of them.
        self._following: list[Scorer] = []
        self._guards: list[ClusterPart] = []  # the cluster-wide filters that have something to filter
        self._tables_version = -1

    def refresh(self) -> None:
        """Catches up with the tables."""
        tables = self._tables
        pod_log = tables.pod_log
        behind = pod_log.position - self._pod_position
        if (
            behind > (FEW if self._alike is None else FEW_ALIKE)
            or tables.version != self._tables_version
            or tables.node_log.position != self._node_position
            or self._following
        ):
            self._catch_up()
        elif behind == 1 and not self._by_row:
            # As it is after every placement of a pod: one row changed, and nothing else.
            self._pod_position += 1
            if self._refresh_row(pod_log.last):
                self._put_together()
        elif behind and self._refresh_few(pod_log.since(self._pod_position) or ()):
            self._put_together()

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
            self._put_together()
            return
        filtered, all_changed = self._refresh_cluster()
        if node_rows:
            self._refresh_nodes(np.unique(node_rows))
            all_changed = True
        if pod_rows:
            if len(pod_rows) <= (FEW if self._alike is None else FEW_ALIKE):
                all_changed = self._refresh_few(pod_rows) or all_changed
            else:
                rows = np.array(pod_rows, dtype=np.int64)
                if len(rows) > 256:
                    rows = np.unique(rows)
                all_changed = self._refresh_rows(rows[tables.alive.take(rows)]) or all_changed
        if all_changed or (filtered and (self._sensitive or self.overlaying)):
            self._put_together()
            return
        if filtered:
            self._filter()
        for scorer in self._following:
            if scorer.stale:
                self._rescore(scorer)

    def _refresh_few(self, rows: Sequence[int]) -> bool:
        self._pod_position = self._tables.pod_log.position
        all_changed = False
        distinct = dict.fromkeys(rows)  # a pod that uses a reservation changes its row twice
        for row in distinct:
            all_changed = self._refresh_row(row) or all_changed
        if self._by_row:
            alive = [row for row in distinct if self._tables.nodes[row] is not None]
            self._score_rows(np.array(alive, dtype=np.int64))
        return all_changed

    def _score_rows(self, rows: Rows) -> None:
        """The raw scores of these rows where they follow from the row and are normalised."""
        for scorer in self._normalized:
            if scorer.prepared.scope is Scope.ROW:
                assert scorer.raw is not None
                scorer.raw[rows] = scorer.prepared.score(rows)

    def _build(self) -> None:
        tables = self._tables
        size = tables.capacity
        tables.work.rebuilt += 1
        self._tables_version = -1
        self._node_accepts = Flags(size)
        self._row_accepts = Flags(size)
        self._node_base = Column(size)  # plain scores that follow from the node
        self._base = Column(size)  # and with those that follow from its pods
        self._cluster_base = Column(size)  # plain cluster-wide scores, and normalised ones that tell rows apart
        self._has_cluster_base = False
        self._feasible: tuple[Bools, Rows] | None = None
        self._sensitive = False  # whether normalised scores follow from which rows are feasible
        self._constant = 0  # normalised scores that are the same for all rows
        self.value = Column(size, REFUSED)
        self._open = Column(size, REFUSED)  # values as they were without the cluster-wide filters, where there are some
        for part in (*self._cluster_filters, *self._cluster_scorers):
            part.version = None
        self._guards = []
        for scorer in self._normalized:
            scorer.version = None
            scorer.final = scorer.rows = None
            scorer.active = scorer.follows = scorer.stale = False
            scorer.raw = np.zeros(size, dtype=np.int64)
        self._following = []
        self._refresh_nodes(tables.rows)
        self._built = True

    def _refresh_nodes(self, rows: Rows) -> None:
        """Everything about rows whose node changed, but for the cluster-wide parts."""
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
        for scorer in self._normalized:
            if scorer.prepared.scope is Scope.NODE:
                assert scorer.raw is not None
                scorer.raw[rows] = scorer.prepared.score(rows)
                raw = scorer.raw[tables.alive]
                scorer.same = bool((raw == raw[0]).all()) if len(raw) else False
                if scorer.same:
                    scorer.constant = int(scorer.prepared.normalize(raw[:1], tables.rows[:1])[0]) * scorer.weight
        self._refresh_rows(rows)

    def _refresh_rows(self, rows: Rows) -> bool:
        """What depends on the pods of these rows, as arrays; says whether other rows are touched by it."""
        self._tables.work.rows += len(rows)
        accepts: Bools | None = None
        for prepared in self._row_filters:
            passed = prepared.accepts(rows)
            accepts = passed if accepts is None else accepts & passed
        if accepts is None:
            accepts = np.ones(len(rows), dtype=np.bool_)
        self._row_accepts.view[rows] = accepts
        base = self._node_base.take(rows)
        for prepared, weight in self._row_scorers:
            scores = prepared.score(rows)
            base += scores if weight == 1 else scores * weight
        self._base.view[rows] = base
        if self._by_row:
            self._score_rows(rows)
        accepts = accepts & self._node_accepts.view.take(rows)
        guarded: Bools | None = None
        for part in self._guards:
            if part.prepared.follows_pods:
                part.accepted[rows] = part.prepared.accepts(rows)
            found = part.accepted.take(rows)
            guarded = found if guarded is None else guarded & found
        for scorer in self._following:
            assert scorer.raw is not None
            scorer.raw[rows] = scorer.prepared.score(rows)
            scorer.stale = True
        if self._by_row:
            return True
        if self._sensitive:
            feasible = accepts if guarded is None else accepts & guarded
            if ((self.value.take(rows) != REFUSED) != feasible).any():
                return True
        if self._has_cluster_base:
            base += self._cluster_base.take(rows)
        base += self._constant
        base <<= SHIFT
        base -= self._tables.turn.take(rows)
        base = np.where(accepts, base, REFUSED)
        if guarded is not None:
            self._open.view[rows] = base
            base = np.where(guarded, base, REFUSED)
        self.value.view[rows] = base
        self._many_changed()
        return False

    def _refresh_row(self, row: int) -> bool:
        """The same for one row, without arrays."""
        tables = self._tables
        if tables.nodes[row] is None:
            return False
        tables.work.rows += 1
        alike = self._alike
        if alike is None:
            accepts, base = self._judge_row(row)
        else:
            key = tuple(map(getitem, self._row_inputs, repeat(row)))
            found = alike.get(key)
            if found is None:
                found = alike[key] = self._judge_row(row)
                if len(alike) > ALIKE:
                    self._alike = None  # rows differ too much for this to pay
            accepts, base = found
        self._row_accepts.cells[row] = accepts
        base += self._node_base.cells[row]
        self._base.cells[row] = base
        if not self._node_accepts.cells[row]:
            accepts = False
        feasible = accepts
        for part in self._guards:
            if part.prepared.follows_pods:
                part.accepted[row] = part.prepared.filter_row(row) == 0
            feasible = feasible and bool(part.accepted[row])
        for scorer in self._following:
            assert scorer.raw is not None
            raw = scorer.prepared.score_row(row)
            if raw != scorer.raw[row]:
                scorer.raw[row] = raw
                scorer.stale = True
        cells = self.value.cells
        if self._by_row or (self._sensitive and (cells[row] != REFUSED) != feasible):
            return True
        value = REFUSED
        if accepts:
            value = (base + self._cluster_base.cells[row] + self._constant << SHIFT) - tables.turn.cells[row]
        if self._guards:
            self._open.cells[row] = value
            if not feasible:
                value = REFUSED
        cells[row] = value
        if self._front is not None:
            self._front.changed(row, value)
        return False

    def _judge_row(self, row: int) -> tuple[bool, int]:
        """Whether the parts of row scope accept a row, and what their scores add up to."""
        accepts = True
        for refuses in self._row_refuses:
            if refuses(row):
                accepts = False
                break
        total = 0
        for score, weight in self._row_score:
            total += score(row) * weight
        return accepts, total

    def _refresh_cluster(self) -> tuple[bool, bool]:
        """The parts that may change for all rows at once; says whether filters did, and whether scores did."""
        tables = self._tables
        if self._tables_version == tables.version:
            return False, False
        self._tables_version = tables.version
        filtered = scored = False
        for part in self._cluster_filters:
            version = part.prepared.filter_version
            if version != part.version:
                part.version = version
                filtering = part.prepared.filtering()
                if filtering != (part in self._guards):
                    self._guards = [each for each in self._cluster_filters if each in self._guards or each is part]
                    if not filtering:
                        self._guards.remove(part)
                    scored = True  # values without them were not kept
                if filtering:
                    filtered = True
                    part.accepted = self._accepted_by(part.prepared)
        for part in self._cluster_scorers:
            version = part.prepared.score_version
            if version != part.version:
                part.version = version
                part.scores = None
                if part.prepared.scoring():
                    rows = tables.rows
                    tables.work.rows += len(rows)
                    part.scores = np.zeros(tables.capacity, dtype=np.int64)
                    part.scores[rows] = part.prepared.score(rows) * part.weight
                scored = True
        for scorer in self._normalized:
            version = scorer.prepared.score_version
            if version != scorer.version:
                scorer.version = version
                was, scorer.active = scorer.active, scorer.prepared.scoring()
                self._follow(scorer)
                if was and scorer.active and scorer.final is not None and not filtered and not scored:
                    self._rescore(scorer)
                else:
                    scored = scored or was or scorer.active
        return filtered, scored

    def _accepted_by(self, prepared: Prepared) -> Bools:
        tables = self._tables
        tables.work.rows += len(tables.row_of)
        accepted = prepared.accepts_all(tables.capacity)
        if accepted is None:
            accepted = np.zeros(tables.capacity, dtype=np.bool_)
            accepted[tables.rows] = prepared.accepts(tables.rows)
        return accepted

    def _follow(self, scorer: Scorer) -> None:
        """Keeps raw scores where a pod changes few of them."""
        prepared = scorer.prepared
        scorer.follows = scorer.active and prepared.scope is Scope.CLUSTER and prepared.scores_follow_pods
        if scorer.follows != (scorer in self._following):
            self._following = [each for each in self._normalized if each.follows]
        if scorer.follows:
            assert scorer.raw is not None
            scorer.raw[self._tables.rows] = prepared.score(self._tables.rows)

    def _rescore(self, scorer: Scorer) -> None:
        """Raw scores moved, but the same rows are feasible: totals move by what that makes of the normalised ones."""
        before, rows = scorer.final, scorer.rows
        scorer.stale = False
        if before is None or rows is None:
            return  # nothing is feasible
        final = scorer.final = self._final(scorer, rows)
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

    def node_accepts(self, row: int) -> bool:
        """Whether nothing about the node itself speaks against it."""
        return bool(self._node_accepts.cells[row])

    # -- the best

    def best(self) -> int:
        """The row with the largest value; -1 where none is feasible."""
        if self._front is None:
            self._calm += 1
            if self._calm < CALM:
                row = int(self.value.view.argmax())
                return row if self.value.cells[row] != REFUSED else -1
            self._front = Front(self.value, REFUSED)
        return self._front.best()

    def _many_changed(self) -> None:
        self._front = None
        self._calm = 0

    # -- putting totals together

    def accepted(self) -> Bools:
        """The rows that pass all filters, as far as arrays tell."""
        accepted = self._node_accepts.view & self._row_accepts.view
        return self._guarded(accepted)

    def _guarded(self, accepted: Bools) -> Bools:
        """Those that pass the cluster-wide filters too."""
        for part in self._guards:
            accepted = accepted & part.accepted
        return accepted

    def _filter(self) -> None:
        """Other rows are feasible, while scores are as they were."""
        self.value.view[:] = np.where(self._guarded(self._tables.alive), self._open.view, REFUSED)
        self._many_changed()

    def _put_together(self) -> None:
        if self.overlaying:
            return  # its totals are put together when the overlaid rows have been judged
        self._tables.work.totals += 1
        own = self._node_accepts.view & self._row_accepts.view
        feasible = self._guarded(own)
        total = self._totals(feasible, keep=True)
        if self._guards:
            self._open.view[:] = np.where(own, total, REFUSED)
        self.value.view[:] = np.where(feasible, total, REFUSED)
        self._many_changed()

    def values(self, feasible: Bools) -> Ints:
        """The values of all rows, for a set of feasible ones."""
        return np.where(feasible, self._totals(feasible), REFUSED)

    def _totals(self, accepted: Bools, *, keep: bool = False) -> Ints:
        """The same, with values of rows that are not feasible as they were if these did not change what others score."""
        constant, base = 0, None
        for part in self._cluster_scorers:
            if part.scores is not None:
                base = part.scores.copy() if base is None else base + part.scores
        rows: Rows | None = None
        for scorer in self._normalized:
            if keep:
                scorer.final, scorer.rows, scorer.stale = None, None, False
            if not scorer.active:
                continue
            if scorer.same:
                constant += scorer.constant
                continue
            rows = self._feasible_rows(accepted) if rows is None else rows
            if not len(rows):
                continue
            final = self._final(scorer, rows)
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
            self._sensitive = any(each.active and not each.same for each in self._normalized)
            self._constant = constant
            if base is not None:
                self._cluster_base.view[:] = base
            elif self._has_cluster_base:
                self._cluster_base.view[:] = 0
            self._has_cluster_base = base is not None
        total <<= SHIFT
        total -= self._tables.turn.view
        return total

    def _final(self, scorer: Scorer, rows: Rows) -> Ints:
        """Normalised scores of the feasible rows."""
        assert scorer.raw is not None
        if scorer.prepared.scope is Scope.CLUSTER and not scorer.follows:
            final = scorer.prepared.final(rows)
        else:
            final = scorer.prepared.normalize(scorer.raw.take(rows), rows)
        if final is not scorer.final:
            self._tables.work.rows += len(rows)
        return final

    def _feasible_rows(self, accepted: Bools) -> Rows:
        """The same array while the same rows are feasible, so that plugins may keep what follows from it."""
        if self._feasible is None or not np.array_equal(accepted, self._feasible[0]):
            self._feasible = (accepted.copy(), np.flatnonzero(accepted))
        return self._feasible[1]
