"""The ledger of reservations: what is reserved on each row, for which owners, and how much of it is in use.

A reservation that holds a node is in the tables as a stand-in that requests what its consumers do not use: of each
resource `max(R - A, 0)`, where R is reserved and A is allocated to consumers. Other pods therefore see
`O + Σ max(R, A)` as requested (O: requests of pods outside reservations) without special handling. Only pods that may
use a reservation see more room (`plugin.reservation`). One ledger serves all profiles of an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views import ObjectMeta
from wharfinger.api.views.pods import Quantities
from wharfinger.framework.changes import Log
from wharfinger.framework.node_table import PODS
from wharfinger.framework.shapes import Shape
from wharfinger.framework.tables import Charge, PodOnNode, Tables
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.plugin.holding import Numbers, ReservationHolding, ReservedSizes
from wharfinger.systems.reservation.rules.owners import OwnerClasses
from wharfinger.systems.reservation.rules.reservations import (
    allocation_of,
    amounts,
    is_reservation,
    mover_name,
    wanted_quantities,
)
from wharfinger.systems.reservation.rules.resizing import Resizing, plan

_SHARED = "reservations"


class ReservationPlacement(msgspec.Struct, frozen=True):
    """What binding a reservation writes in addition to the node name."""

    waiting: bool = False  # the node does not have enough room yet
    adopted: tuple[ObjectMeta, ...] = ()  # running pods that the reservation takes over

    @property
    def phase(self) -> str:
        return "Waiting" if self.waiting else "Available"


class ReservationLedger:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.reservations: dict[str, Reservation] = {}  # by uid, in any phase
        self.holdings: dict[str, ReservationHolding] = {}
        self.classes = OwnerClasses()
        self.of_class: dict[int, dict[str, ReservationHolding]] = {}  # by owner class and uid
        self.stand_ins_on: dict[int, dict[str, PodOnNode]] = {}  # by row and uid, including assumed ones
        self.by_number: dict[int, ReservationHolding] = {}
        self._logs: dict[int, Log] = {}  # by owner class: the numbers of such holdings
        self.waiting_rows: set[int] = set()  # rows to check for Waiting reservations that fit now
        self.placements: dict[ObjectKey, ReservationPlacement] = {}  # of assumed stand-ins, until they are bound
        self._uses = tables.stand_in_users.on_nodes
        self._assumed = tables.stand_in_users.assumed
        self.spent: dict[str, ObjectMeta] = {}  # by uid: the consumer that left before the reservation was Succeeded
        self.gave_back = False  # whether room was freed by adoption since `ReservationItems.wakes`
        self._promised: dict[str, Quantities] = {}  # by uid: new sizes being written
        self._sizes = ReservedSizes(tables)
        self._first_seen = 0
        self._node_position = 0
        self.needed = False  # whether there has ever been a reservation
        tables.listen(self, first=True)

    # -- reservations

    def set(self, reservation: Reservation) -> None:
        """Add or update a reservation."""
        uid = reservation.metadata.uid
        if self.reservations.get(uid) is reservation:
            return  # already reported by another profile's plugin
        if not self.needed:
            self.needed = True
            self._tables.changed(listeners=True)
        self.reservations[uid] = reservation
        old = self.holdings.get(uid)
        if not reservation.holds or not reservation.once:
            self.spent.pop(uid, None)
        if not reservation.holds:
            if old is not None:
                self._release(old)
            return
        if old is None:
            self._first_seen += 1
        number = self._first_seen if old is None else old.number
        owners = self.classes.enter(reservation.spec.owners) if reservation.phase == "Available" else None
        new = ReservationHolding(self._tables, self._sizes, reservation, self._quantities(reservation), owners, number)
        new.limit_to(self._tables, self._promised.get(uid))
        new.spent = uid in self.spent
        if old is not None:
            self._log_holding(old)
            self._leave_class(old)
        self.holdings[uid] = self.by_number[number] = new
        if owners is not None:
            self.of_class.setdefault(owners, {})[uid] = new
        self._tables.changed(keys=True)
        for pod in self._consumers_on(new.stand_in.node_name, uid):
            new.count(pod)
        if old is None and new.consumers:
            self.gave_back = True  # pods that it adopted were counted beside it until now
        new.stand_in.charge, new.stand_in.nonzero = new.charge(), new.nonzero()
        if old is not None and (reservation.phase == "Available" or old.stand_in.node_name != new.stand_in.node_name):
            # It has moved, or need not: the node on which it waited may be the one that it found.
            self._tables.remove_pod((new.stand_in.key[0], mover_name(uid)))
        self._tables.add_pod(new.stand_in)
        self._log_holding(new)

    def remove(self, reservation: Reservation) -> None:
        uid = reservation.metadata.uid
        self.reservations.pop(uid, None)
        self._promised.pop(uid, None)
        self.spent.pop(uid, None)
        holding = self.holdings.get(uid)
        if holding is not None:
            self._release(holding)

    def _release(self, holding: ReservationHolding) -> None:
        """The reservation no longer holds its node; its consumers become ordinary pods."""
        del self.holdings[holding.uid], self.by_number[holding.number]
        self._log_holding(holding)
        self._leave_class(holding)
        self._tables.changed(keys=True)
        self._tables.remove_pod(holding.stand_in.key)

    def _leave_class(self, holding: ReservationHolding) -> None:
        if holding.owners is not None:
            of_class = self.of_class[holding.owners]
            of_class.pop(holding.uid, None)
            if not of_class:
                del self.of_class[holding.owners]
            if self.classes.leave(holding.owners):
                self._logs.pop(holding.owners, None)

    # -- what changed

    def log_of(self, owner_class: int) -> Log:
        """The numbers of the holdings of an owner class that were added, changed or removed."""
        log = self._logs.get(owner_class)
        if log is None:
            log = self._logs[owner_class] = Log()
        return log

    def _log_holding(self, holding: ReservationHolding) -> None:
        log = None if holding.owners is None else self._logs.get(holding.owners)
        if log is not None:  # otherwise nobody has asked for it
            log.append(holding.number)

    # -- resizing

    def resizing(self, holding: ReservationHolding) -> Resizing:
        """How far the reservation can be resized to match its template. Raises BadReservation."""
        tables, row = self._tables, holding.row
        wanted = wanted_quantities(holding.reservation)
        names = {*holding.names, *wanted}
        used, free = {}, {}
        for name in names:
            number = tables.resources.get(name)
            if number is not None:
                used[name] = holding.allocated.get(number, 0)
                if row >= 0:
                    free[name] = tables.allocatable[number].cells[row] - tables.requested[number].cells[row]
            elif name == PODS:
                used[name], free[name] = len(holding.consumers), 1 << 31
        if holding.waiting and row >= 0:
            # A Waiting reservation waits for running pods anyway, so only other reservations limit its growth.
            held = self.held_on(row, without=holding.uid)
            for name in names & set(tables.resources):
                number = tables.resources[name]
                free[name] = (
                    tables.allocatable[number].cells[row] - held.get(number, 0) - holding.reserved.get(number, 0)
                )
        return plan(holding.quantities, wanted, used, free)

    def promise(self, uid: str, quantities: Quantities) -> None:
        """Record a new size that is being written. Until the update arrives, other pods see the larger of both sizes
        and consumers are limited to the smaller."""
        self._promised[uid] = quantities
        self._reapply(uid)

    def forget_promise(self, uid: str, quantities: Quantities) -> None:
        """Drop a promise whose write failed, unless a newer one has replaced it."""
        if self._promised.get(uid) is quantities:
            del self._promised[uid]
            self._reapply(uid)

    def _reapply(self, uid: str) -> None:
        reservation = self.reservations.pop(uid, None)
        if reservation is not None:
            self.set(reservation)

    def _quantities(self, reservation: Reservation) -> Quantities:
        """`status.allocatable`, raised to the promised size where that is larger."""
        stated = reservation.status.allocatable
        promised = self._promised.get(reservation.metadata.uid)
        if promised is None:
            return stated
        has, more = amounts(stated), amounts(promised)
        if has == more:
            del self._promised[reservation.metadata.uid]
            return stated
        return {**stated, **{name: promised[name] for name in promised if more[name] > has.get(name, 0)}}

    # -- pods on nodes, assumed ones included

    def assume(self, key: ObjectKey, uid: str) -> None:
        """Record that a pod about to be assumed uses a reservation."""
        self._assumed[key] = uid

    def unassume(self, key: ObjectKey) -> None:
        self._assumed.pop(key, None)

    def assumed(self, key: ObjectKey) -> ReservationHolding | None:
        return self.holdings.get(self._assumed.get(key, ""))

    def use(self, key: ObjectKey) -> ReservationHolding | None:
        """The holding that a pod on a node uses."""
        return self.holdings.get(self._uses.get(key, ""))

    def reservation_of(self, key: ObjectKey) -> str | None:
        """The uid of the reservation that a pod on a node uses, known or not."""
        return self._uses.get(key)

    def concerned(self, shape: Shape) -> bool:
        return self.needed

    def pod_added(self, pod: PodOnNode) -> None:
        row = pod.row
        if is_reservation(pod.pod):
            self.stand_ins_on.setdefault(row, {})[pod.pod.metadata.uid] = pod
            self.waiting_rows.add(row)
            self._log(pod)
            return
        uid = self._uid_of(pod)
        if uid is not None:
            self._start_use(pod, uid, logged=row)

    def pod_removed(self, pod: PodOnNode) -> None:
        row = pod.row
        there = self.stand_ins_on.get(row)
        if there is not None:
            self.waiting_rows.add(row)
            if is_reservation(pod.pod):
                there.pop(pod.pod.metadata.uid, None)
                if not there:
                    del self.stand_ins_on[row]
                self._log(pod)
                return
        self._end_use(pod, logged=row)

    def pod_replaced(self, pod: PodOnNode) -> None:
        uid = self._uid_of(pod)
        if uid == self._uses.get(pod.key):
            return
        self._end_use(pod)
        if uid is not None:
            self._start_use(pod, uid)
            self.gave_back = True  # adopted: it was counted beside the reservation until now

    def _log(self, pod: PodOnNode) -> None:
        holding = self.holdings.get(pod.pod.metadata.uid)
        if holding is not None and holding.stand_in is pod:
            self._log_holding(holding)

    def _uid_of(self, pod: PodOnNode) -> str | None:
        if pod.assumed:
            return self._assumed.get(pod.key)
        self._assumed.pop(pod.key, None)  # bound: its annotation is authoritative from now on
        allocation = allocation_of(pod.pod.metadata)
        return None if allocation is None else allocation.uid

    # `logged` is the row that a pod is coming to or leaving just now: the tables log it.

    def _start_use(self, pod: PodOnNode, uid: str, logged: int = -1) -> None:
        self._uses[pod.key] = uid
        holding = self.holdings.get(uid)
        if holding is not None:
            stand_in = holding.stand_in
            # A pod on another node is ignored, whatever its annotation says. While a node is added, its pods get their
            # rows one after the other.
            if pod.row == stand_in.row if stand_in.row >= 0 else pod.node_name == stand_in.node_name:
                holding.count(pod)
            self._recharge(holding, logged)

    def _end_use(self, pod: PodOnNode, logged: int = -1) -> None:
        uid = self._uses.pop(pod.key, None)
        if uid is None:
            return
        holding = self.holdings.get(uid)
        taken = None if holding is None else holding.consumers.pop(pod.key, None)
        if holding is not None and taken is not None:
            for number, amount in taken:
                holding.allocated[number] -= amount
            holding.scored = (holding.scored[0] - pod.nonzero[0], holding.scored[1] - pod.nonzero[1])
            if holding.once and not pod.assumed:
                holding.spent, self.spent[uid] = True, pod.pod.metadata
            self._recharge(holding, logged)

    def _consumers_on(self, node_name: str, uid: str) -> Iterator[PodOnNode]:
        """The pods on a node that use a reservation, known or not."""
        row = self._tables.row_of.get(node_name)
        if row is not None and self._uses:
            yield from (pod for pod in self._tables.pods_on[row].values() if self._uses.get(pod.key) == uid)

    def _recharge(self, holding: ReservationHolding, logged: int) -> None:
        stand_in = holding.stand_in
        self._tables.recharge(stand_in, holding.charge(), holding.nonzero(), logged=stand_in.row == logged)
        self._log_holding(holding)

    # -- queries

    def held_on(self, row: int, *, without: str = "") -> Numbers:
        """What the reservations on a row, except one, hold together with their consumers."""
        total: Numbers = {}
        for uid, each in self.stand_ins_on.get(row, {}).items():
            if uid == without:
                continue
            holding = self.holdings.get(uid)
            for number, amount in each.charge if holding is None else _held(holding):
                total[number] = total.get(number, 0) + amount
        return total

    def fits_beside(self, row: int, asked: Mapping[str, int]) -> bool:
        """Whether the amounts fit next to all reservations on the row, ignoring pods outside reservations."""
        tables, held = self._tables, self.held_on(row)
        return all(
            amount + held.get(number, 0) <= tables.allocatable[number].cells[row]
            for number, amount in tables.charge_of(asked)
        )

    def fits_without_terminating(self, holding: ReservationHolding) -> bool:
        """Whether a Waiting reservation fits once the terminating pods on its row are gone. What consumers free goes to
        their reservations."""
        tables, row = self._tables, holding.row
        if row < 0:
            return False
        leaving: Numbers = {}
        for pod in tables.pods_on[row].values():
            if pod.terminating and pod.key not in self._uses and not is_reservation(pod.pod):
                for number, amount in pod.charge:
                    leaving[number] = leaving.get(number, 0) + amount
        return all(
            tables.requested[number].cells[row] - leaving.get(number, 0) <= tables.allocatable[number].cells[row]
            for number in holding.reserved
        )

    def blocking(self, row: int, asked: Charge) -> list[ReservationHolding]:
        """The reservations that hold what the amounts lack on a row; empty if they would not fit without them either."""
        tables = self._tables
        unused: Numbers = {}
        for each in self.stand_ins_on.get(row, {}).values():
            for number, amount in each.charge:
                unused[number] = unused.get(number, 0) + amount
        short = set()
        for number, amount in asked:
            free = tables.allocatable[number].cells[row] - tables.requested[number].cells[row]
            if amount > free:
                if amount > free + unused.get(number, 0):
                    return []
                short.add(number)
        holdings = (self.holdings.get(uid) for uid in self.stand_ins_on.get(row, ()))
        return [each for each in holdings if each is not None and any(number in short for number, _ in each.charge())]

    def policies_on(self, row: int) -> Iterable[str]:
        for uid in self.stand_ins_on.get(row, ()):
            reservation = self.reservations.get(uid)
            if reservation is not None:
                yield reservation.spec.allocate_policy

    def ready(self) -> list[ReservationHolding]:
        """The Waiting reservations that fit now. Checks only rows that changed since the last call."""
        if not self.stand_ins_on:
            self.waiting_rows.clear()
            self._node_position = self._tables.node_log.position
            return []
        found = []
        rows, self.waiting_rows = self.waiting_rows, set()
        changed = self._tables.node_log.since(self._node_position)
        self._node_position = self._tables.node_log.position
        rows.update(self.stand_ins_on if changed is None else (row for row in changed if row in self.stand_ins_on))
        for row in sorted(rows):
            waiting = [
                holding
                for uid in self.stand_ins_on.get(row, ())
                if (holding := self.holdings.get(uid)) is not None and holding.waiting and holding.row == row
            ]
            found += self._ready_on(row, sorted(waiting, key=_waiting_order)) if waiting else []
        return found

    def _ready_on(self, row: int, waiting: list[ReservationHolding]) -> list[ReservationHolding]:
        """The reservations that fit, in order, up to the first that does not. Each is checked without those behind it."""
        tables = self._tables
        if not tables.alive[row]:
            return []
        # What is requested on the row without the Waiting reservations.
        used = {number: tables.requested[number].cells[row] for holding in waiting for number in holding.reserved}
        pods = tables.pod_count.cells[row] - len(waiting)
        for holding in waiting:
            for number, amount in holding.stand_in.charge:
                used[number] -= amount
        found = []
        for holding in waiting:
            for number, amount in holding.stand_in.charge:
                used[number] += amount
            pods += 1
            if pods > tables.pod_limit.cells[row] or any(
                used[number] > tables.allocatable[number].cells[row] for number, _ in holding.stand_in.charge
            ):
                break
            found.append(holding)
        return found


def _held(holding: ReservationHolding) -> Iterable[tuple[int, int]]:
    return ((number, holding.held(number)) for number in holding.reserved)


def _waiting_order(holding: ReservationHolding) -> tuple[Any, ...]:
    return -holding.stand_in.priority, holding.created, holding.name


def ledger_of(tables: Tables) -> ReservationLedger:
    """The ledger of an engine, created on first use."""
    found: ReservationLedger | None = tables.shared.get(_SHARED)
    if found is None:
        found = tables.shared[_SHARED] = ReservationLedger(tables)
    return found
