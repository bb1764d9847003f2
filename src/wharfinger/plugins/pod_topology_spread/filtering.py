"""Filtering by hard topology spread constraints."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wharfinger.framework.columns import Bools, Ints, Rows
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.status import SUCCESS, Status, unresolvable, unschedulable
from wharfinger.framework.tables import PodOnNode
from wharfinger.plugins.pod_topology_spread.counting import SpreadCounts

REASON_SKEW = unschedulable("node(s) didn't match pod topology spread constraints")
REASON_LABEL = unresolvable("node(s) didn't match pod topology spread constraints (missing required label)")

BY_LABEL, BY_SKEW = 1, 2
_STATUSES = (SUCCESS, REASON_LABEL, REASON_SKEW)


class SpreadFilter(SpreadCounts):
    filters = True

    _full: Sequence[bytes] = ()  # [hard constraint] the latest `Domains.full`
    _full_at = -2  # position of the node log at that time
    _full_counted = -1  # sum of the counters' versions at that time
    _full_version = 0

    def _read_constraints(self) -> None:
        super()._read_constraints()
        self._full_at = -2

    @property
    def filter_version(self) -> int:
        """Moves when the set of full domains changes, not with every pod that is counted."""
        if not self._hard and self._read_version == self._source_version():
            return 0
        self._refresh()
        counted = sum([domains.counter.version for domains in self._hard])
        if counted == self._full_counted and self._node_position == self._full_at:
            return self._full_version
        self._full_counted = counted
        full = [domains.full() for domains in self._hard]
        if self._node_position != self._full_at or full != self._full:
            self._full, self._full_at = full, self._node_position
            self._full_version += 1
        return self._full_version

    def status(self, code: int) -> Status:
        return _STATUSES[code]

    def filtering(self) -> bool:
        self._refresh()
        return bool(self._hard)

    def accepts(self, rows: Rows) -> Bools:
        return self._accepts([domains.column.codes.take(rows) for domains in self._hard], len(rows))

    def accepts_all(self, capacity: int) -> Bools | None:
        return self._accepts([domains.column.codes.view for domains in self._hard], capacity)

    def _accepts(self, codes: list[Ints], size: int) -> Bools:
        _ = self.filter_version  # refreshes `_full`
        found: Bools | None = None
        for full, where in zip(self._full, codes, strict=True):
            fine = ~np.frombuffer(full, dtype=np.bool_)
            fine[-1] = False  # read by code -1
            passed = fine[where]
            found = passed if found is None else found & passed
        return np.ones(size, dtype=np.bool_) if found is None else found

    def filter(self, rows: Rows) -> Ints:
        self._refresh()
        codes = np.zeros(len(rows), dtype=np.int64)
        # The first constraint that is violated gives the reason, so go backwards.
        for domains in reversed(self._hard):
            skewed = domains.skewed()
            where = domains.column.codes.take(rows)
            if skewed.any():
                codes = np.where(skewed[where], BY_SKEW, codes)
            codes = np.where(where < 0, BY_LABEL, codes)
        return codes

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        self._refresh()
        imagined = None if simulation is None else simulation.state.get(self)
        for index, domains in enumerate(self._hard):
            code = domains.column.codes.cells[row]
            if code < 0:
                return BY_LABEL
            constraint = domains.constraint
            count, smallest = int(domains.sums[code]), domains.smallest
            if imagined is not None and imagined[index]:
                sums = domains.sums.copy()
                sums[code] += imagined[index]
                count, smallest = count + imagined[index], domains.minimum(sums)
            if count + domains.own - smallest > constraint.max_skew:
                return BY_SKEW
        return 0

    def pod_simulated(self, simulation: Simulation, pod: PodOnNode, sign: int) -> None:
        if not self._hard or pod.shape.namespace != self._shape.namespace:
            return
        row = simulation.row
        if any(domains.column.codes.cells[row] < 0 for domains in self._hard):
            return
        imagined = simulation.state.get(self)
        if imagined is None:
            imagined = simulation.state[self] = [0] * len(self._hard)
        for index, domains in enumerate(self._hard):
            # As upstream (updateWithPod), terminating pods are included here, unlike in the counts.
            if domains.constraint.selector.matches(pod.shape.labels) and domains.eligible[row]:
                imagined[index] += sign
