"""Where a reservation itself may be placed: pinned node, compatible allocate policies, and pre-allocation."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from wharfinger.framework.columns import Bools, Ints, Rows
from wharfinger.framework.plugin import MAX_SCORE, Overlays, Prepared, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Overlay, Simulation
from wharfinger.framework.status import unresolvable
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.systems.reservation.plugin.ledger import ReservationLedger

NOT_PINNED = unresolvable("node(s) didn't match the nodeName specified by reservation")
POLICY_CONFLICT = unresolvable("node(s) reservation allocate policy conflict")
TOO_MANY = unresolvable("Too many pods")
_WITH_VICTIMS = ("InterPodAffinity", "resourcepolicy")


class Placing(Prepared, Overlays):
    """For the stand-in of a reservation.

    A pre-allocation does not need free room now: it is limited only by the other reservations on the node, and prefers
    nodes where most of what it requests is free already.
    """

    scope = Scope.ROW
    filters = widens = True

    def __init__(
        self,
        tables: Tables,
        ledger: ReservationLedger,
        shape: Shape,
        pinned: str,
        policy: str,
        pre_allocation: bool,
        guarantees: bool = False,
        moved: str = "",
    ) -> None:
        super().__init__()
        self._tables = tables
        self._ledger = ledger
        self._pinned = pinned
        self.within = frozenset((pinned,)) if pinned else None
        self._policy = policy
        self._pre_allocation = self.scores = pre_allocation
        self._shape = shape
        self._moved = moved  # uid of the pod that the reservation replaces
        self._wanted = tables.charge(shape)
        self._not_pinned = self.refuse(NOT_PINNED)
        self._conflict = self.refuse(POLICY_CONFLICT)
        self._too_many = self.refuse(TOO_MANY)
        if pre_allocation:
            # Constraints that keep the preemptor off the node while its victims run do not apply to its guarantee.
            self.replaces = frozenset({"NodeResourcesFit", *(_WITH_VICTIMS if guarantees else ())})

    # -- the pod that the reservation replaces

    @property
    def overlays(self) -> Overlays | None:
        return self if self._moved else None

    def _moved_pod(self) -> PodOnNode | None:
        return self._tables.pod_with_uid(self._moved)

    @property
    def overlaid(self) -> Collection[int]:
        """The rows that share a domain with the pod, for anti-affinity between it and its replacement."""
        pod, found = self._moved_pod(), set[int]()
        if pod is None or pod.row < 0:
            return found
        terms = (*self._shape.required_anti_affinity, *pod.shape.required_anti_affinity)
        for key in {term.topology_key for term in terms}:
            found.update(self._tables.label(key).rows_like(pod.row))
        return found

    def overlays_on(self, row: int, *, evicting: bool = False) -> Sequence[Overlay]:
        pod = self._moved_pod()
        return () if pod is None else (lambda simulation: simulation.remove_elsewhere(pod),)

    # -- filtering

    def filter(self, rows: Rows) -> Ints:
        codes = np.zeros(len(rows), dtype=np.int64)
        if self._pinned:
            row = self._tables.row_of.get(self._pinned, -1)
            codes[rows != row] = self._not_pinned
        taken = self._ledger.stand_ins_on
        for index, row in enumerate(rows.tolist()):
            if not codes[index] and (self._pre_allocation or row in taken):
                codes[index] = self._check_row(row)
        return codes

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        if self._pinned and self._tables.row_of.get(self._pinned, -1) != row:
            return self._not_pinned
        return self._check_row(row)

    def _check_row(self, row: int) -> int:
        for policy in self._ledger.policies_on(row):
            if bool(policy) is not bool(self._policy):
                return self._conflict
        return self._too_large(row) if self._pre_allocation else 0

    def _too_large(self, row: int) -> int:
        tables = self._tables
        if len(self._ledger.stand_ins_on.get(row, ())) >= tables.pod_limit.cells[row]:
            return self._too_many
        held = self._ledger.held_on(row)
        short = [
            tables.resource_names[number]
            for number, amount in self._wanted
            if amount + held.get(number, 0) > tables.allocatable[number].cells[row]
            and not tables.is_by_devices(tables.resource_names[number], row)
        ]
        return self.refuse(unresolvable(*(f"Insufficient {name}" for name in short))) if short else 0

    def short(self, row: int) -> bool:
        """Whether a pre-allocation would have to wait for room on the row."""
        tables = self._tables
        return self._pre_allocation and (
            tables.pod_count.cells[row] >= tables.pod_limit.cells[row]
            or any(
                tables.allocatable[number].cells[row] - tables.requested[number].cells[row] < amount
                and not tables.is_by_devices(tables.resource_names[number], row)
                for number, amount in self._wanted
            )
        )

    def score(self, rows: Rows) -> Ints:
        """The share of the requested resources that is free now, averaged over resources."""
        if not self._wanted:
            return np.full(len(rows), MAX_SCORE, dtype=np.int64)
        total = np.zeros(len(rows), dtype=np.int64)
        for number, amount in self._wanted:
            free = self._tables.allocatable[number].view[rows] - self._tables.requested[number].view[rows]
            enough: Bools = free >= amount
            total += np.where(enough, MAX_SCORE, np.clip(free, 0, None) * MAX_SCORE // amount)
        return total // len(self._wanted)
