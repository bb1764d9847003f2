"""Filters and scorers whose results may change for all rows at once, each with its latest result.

These are the plugins of cluster scope, and all that normalize: a normalized score depends on the other rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from wharfinger.engine.normalized import NormalizedScorer
from wharfinger.engine.preparation import Filters, ScoringPlugin
from wharfinger.framework.columns import Bools, Ints, Rows
from wharfinger.framework.plugin import Prepared, Scope
from wharfinger.framework.tables import Tables


def _no_flags() -> Bools:
    return np.zeros(0, dtype=np.bool_)


@dataclass(slots=True, eq=False)
class ClusterFilter:
    prepared: Prepared
    version: Hashable = None  # of the answers that `accepted` was computed from
    accepted: Bools = field(default_factory=_no_flags)  # [row]

    def refresh(self, tables: Tables) -> None:
        tables.work.rows += len(tables.row_of)
        accepted = self.prepared.accepts_all(tables.capacity)
        if accepted is None:
            accepted = np.zeros(tables.capacity, dtype=np.bool_)
            accepted[tables.rows] = self.prepared.accepts(tables.rows)
        self.accepted = accepted


@dataclass(slots=True, eq=False)
class ClusterScorer:
    """A scorer of cluster scope that does not normalize."""

    prepared: Prepared
    weight: int
    version: Hashable = None
    scores: Ints | None = None  # [row], weighted; None: nothing to score, or nothing but zeros

    def refresh(self, tables: Tables) -> None:
        self.scores = None
        if self.prepared.scoring():
            rows = tables.rows
            tables.work.rows += len(rows)
            scores = self.prepared.score(rows) * self.weight
            if scores.any() or self.prepared.scores_follow_pods:
                self.scores = np.zeros(tables.capacity, dtype=np.int64)
                self.scores[rows] = scores

    def gained(self, row: int) -> int:
        """Scores one row again; returns the difference."""
        if self.scores is None:
            return 0
        score = self.prepared.score_row(row) * self.weight
        difference = score - int(self.scores[row])
        self.scores[row] = score
        return difference

    def gained_on(self, rows: Rows) -> Ints:
        if self.scores is None:
            return np.zeros(len(rows), dtype=np.int64)
        scores = self.prepared.score(rows) * self.weight
        difference = scores - self.scores[rows]
        self.scores[rows] = scores
        return difference


def _moves(prepared: Prepared) -> bool:
    """Whether the version of the scores may move."""
    kind = type(prepared)
    return kind.score_version is not Prepared.score_version or kind.version is not Prepared.version


class ClusterScope:
    """All filters and scorers of a shape whose results may change for all rows at once."""

    __slots__ = ("_filters", "_moving", "_scorers", "following", "guards", "normalized", "tracked")

    def __init__(self, filters: Filters, scorers: Sequence[ScoringPlugin]) -> None:
        plain = [each for each in scorers if not each.prepared.normalizes]
        self._filters = [ClusterFilter(each) for _, each in filters if each.scope is Scope.CLUSTER]
        self._scorers = [
            ClusterScorer(each.prepared, each.weight) for each in plain if each.prepared.scope is Scope.CLUSTER
        ]
        self.following = [each for each in self._scorers if each.prepared.scores_follow_pods]
        self.normalized = [NormalizedScorer(each.prepared, each.weight) for each in scorers if each.prepared.normalizes]
        self._moving = self.normalized  # those whose version may move
        self.guards: list[ClusterFilter] = []  # the filters that have something to filter
        self.tracked: list[NormalizedScorer] = []

    def reset(self, capacity: int) -> None:
        self.guards = []
        self.tracked = []
        self._moving = self.normalized
        for guard in self._filters:
            guard.version = None
        for part in self._scorers:
            part.version = part.scores = None
        for scorer in self.normalized:
            scorer.reset(capacity)

    def refresh(self, tables: Tables) -> tuple[bool, bool, Sequence[NormalizedScorer]]:
        """Evaluates everything whose version moved.

        Returns whether filters accept other rows, whether all values must be combined again, and the scorers whose
        difference can be added to the values if not.
        """
        filtered = scored = False
        for guard in self._filters:
            version = guard.prepared.filter_version
            if version != guard.version:
                guard.version = version
                filtering = guard.prepared.filtering()
                if filtering != (guard in self.guards):
                    self.guards = [each for each in self._filters if each in self.guards or each is guard]
                    if not filtering:
                        self.guards.remove(guard)
                    scored = True  # values without the guards were not kept
                if filtering:
                    filtered = True
                    guard.refresh(tables)
        for part in self._scorers:
            version = part.prepared.score_version
            if version != part.version:
                part.version = version
                part.refresh(tables)
                scored = True
        rescored: list[NormalizedScorer] = []
        for scorer in self._moving:
            version = scorer.prepared.score_version
            if version != scorer.version:
                scorer.version = version
                was_active, scorer.active = scorer.active, scorer.prepared.scoring()
                scorer.track(tables)
                if scorer.tracked != (scorer in self.tracked):
                    self.tracked = [each for each in self.normalized if each.tracked]
                if was_active and scorer.active and scorer.rows is not None and not filtered and not scored:
                    rescored.append(scorer)
                else:
                    scored = scored or was_active or scorer.active
        if self._moving is self.normalized:
            self._moving = [each for each in self.normalized if _moves(each.prepared)]
        return filtered, scored, rescored

    def size(self) -> int:
        """The bytes that the results take."""
        arrays = [each.accepted for each in self.guards] + [each.scores for each in self._scorers]
        arrays += [array for each in self.normalized for array in (each.raw, each.final)]
        return sum(each.nbytes for each in arrays if each is not None)

    def accepted(self, rows: Bools) -> Bools:
        """Those of the rows that pass the guards. [row]"""
        for guard in self.guards:
            rows = rows & guard.accepted
        return rows

    def plain_scores(self) -> Ints | None:
        """The sum of the scores that are not normalized. [row]"""
        total = None
        for part in self._scorers:
            if part.scores is not None:
                total = part.scores.copy() if total is None else total + part.scores
        return total
