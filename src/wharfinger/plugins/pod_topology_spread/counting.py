"""The pods that topology spread constraints count."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from wharfinger.api.taints import has_untolerated_taint
from wharfinger.framework.columns import Bools, Ints, LabelColumn, Rows
from wharfinger.framework.counters import RowCounter
from wharfinger.framework.label_index import PodSelection
from wharfinger.framework.plugin import Prepared, Scope
from wharfinger.framework.pod_selectors import NOTHING
from wharfinger.framework.shapes import Shape
from wharfinger.framework.tables import Tables
from wharfinger.plugins.node_affinity import matching
from wharfinger.plugins.pod_topology_spread.constraints import Constraint

FEW = 64  # up to this many domains are cheaper one by one than as arrays

ReadConstraints = Callable[[], tuple[tuple[Constraint, ...], tuple[Constraint, ...]]]
"""Gives the hard and the soft constraints of a shape."""


class Domains:
    """The pods that one constraint counts: on each row, and in each domain over its eligible rows."""

    def __init__(
        self, constraint: Constraint, column: LabelColumn, counter: RowCounter, labels: Mapping[str, str]
    ) -> None:
        self.constraint = constraint
        self.own = 1 if constraint.selector.matches(labels) else 0  # whether the incoming pod counts itself
        self.column = column
        self.counter = counter
        self.eligible: Bools = np.zeros(0, dtype=np.bool_)  # [row]
        self.sums: Ints = np.zeros(0, dtype=np.int64)  # [domain]
        self._present: Rows = np.zeros(0, dtype=np.int64)  # the domains that have an eligible row
        self._smallest: int | None = 0  # None: not computed yet
        self._version = -1

    def rebuild(self, eligible: Bools) -> None:
        self.eligible = eligible
        codes = self.column.codes.view
        there = eligible & (codes >= 0)
        # One cell more than there are domains, always zero: code -1 reads it.
        size = len(self.column.values) + 1
        chosen = codes[there]
        self.sums = np.bincount(chosen, weights=self.counter.counts[there], minlength=size).astype(np.int64)
        self._present = np.flatnonzero(np.bincount(chosen, minlength=size))
        self._version = self.counter.version
        self._smallest = None

    def refresh(self) -> None:
        if self._version == self.counter.version:
            return
        deltas = self.counter.since(self._version)
        if deltas is None:
            self.rebuild(self.eligible)
            return
        codes = self.column.codes.cells
        for row, amount in deltas:
            if self.eligible[row] and codes[row] >= 0:
                self.sums[codes[row]] += amount
        self._version = self.counter.version
        self._smallest = None

    @property
    def smallest(self) -> int:
        if self._smallest is None:
            self._smallest = self.minimum(self.sums)
        return self._smallest

    def skewed(self) -> Bools:
        """Which domains would exceed the maximum skew with one more pod."""
        return np.frombuffer(self.full(), dtype=np.bool_)

    def full(self) -> bytes:
        """The same as a byte for each domain, which is fast to compare."""
        most = self.constraint.max_skew + self.smallest - self.own
        if len(self.sums) > FEW:
            return (self.sums > most).tobytes()
        return bytes([each > most for each in self.sums.tolist()])

    def minimum(self, sums: Ints) -> int:
        """The global minimum; 0 while there are fewer domains than `minDomains`."""
        number = len(self._present)
        if number < self.constraint.min_domains or not number:
            return 0
        if number > FEW:
            return int(sums.take(self._present).min())
        return min([int(each) for each in sums.take(self._present).tolist()])


class SpreadCounts(Prepared):
    """Keeps the counts of a shape's constraints up to date."""

    scope = Scope.CLUSTER

    def __init__(
        self,
        tables: Tables,
        shape: Shape,
        read: ReadConstraints,
        source_version: Callable[[], int],
        *,
        require_all: bool,
    ) -> None:
        """`source_version` moves when `read` may give other constraints. `require_all` leaves nodes without all topology
        keys out of the scores."""
        super().__init__()
        self._tables = tables
        self._shape = shape
        self._read = read
        self._source_version = source_version
        self._require_all = require_all
        self._hard: list[Domains] = []
        self._soft: list[Domains] = []
        self._read_version = -1
        self._node_position = -1
        self._refreshed_at = -1
        self._read_constraints()

    def close(self) -> None:
        for domains in (*self._hard, *self._soft):
            self._tables.counters.release(domains.counter)
        self._hard, self._soft = [], []

    def _read_constraints(self) -> None:
        hard, soft = self._read()
        self.close()
        self._hard = [self._domains(each) for each in hard]
        self._soft = [self._domains(each) for each in soft]
        self._read_version = self._source_version()
        self._node_position = -1
        self._refreshed_at = -1

    def _domains(self, constraint: Constraint) -> Domains:
        # As upstream (countPodsMatchSelector), an empty selector counts no pods, although it matches all.
        selector = NOTHING if constraint.selector.empty else constraint.selector
        selection = PodSelection(((frozenset((self._shape.namespace,)), selector),), ignore_terminating=True)
        counter = self._tables.counters.row_counter(selection)
        return Domains(constraint, self._tables.label(constraint.topology_key), counter, self._shape.labels)

    def _refresh(self) -> None:
        version = self._tables.version
        if self._refreshed_at == version:
            return
        self._refreshed_at = version
        if self._read_version != self._source_version():
            self._read_constraints()
        if not self._hard and not self._soft:
            return
        position = self._tables.node_log.position
        if self._node_position != position or len((self._hard or self._soft)[0].eligible) != self._tables.capacity:
            self._node_position = position
            every = np.arange(self._tables.capacity)
            hard_keys = self._with_keys(self._hard, every)
            for domains in self._hard:
                domains.rebuild(hard_keys & self._included(domains.constraint, every))
            soft_keys = self._with_keys(self._soft, every) if self._require_all else self._tables.alive
            for domains in self._soft:
                domains.rebuild(soft_keys & self._included(domains.constraint, every))
            return
        for domains in (*self._hard, *self._soft):
            domains.refresh()

    def _with_keys(self, domains: list[Domains], rows: Rows) -> Bools:
        found = self._tables.alive[rows]
        for each in domains:
            found = found & (each.column.codes.view[rows] >= 0)
        return found

    def _included(self, constraint: Constraint, rows: Rows) -> Bools:
        """The rows whose pods are counted according to the node inclusion policies."""
        included = np.ones(len(rows), dtype=np.bool_)
        if constraint.honor_affinity and not self._shape.node_affinity.anything:
            included &= matching(self._tables, self._shape.node_affinity, rows)
        if constraint.honor_taints:
            tolerations = self._shape.pod.spec.tolerations
            kept_off = np.array([has_untolerated_taint(tolerations, taints) for taints in self._tables.taint_lists])
            included &= ~kept_off[self._tables.taints.view[rows]]
        return included
