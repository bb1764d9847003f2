"""The data of all clusters in columns, one row per cluster, updated as objects change.

Everything derived (which clusters match a selector, until when a taint is tolerated, a score) is a column too, shared
by all placements that need it and recomputed only for changed rows. Counts of decisions per cluster, for Balance, are
maintained incrementally.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from wharfinger.api.quantity import BadQuantity
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, parse_time
from wharfinger.api.views.base import view
from wharfinger.cel import Bindings
from wharfinger.systems.placement.kinds.views import (
    AddOnPlacementScore,
    ClusterToleration,
    ManagedCluster,
    PlacementDecision,
)
from wharfinger.systems.placement.rules import taints
from wharfinger.systems.placement.rules.amounts import approximate
from wharfinger.systems.placement.rules.capacity import CapacityAnswer, read_answer
from wharfinger.systems.placement.rules.cel import bind_cluster, cost_per_cluster
from wharfinger.systems.placement.rules.selectors import Selector

Mask = NDArray[np.bool_]  # [row]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_MAX_COLUMNS = 4096  # limit on cached columns: selectors, toleration lists and scores


class ScoreObject(msgspec.Struct):
    """The parsed form of an AddOnPlacementScore."""

    values: dict[str, int]
    valid_until: float  # infinity: never expires
    answer: CapacityAnswer | None = None  # how many pods fit, if that was asked


class _Column(msgspec.Struct):
    """A derived column: arrays over rows, and the position reached in each change log."""

    arrays: list[NDArray[Any]]
    seen: list[int]
    filled: int = 0  # later rows have never been computed


class _Log(msgspec.Struct):
    """Changed rows, in order. `start` is the number of entries dropped from the front."""

    rows: list[int] = msgspec.field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.rows)

    def add(self, row: int) -> None:
        self.rows.append(row)
        if len(self.rows) > 20_000:
            dropped = len(self.rows) // 2
            self.start += dropped
            del self.rows[:dropped]


class Fleet:
    def __init__(self) -> None:
        self.names: list[str] = []
        self.row_of: dict[str, int] = {}
        self.clusters: list[ManagedCluster | None] = []
        self._documents: list[Document | None] = []
        self._bound: dict[int, Bindings] = {}
        self._scores: dict[int, dict[str, ScoreObject]] = {}
        self._logs: dict[Hashable, _Log] = {}
        self._columns: dict[Hashable, _Column] = {}
        self._capacity = 0
        self._present: Mask = np.zeros(0, bool)
        self._counts: Ints = np.zeros(0, np.int64)
        self._ranks: Ints | None = None
        self._decisions: dict[tuple[str, str], tuple[str, tuple[int, ...]]] = {}
        self._owned: dict[tuple[str, str], dict[str, tuple[int, ...]]] = {}
        self._now = -math.inf  # latest query time; time-dependent columns are current as of it
        self.version = 0  # incremented when clusters change
        self._masks: dict[Hashable, tuple[int, Mask]] = {}

    # Rows

    def __len__(self) -> int:
        return len(self.names)

    def _row(self, name: str) -> int:
        row = self.row_of.get(name)
        if row is None:
            row = self.row_of[name] = len(self.names)
            self.names.append(name)
            self.clusters.append(None)
            self._documents.append(None)
            self._ranks = None
            if row >= self._capacity:
                self._grow()
            self._changed("clusters", row)
        return row

    def _grow(self) -> None:
        self._capacity = max(64, self._capacity * 2)
        self._present = _resized(self._present, self._capacity)
        self._counts = _resized(self._counts, self._capacity)
        for column in self._columns.values():
            column.arrays[:] = [_resized(array, self._capacity) for array in column.arrays]
        self._masks.clear()

    def _changed(self, log: Hashable, row: int) -> None:
        self._logs.setdefault(log, _Log()).add(row)
        self.version += 1

    @property
    def ranks(self) -> Ints:
        """Each row's rank by cluster name. [row]"""
        if self._ranks is None:
            ranks = np.empty(len(self.names), np.int64)
            ranks[sorted(range(len(self.names)), key=self.names.__getitem__)] = np.arange(len(self.names))
            self._ranks = ranks
        return self._ranks

    # Clusters

    def put_cluster(self, document: Document, cluster: ManagedCluster | None = None) -> int:
        cluster = cluster or view(document, ManagedCluster)
        row = self._row(cluster.metadata.name)
        self.clusters[row] = cluster
        self._documents[row] = document
        self._bound.pop(row, None)
        self._present[row] = not cluster.metadata.deletion_timestamp
        self._changed("clusters", row)
        return row

    def remove_cluster(self, name: str) -> None:
        row = self.row_of.get(name)
        if row is None:
            return
        self.clusters[row] = None
        self._documents[row] = None
        self._bound.pop(row, None)
        self._present[row] = False
        self._changed("clusters", row)

    def cluster(self, row: int) -> ManagedCluster:
        found = self.clusters[row]
        assert found is not None, f"row {row} is not a cluster"
        return found

    @property
    def present(self) -> Mask:
        """Clusters that exist and are not being deleted. [row]"""
        return self._present[: len(self.names)]

    # Scores

    def put_score(self, score: AddOnPlacementScore) -> None:
        try:
            until = parse_time(score.status.valid_until) if score.status.valid_until else math.inf
        except BadTime:
            until = math.inf
        row = self._row(score.metadata.namespace)
        values = {item.name: item.value for item in score.status.scores}
        self._scores.setdefault(row, {})[score.metadata.name] = ScoreObject(values, until, read_answer(score))
        self._score_changed(row, score.metadata.name)

    def remove_score(self, cluster: str, resource: str) -> None:
        row = self.row_of.get(cluster)
        if row is not None and self._scores.get(row, {}).pop(resource, None) is not None:
            self._score_changed(row, resource)

    def _score_changed(self, row: int, resource: str) -> None:
        self._changed(("score", resource), row)
        self._changed("scores", row)

    def score_object(self, row: int, resource: str) -> ScoreObject | None:
        return self._scores.get(row, {}).get(resource)

    def score(self, resource: str, name: str) -> tuple[Ints, Floats]:
        """Values (0 if absent), and until when each is valid (infinity if there is no object). [row], [row]"""
        values, until = self._column(
            ("score", resource, name), ("score", resource), (np.int64, np.float64), self._score_filler(resource, name)
        )
        return values, until

    def _score_filler(self, resource: str, name: str) -> Callable[[list[NDArray[Any]], int], None]:
        def fill(arrays: list[NDArray[Any]], row: int) -> None:
            found = self.score_object(row, resource)
            arrays[0][row] = 0 if found is None else found.values.get(name, 0)
            arrays[1][row] = math.inf if found is None else found.valid_until

        return fill

    def fitting_pods(self, resource: str, which: str) -> tuple[Ints, Floats]:
        """How many pods fit, `Now` or `AfterScaleUp` (-1 without an answer), and until when that is valid. [row], [row]"""

        def fill(arrays: list[NDArray[Any]], row: int) -> None:
            arrays[0][row], arrays[1][row] = -1, -math.inf
            found = self.score_object(row, resource)
            if found is not None and found.answer is not None:
                arrays[0][row], arrays[1][row] = found.answer.count(which), found.valid_until

        counts, until = self._column(
            ("fitting pods", resource, which), ("score", resource), (np.int64, np.float64), fill
        )
        return counts, until

    def next_score_expiry(self, rows: Sequence[int], now: float) -> float:
        """When the next score object of these clusters expires."""
        return min(
            (
                found.valid_until
                for row in rows
                for found in self._scores.get(row, {}).values()
                if now <= found.valid_until < math.inf
            ),
            default=math.inf,
        )

    # Decisions

    def put_decision(self, decision: PlacementDecision) -> None:
        key = decision.metadata.key
        self.remove_decision(*key)
        rows = tuple(self._row(item.cluster_name) for item in decision.status.decisions)
        for row in rows:
            self._counts[row] += 1
        self._decisions[key] = (decision.placement, rows)
        if decision.placement:
            self._owned.setdefault((key[0], decision.placement), {})[key[1]] = rows

    def remove_decision(self, namespace: str, name: str) -> None:
        placement, rows = self._decisions.pop((namespace, name), ("", ()))
        for row in rows:
            self._counts[row] -= 1
        owned = self._owned.get((namespace, placement))
        if owned is not None:
            owned.pop(name, None)
            if not owned:
                del self._owned[namespace, placement]

    def decided(self, namespace: str, placement: str) -> list[int]:
        """Rows in the decisions of a placement, with duplicates."""
        return [row for rows in self._owned.get((namespace, placement), {}).values() for row in rows]

    def other_counts(self, own: Sequence[int]) -> Ints:
        """How often each cluster is in decisions of other placements. [row]"""
        counts = self._counts[: len(self.names)].copy()
        for row in own:
            counts[row] -= 1
        return counts

    # Columns

    def matching(self, selector: Selector, now: float) -> Mask:
        """Clusters that the selector matches. [row]"""
        if not selector.expressions:
            return self._column(selector, "clusters", (np.bool_,), self._selector_filler(selector))[0]
        if not selector.uses_scores:
            return self._column(selector, "clusters", (np.bool_,), self._cel_filler(selector, now))[0]
        # CEL can read scores, so rows are also stale when their scores change or expire.
        self._expire(now)
        return self._column(selector, "scores and clusters", (np.bool_,), self._cel_filler(selector, now))[0]

    def _selector_filler(self, selector: Selector) -> Callable[[list[NDArray[Any]], int], None]:
        def fill(arrays: list[NDArray[Any]], row: int) -> None:
            cluster = self.clusters[row]
            arrays[0][row] = cluster is not None and selector.matches(cluster.metadata.labels, cluster.claims)

        return fill

    def _cel_filler(self, selector: Selector, now: float) -> Callable[[list[NDArray[Any]], int], None]:
        budget = cost_per_cluster(len(self.names))

        def fill(arrays: list[NDArray[Any]], row: int) -> None:
            cluster = self.clusters[row]
            arrays[0][row] = (
                cluster is not None
                and selector.matches(cluster.metadata.labels, cluster.claims)
                and selector.evaluates(self.bound(row, now), budget)
            )

        return fill

    def bound(self, row: int, now: float) -> Bindings:
        """The cluster bound for CEL expressions, with the scores that are valid now."""
        document = self._documents[row]
        assert document is not None

        def scores(resource: str) -> list[dict[str, Any]] | None:
            found = self.score_object(row, resource)
            if found is None or now > found.valid_until:
                return None
            return [{"name": name, "value": value} for name, value in found.values.items()]

        bound = self._bound.get(row)
        if bound is None:
            bound = self._bound[row] = bind_cluster(document, scores)
        bound.context = scores
        return bound

    def _expire(self, now: float) -> None:
        """Marks rows whose scores expired since the last query (or became valid again, if the time is earlier)."""
        low, high = sorted((self._now, now))
        if low != high:
            for row, objects in self._scores.items():
                if any(low <= found.valid_until < high for found in objects.values()):
                    self._changed("scores", row)
            self._now = now

    def tolerance(self, tolerations: tuple[ClusterToleration, ...]) -> tuple[Floats, Floats]:
        """Until when each cluster passes the filter: as a new selection, and if already selected. [row], [row]"""

        def fill(arrays: list[NDArray[Any]], row: int) -> None:
            cluster = self.clusters[row]
            arrays[0][row], arrays[1][row] = (
                (math.inf, math.inf) if cluster is None else taints.passes_until(cluster.spec.taints, tolerations)
            )

        new, decided = self._column(("tolerance", tolerations), "clusters", (np.float64, np.float64), fill)
        return new, decided

    def allocatable(self, resource: str) -> tuple[Floats, Mask]:
        """Allocatable amounts, and which clusters report both allocatable and capacity. [row], [row]"""

        def fill(arrays: list[NDArray[Any]], row: int) -> None:
            cluster = self.clusters[row]
            arrays[0][row], arrays[1][row] = 0.0, False
            if cluster is not None and resource in cluster.status.capacity and resource in cluster.status.allocatable:
                try:
                    arrays[0][row] = approximate(cluster.status.allocatable[resource])
                    arrays[1][row] = True
                except BadQuantity:
                    return

        amounts, reported = self._column(("allocatable", resource), "clusters", (np.float64, np.bool_), fill)
        return amounts, reported

    def eligible(self, sets: tuple[Selector, ...]) -> Mask:
        """Present clusters in any of the sets. [row]"""
        return self._memo(("eligible", sets), lambda: self._any(sets, 0.0) & self.present)

    def fitting(self, predicates: tuple[Selector, ...], now: float) -> Mask:
        """Clusters that match any of the predicates; all if there are none. [row]"""
        if not predicates:
            return np.ones(len(self.names), bool)
        if any(selector.uses_scores for selector in predicates):
            self._expire(now)
        return self._memo(("fitting", predicates), lambda: self._any(predicates, now))

    def _any(self, selectors: tuple[Selector, ...], now: float) -> Mask:
        total = np.zeros(len(self.names), bool)
        for selector in selectors:
            total |= self.matching(selector, now)
        return total

    def _memo(self, key: Hashable, make: Callable[[], Mask]) -> Mask:
        found = self._masks.get(key)
        if found is None or found[0] != self.version:
            if len(self._masks) >= _MAX_COLUMNS:
                self._masks.clear()
            found = self._masks[key] = (self.version, make())
        return found[1]

    def _column(
        self,
        key: Hashable,
        log_name: Hashable,
        types: tuple[type[np.generic], ...],
        fill: Callable[[list[NDArray[Any]], int], None],
    ) -> list[NDArray[Any]]:
        logs = ["scores", "clusters"] if log_name == "scores and clusters" else [log_name]
        ends = [self._logs.setdefault(name, _Log()).end for name in logs]
        column = self._columns.get(key)
        if column is None:
            if len(self._columns) >= _MAX_COLUMNS:
                self._columns.pop(next(iter(self._columns)))
            column = self._columns[key] = _Column([np.zeros(self._capacity, kind) for kind in types], list(ends))
        stale = set(range(column.filled, len(self.names)))
        for name, seen in zip(logs, column.seen, strict=True):
            log = self._logs[name]
            stale.update(range(len(self.names)) if seen < log.start else log.rows[seen - log.start :])
        for row in stale:
            fill(column.arrays, row)
        column.seen, column.filled = ends, len(self.names)
        return [array[: len(self.names)] for array in column.arrays]


def _resized(array: NDArray[Any], capacity: int) -> NDArray[Any]:
    bigger = np.zeros(capacity, array.dtype)
    bigger[: len(array)] = array
    return bigger
