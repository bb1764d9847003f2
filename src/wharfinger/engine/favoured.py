"""Rows that win over all others, because the score of one plugin outweighs all other scores: nodes with a reservation for
the pod.

While one of them is feasible, no other row needs to be looked at. So shapes whose pods come in turn do not have to catch up
with all rows that the pods of the other shapes changed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from heapq import heapify, heappop, heappush

import numpy as np

from wharfinger.api.views import Pod
from wharfinger.engine.evaluation import active_filters, row_refusals
from wharfinger.engine.preparation import Filters, PreparedShape, ScoringPlugin
from wharfinger.engine.rows import SHIFT, RowScope
from wharfinger.framework.plugin import MAX_SCORE, Prepared, Scope
from wharfinger.framework.tables import Tables

Standing = tuple[int, int]
"""The score of the favouring plugin, and the value of everything else as in `RowValues`."""


def favouring(prepared: PreparedShape) -> ScoringPlugin | None:
    """The plugin whose overlaid rows win over all others, whatever the other plugins say; None if there is none."""
    if len(prepared.overlays) != 1 or prepared.only is not None or prepared.score_fault:
        return None
    found = next((each for each in prepared.scorers if each.prepared.overlays is prepared.overlays[0]), None)
    others = [each for each in prepared.scorers if each is not found]
    if found is None or not prepared.overlays[0].widens or not all(each.prepared.bounded for each in others):
        return None
    # Raw scores are at most MAX_SCORE, so a larger one is larger by at least 1 after normalizing.
    return found if found.weight > sum(each.weight for each in others) * MAX_SCORE else None


class FavouredRows:
    """The overlaid rows of a shape with a score above zero, in a heap."""

    def __init__(self, tables: Tables, prepared: PreparedShape, favouring: ScoringPlugin) -> None:
        self._tables = tables
        self._prepared = prepared
        self._overlays = prepared.overlays[0]
        self._favouring = favouring.prepared
        filters = [each for _, each in prepared.filters]
        others = [each for each in prepared.scorers if each is not favouring]
        plain = [each for each in others if not each.prepared.normalizes]
        self._normalizing = [each.prepared for each in others if each.prepared.normalizes]
        self._node_filters = [each for each in filters if each.scope is Scope.NODE]
        self._node_scorers = [(each.prepared, each.weight) for each in plain if each.prepared.scope is Scope.NODE]
        self._cluster_filters = [each for each in filters if each.scope is Scope.CLUSTER]
        self._cluster_scorers = [(each.prepared, each.weight) for each in plain if each.prepared.scope is Scope.CLUSTER]
        self._cluster_versions: list[Hashable] = []
        self._rows = RowScope(
            tables,
            [each for each in filters if each.scope is Scope.ROW],
            [(each.prepared, each.weight) for each in plain if each.prepared.scope is Scope.ROW],
        )
        self._node_position = self._pod_position = -1
        self._nodes: dict[int, int | None] = {}  # by row: the scores of node scope; None: refused
        self._standings: dict[int, Standing] = {}  # by row
        self._heap: list[tuple[int, int, int]] = []  # (negated standing, row); may contain outdated standings
        self._uniform = False  # whether scorers of node scope that normalize cannot tell rows apart
        self._comparable = False
        self._version = -1

    def best(self, pod: Pod) -> int:
        """The best of the favoured rows; -1 if none is feasible, or if other rows matter."""
        if not self._overlays.favours or not self._alone():
            return -1
        self._catch_up(pod)
        heap, standings = self._heap, self._standings
        while heap:
            score, value, row = heap[0]
            if standings.get(row) == (-score, -value):
                return row
            heappop(heap)
        return -1

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
        pod_rows, node_rows = pod_log.since(self._pod_position), None
        self._pod_position = pod_log.position
        if node_log.position != self._node_position:
            node_rows = node_log.since(self._node_position)
            self._node_position = node_log.position
            if node_rows is None or pod_rows is None:
                self._nodes.clear()
                pod_rows = None
            else:
                for row in node_rows:
                    self._nodes.pop(row, None)
                pod_rows = pod_rows + node_rows
        if pod_rows is None or len(self._heap) > 2 * len(overlaid) + 64:
            self._rebuild(pod, overlaid)
            return
        standings, last = self._standings, -1
        for row in pod_rows:
            if row == last:
                continue  # a pod that uses a reservation changes its row twice
            last = row
            if row in overlaid:
                self._refresh_row(pod, row)
            elif row in standings:
                del standings[row]

    def _rebuild(self, pod: Pod, overlaid: Collection[int]) -> None:
        """Evaluates all overlaid rows, as arrays."""
        tables = self._tables
        rows = np.array(list(overlaid), dtype=np.int64)
        passed = self._rows.accepts(rows)
        totals = np.zeros(len(rows), dtype=np.int64)
        for scorer, weight in self._node_scorers:
            totals += scorer.score(rows) * weight
        accepted = np.ones(len(rows), dtype=np.bool_)
        for prepared in self._node_filters:
            accepted &= prepared.accepts(rows)
        of_nodes = zip(rows.tolist(), accepted.tolist(), totals.tolist(), strict=True)
        self._nodes = {row: total if fits else None for row, fits, total in of_nodes}
        self._rows.add_scores(rows, totals)
        for scorer, weight in self._cluster_scorers:
            totals += scorer.score(rows) * weight
        values = (totals << SHIFT) - tables.tie_breaks.take(rows)
        scores = self._favouring.score(rows)
        left = np.flatnonzero(accepted & (scores > 0))
        filters = None if passed.all() else self._narrow()
        self._standings = {
            row: (score, value)
            for row, score, value, fits in zip(
                rows[left].tolist(), scores[left].tolist(), values[left].tolist(), passed[left].tolist(), strict=True
            )
            if fits or filters is None or not row_refusals(tables, self._prepared, filters, pod, row)
        }
        self._heap = [(-score, -value, row) for row, (score, value) in self._standings.items()]
        heapify(self._heap)

    def _refresh_row(self, pod: Pod, row: int) -> None:
        standing = self._standing(pod, row)
        if standing is None:
            self._standings.pop(row, None)
        else:
            self._standings[row] = standing
            heappush(self._heap, (-standing[0], -standing[1], row))

    def _standing(self, pod: Pod, row: int) -> Standing | None:
        """None if the row is not feasible or not favoured."""
        score = self._favouring.score_row(row)
        if score <= 0:
            return None
        of_node = self._nodes[row] if row in self._nodes else self._of_node(row)
        if of_node is None:
            return None
        accepts, base = self._rows.evaluate(row)
        if not accepts and row_refusals(self._tables, self._prepared, self._narrow(), pod, row):
            return None
        total = base + of_node
        for scorer, weight in self._cluster_scorers:
            total += scorer.score_row(row) * weight
        return score, (total << SHIFT) - self._tables.tie_breaks.cells[row]

    def _of_node(self, row: int) -> int | None:
        found = None
        if self._tables.nodes[row] is not None and not any(each.filter_row(row) for each in self._node_filters):
            found = sum(each.score_row(row) * weight for each, weight in self._node_scorers)
        self._nodes[row] = found
        return found

    def _narrow(self) -> Filters:
        return [(name, each) for name, each in active_filters(self._prepared) if each.scope is not Scope.NODE]


def _uniform(prepared: Prepared, tables: Tables) -> bool:
    raw = prepared.score(tables.rows)
    return prepared.scope is Scope.NODE and bool((raw == raw[:1]).all())
