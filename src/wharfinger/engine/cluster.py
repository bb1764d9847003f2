"""Filters and scorers whose results may change for all rows at once, each with its latest result.

These are the plugins of cluster scope, and all that normalize: a normalized score depends on the other rows.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from wharfinger.framework.columns import Bools, Ints, Rows
from wharfinger.framework.plugin import Prepared, Scope
from wharfinger.framework.tables import Tables


def _no_numbers() -> Ints:
    return np.zeros(0, dtype=np.int64)


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
    scores: Ints | None = None  # [row], weighted; None: nothing to score

    def refresh(self, tables: Tables) -> None:
        self.scores = None
        if self.prepared.scoring():
            rows = tables.rows
            tables.work.rows += len(rows)
            self.scores = np.zeros(tables.capacity, dtype=np.int64)
            self.scores[rows] = self.prepared.score(rows) * self.weight


@dataclass(slots=True, eq=False)
class NormalizedScorer:
    prepared: Prepared
    weight: int
    version: Hashable = None
    active: bool = False  # whether there is anything to score
    raw: Ints = field(default_factory=_no_numbers)  # [row]; not kept for cluster scope unless `tracked`
    tracked: bool = False  # cluster scope: whether `raw` is updated row by row as pods come and go
    stale: bool = False  # whether `raw` is newer than `final`
    uniform: bool = False  # whether all raw scores are equal, so that normalizing cannot tell rows apart
    constant: int = 0  # what every row gets then, weighted
    rows: Rows | None = None  # the feasible rows that `final` was computed for
    final: Ints | None = None  # their normalized scores, which the totals contain; None: the totals contain none

    def reset(self, capacity: int) -> None:
        self.version = None
        self.rows = self.final = None
        self.active = self.tracked = self.stale = False
        self.raw = np.zeros(capacity, dtype=np.int64)

    def nodes_changed(self, tables: Tables, rows: Rows) -> None:
        """Node scope: scores rows whose node changed."""
        self.raw[rows] = self.prepared.score(rows)
        raw = self.raw[tables.alive]
        self.uniform = bool((raw == raw[0]).all()) if len(raw) else False
        if self.uniform:
            self.constant = int(self.prepared.normalize(raw[:1], tables.rows[:1])[0]) * self.weight

    def track(self, tables: Tables) -> None:
        """Cluster scope: decides whether raw scores are tracked, and computes them if so."""
        prepared = self.prepared
        self.tracked = self.active and prepared.scope is Scope.CLUSTER and prepared.scores_follow_pods
        if self.tracked:
            self.raw[tables.rows] = prepared.score(tables.rows)

    def normalized(self, tables: Tables, rows: Rows) -> Ints:
        """The normalized scores of the feasible rows."""
        if self.prepared.scope is Scope.CLUSTER and not self.tracked:
            final = self.prepared.final(rows)
        else:
            final = self.prepared.normalize(self.raw.take(rows), rows)
        if final is not self.final:
            tables.work.rows += len(rows)
        return final
