"""Rows that win over all others, because the score of one plugin outweighs all other scores: nodes with a reservation for
the pod.

While one of them is feasible, no other row needs to be looked at. So shapes whose pods come in turn do not have to catch up
with all rows that the pods of the other shapes changed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

import numpy as np

from wharfinger.api.views import Pod
from wharfinger.engine.evaluation import active_filters, row_refusals
from wharfinger.engine.front import Front
from wharfinger.engine.preparation import Filters, PreparedShape, ScoringPlugin
from wharfinger.engine.rows import REFUSED, SHIFT, NodeParts, RowScope
from wharfinger.framework.columns import IntColumn, distinct
from wharfinger.framework.plugin import MAX_SCORE, Prepared, Scope
from wharfinger.framework.tables import Tables

MOST_OTHERS = (1 << 22) // MAX_SCORE  # limit of the total of other scores, so that a value fits in 63 bits


def favouring(prepared: PreparedShape) -> ScoringPlugin | None:
    """The plugin whose overlaid rows win over all others, whatever the other plugins say; None if there is none."""
    if len(prepared.overlays) != 1 or prepared.only is not None or prepared.score_fault:
        return None
    found = next((each for each in prepared.scorers if each.prepared.overlays is prepared.overlays[0]), None)
    others = [each for each in prepared.scorers if each is not found]
    if found is None or not prepared.overlays[0].widens or not all(each.prepared.bounded for each in others):
        return None
    # Raw scores are at most MAX_SCORE, so a larger one is larger by at least 1 after normalizing.
    most = _most(others)
    return found if found.weight > most and most < MOST_OTHERS else None


def _most(scorers: Iterable[ScoringPlugin]) -> int:
    """The largest total score of plugins that are bounded."""
    return sum(each.weight for each in scorers) * MAX_SCORE


class FavouredRows:
    """The values of the overlaid rows of a shape with a score above zero. A value is as in `RowValues`, but the score of the
    favouring plugin counts more than all others together."""

    def __init__(self, tables: Tables, prepared: PreparedShape, favouring: ScoringPlugin) -> None:
        self._tables = tables
        self._prepared = prepared
        self._overlays = prepared.overlays[0]
        self._favouring = favouring.prepared
        filters = [each for _, each in prepared.filters]
        others = [each for each in prepared.scorers if each is not favouring]
        self._unit = _most(others) + 1  # what one point of the favouring plugin counts
        self._normalizing = [each.prepared for each in others if each.prepared.normalizes]
        plain = [(each.prepared, each.weight) for each in others if not each.prepared.normalizes]
        self._cluster_filters = [each for each in filters if each.scope is Scope.CLUSTER]
        self._cluster_scorers = [each for each in plain if each[0].scope is Scope.CLUSTER]
        self._telling = self._cluster_scorers  # those that do not score all rows 0
        self._cluster_versions: list[Hashable] = []
        self._nodes = NodeParts(
            tables,
            [each for each in filters if each.scope is Scope.NODE],
            [each for each in plain if each[0].scope is Scope.NODE],
        )
        self._rows = RowScope(
            tables,
            [each for each in filters if each.scope is Scope.ROW],
            [each for each in plain if each[0].scope is Scope.ROW],
        )
        self._node_position = self._pod_position = -1
        self._value = IntColumn(0)  # [row]
        self._front = Front(self._value, REFUSED)
        self._uniform = False  # whether scorers of node scope that normalize cannot tell rows apart
        self._comparable = False
        self._version = -1

    def best(self, pod: Pod) -> int:
        """The best of the favoured rows; -1 if none is feasible, or if other rows matter."""
        if not self._overlays.favours or not self._alone():
            return -1
        self._catch_up(pod)
        return self._front.best()

    def size(self) -> int:
        """The bytes that the values take."""
        return self._nodes.size() + 8 * len(self._value.cells)

    def _alone(self) -> bool:
        """Whether neither filters nor scores look beyond the row, so that the favoured rows can be compared alone."""
        tables = self._tables
        if self._version != tables.version:
            self._version = tables.version
            if self._node_position != tables.node_log.position:
                self._uniform = all(
                    _uniform(each, tables) for each in self._normalizing if each.scope is not Scope.CLUSTER
                )
            versions = [each.score_version for each, _ in self._cluster_scorers]
            if versions != self._cluster_versions:
                self._cluster_versions = versions
                self._pod_position = -1
            self._comparable = (
                self._uniform
                and not any(each.filtering() for each in self._cluster_filters)
                and not any(each.scoring() for each in self._normalizing if each.scope is Scope.CLUSTER)
            )
        return self._comparable

    # -- catching up with the tables

    def _catch_up(self, pod: Pod) -> None:
        tables = self._tables
        overlaid = self._overlays.overlaid
        node_log, pod_log = tables.node_log, tables.pod_log
        pod_rows = pod_log.since(self._pod_position)
        self._pod_position = pod_log.position
        if node_log.position != self._node_position:
            node_rows = node_log.since(self._node_position)
            self._node_position = node_log.position
            if node_rows is None or pod_rows is None:
                self._nodes.allocate(tables.capacity)
                self._nodes.evaluate_nodes(tables.rows)
                pod_rows = None
            else:
                self._nodes.evaluate_nodes(distinct(node_rows))
                pod_rows = pod_rows + node_rows
        if pod_rows is None or len(self._front.first) > 2 * len(overlaid) + Front.LEAST:
            self._rebuild(pod, overlaid)
            return
        cells, last = self._value.cells, -1
        for row in pod_rows:
            if row == last:
                continue  # a pod that uses a reservation changes its row twice
            last = row
            if row in overlaid:
                value = cells[row] = self._evaluate(pod, row)
                self._front.changed(row, value)
            else:
                cells[row] = REFUSED

    def _rebuild(self, pod: Pod, overlaid: Collection[int]) -> None:
        """Evaluates all overlaid rows, as arrays."""
        tables, nodes = self._tables, self._nodes
        rows = np.fromiter(overlaid, dtype=np.int64, count=len(overlaid))
        scores = self._favouring.score(rows)
        favoured = (scores > 0) & nodes.node_accepts.view.take(rows)
        rows, scores = rows[favoured], scores[favoured]
        passed = self._rows.accepts(rows)
        if not passed.all():
            filters = self._narrow()
            for index in np.flatnonzero(~passed).tolist():
                passed[index] = not row_refusals(tables, self._prepared, filters, pod, int(rows[index]))
            rows, scores = rows[passed], scores[passed]
        totals = scores * self._unit
        totals += nodes.node_base.take(rows)
        self._rows.add_scores(rows, totals)
        self._telling = [each for each in self._cluster_scorers if self._tells_apart(each[0])]
        for scorer, weight in self._telling:
            totals += scorer.score(rows) * weight
        self._value = IntColumn(tables.capacity, REFUSED)
        self._value.view[rows] = (totals << SHIFT) - tables.tie_breaks.take(rows)
        self._front = Front(self._value, REFUSED)

    def _tells_apart(self, scorer: Prepared) -> bool:
        """Whether a scorer of cluster scope may give a row a score other than 0 while its version stays the same."""
        return scorer.scores_follow_pods or bool(scorer.score(self._tables.rows).any())

    def _evaluate(self, pod: Pod, row: int) -> int:
        """The value of an overlaid row."""
        score = self._favouring.score_row(row)
        if score <= 0 or not self._nodes.node_accepts.cells[row]:
            return REFUSED
        accepts, base = self._rows.evaluate(row)
        if not accepts and row_refusals(self._tables, self._prepared, self._narrow(), pod, row):
            return REFUSED
        total = score * self._unit + base + self._nodes.node_base.cells[row]
        for scorer, weight in self._telling:
            total += scorer.score_row(row) * weight
        return (total << SHIFT) - self._tables.tie_breaks.cells[row]

    def _narrow(self) -> Filters:
        return [(name, each) for name, each in active_filters(self._prepared) if each.scope is not Scope.NODE]


def _uniform(prepared: Prepared, tables: Tables) -> bool:
    raw = prepared.score(tables.rows)
    return prepared.scope is Scope.NODE and bool((raw == raw[:1]).all())
