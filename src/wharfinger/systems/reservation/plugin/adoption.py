"""Pre-allocation by adoption, as in Koordinator: a reservation takes over running pods and is available immediately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from wharfinger.api.numbers import parse_int64
from wharfinger.api.selectors import BadSelector
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.plugin import MAX_SCORE
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.status import unschedulable
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.plugin.ledger import ReservationLedger
from wharfinger.systems.reservation.plugin.placing import Placing
from wharfinger.systems.reservation.rules.owners import CompiledOwner, compile_owners
from wharfinger.systems.reservation.rules.reservations import (
    PRE_ALLOCATABLE,
    PRE_ALLOCATABLE_PRIORITY,
    PRE_ALLOCATION_REQUIRED,
    is_reservation,
)

NONE_TO_ADOPT = unschedulable("node(s) had no pods to take over for the reservation")
CLUSTER = "Cluster"


def adopts(reservation: Reservation) -> bool:
    spec = reservation.spec
    return spec.pre_allocation and spec.pre_allocation_policy is not None and spec.allocate_policy == "Restricted"


class Adopting(Placing):
    """For the stand-in of a reservation that takes over running pods. It may also use free room, unless adoption is
    required."""

    def __init__(
        self, tables: Tables, ledger: ReservationLedger, shape: Shape, pinned: str, reservation: Reservation
    ) -> None:
        super().__init__(tables, ledger, shape, pinned, reservation.spec.allocate_policy, pre_allocation=False)
        policy = reservation.spec.pre_allocation_policy
        assert policy is not None
        self.scores = True
        self.replaces = frozenset({"NodeResourcesFit"})
        self._uid = reservation.metadata.uid
        self._cluster = policy.mode == CLUSTER
        self._several = policy.enable_multiple
        self._only = reservation.metadata.labels.get(PRE_ALLOCATION_REQUIRED) == "true"
        self._owners: tuple[CompiledOwner, ...] = ()
        with suppress(BadSelector):  # an invalid selector matches no pod
            self._owners = tuple(each for each in compile_owners(reservation.spec.owners) if each.labels is not None)
        self._none = self.refuse(NONE_TO_ADOPT)

    def adoptees(self, row: int) -> Sequence[PodOnNode]:
        """The pods the reservation would take over on a row; empty if they would not make enough room."""
        taken: list[PodOnNode] = []
        together: dict[int, int] = {}
        for pod in self._candidates(row):
            if not self._several:
                taken, together = [], {}
            grown = {number: together.get(number, 0) + amount for number, amount in pod.charge}
            if not self._inside({**together, **grown}):
                continue
            taken.append(pod)
            together |= grown
            if self._fits(row, together):
                return taken
        return ()

    def _candidates(self, row: int) -> list[PodOnNode]:
        found = [pod for pod in self._tables.pods_on[row].values() if self._is_candidate(pod)]
        return sorted(found, key=lambda pod: (-_priority(pod) if self._cluster else 0, pod.key))

    def _is_candidate(self, pod: PodOnNode) -> bool:
        if is_reservation(pod.pod) or pod.terminating or pod.assumed:
            return False
        if self._ledger.reservation_of(pod.key) not in (None, self._uid):
            return False
        if self._cluster:
            return pod.pod.metadata.labels.get(PRE_ALLOCATABLE) == "true"
        return any(owner.matches(pod.pod) for owner in self._owners)

    def _inside(self, amounts: Mapping[int, int]) -> bool:
        reserved = dict(self._wanted)
        return all(amount <= reserved[number] for number, amount in amounts.items() if number in reserved)

    def _fits(self, row: int, taken: Mapping[int, int]) -> bool:
        tables = self._tables
        if tables.pod_count.cells[row] >= tables.pod_limit.cells[row]:
            return False
        return all(
            tables.requested[number].cells[row] - taken.get(number, 0) + amount <= tables.allocatable[number].cells[row]
            for number, amount in self._wanted
        )

    def filter(self, rows: Rows) -> Ints:
        return np.fromiter((self.filter_row(row) for row in rows.tolist()), dtype=np.int64, count=len(rows))

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        code = super().filter_row(row, simulation)
        if code or self.adoptees(row) or (not self._only and self._fits(row, {})):
            return code
        return self._none

    def score(self, rows: Rows) -> Ints:
        """Prefer nodes with pods to take over to nodes with free room."""
        scores = (MAX_SCORE if self.adoptees(row) else 0 for row in rows.tolist())
        return np.fromiter(scores, dtype=np.int64, count=len(rows))


def _priority(pod: PodOnNode) -> int:
    return parse_int64(pod.pod.metadata.annotations.get(PRE_ALLOCATABLE_PRIORITY, "")) or 0
