"""Maintains reservations that hold a node: Waiting ones become Available, and changed templates resize them.

Only the scheduler can decide this, because only it knows about assumed pods. Pure; writes are returned as instructions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress

from wharfinger.api.registry import Document
from wharfinger.api.views import ObjectMeta
from wharfinger.scheduler.instructions import Instruction, PatchStatus, RecordEvent
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.plugin.holding import ReservationHolding
from wharfinger.systems.reservation.plugin.ledger import ReservationLedger
from wharfinger.systems.reservation.rules.reservations import BadReservation, amounts, wanted_quantities
from wharfinger.systems.reservation.scheduling import status

log = logging.getLogger(__name__)


class ReservationUpkeep:
    def __init__(self, ledger: ReservationLedger) -> None:
        self._ledger = ledger
        self._promoting: set[str] = set()  # uids of reservations being made Available
        self._ending: set[str] = set()  # uids of reservations being made Succeeded
        self._growing: set[str] = set()  # uids of reservations whose new size needs room or failed to be written

    def synced(self) -> Iterable[Instruction]:
        """The caches are synced: catch up with missed changes."""
        yield from self.room_changed()
        for holding in list(self._ledger.holdings.values()):
            yield from self.resize(holding.reservation)

    def room_changed(self) -> Iterable[Instruction]:
        """A node changed or room was freed: check the reservations that wait for room."""
        instructions: list[Instruction] = [
            self._end(uid, consumer) for uid, consumer in self._ledger.spent.items() if uid not in self._ending
        ]
        for holding in self._ledger.ready():
            if holding.uid not in self._promoting:
                self._promoting.add(holding.uid)
                instructions.append(self._promote(holding))
        for uid in list(self._growing):
            growing = self._ledger.holdings.get(uid)
            if growing is None:
                self._growing.discard(uid)
            else:
                instructions += self.resize(growing.reservation)
        return instructions

    def _end(self, uid: str, consumer: ObjectMeta) -> Instruction:
        """A reservation that is used once was left by its consumer. The controller of reservations makes it Succeeded
        while it has a consumer; if it came too late, nobody else knows."""
        self._ending.add(uid)

        def change(found: Reservation, now: float) -> Document | None:
            if found.metadata.uid != uid or found.phase != "Available" or not found.once:
                return None
            return status.used_up(found, consumer, now)

        def done(written: bool) -> Iterable[Instruction]:
            self._ending.discard(uid)  # if it failed, it is retried at the next cluster change
            return ()

        return PatchStatus(RESERVATIONS, Reservation, self._ledger.reservations[uid].metadata.name, change, done)

    def _promote(self, holding: ReservationHolding) -> Instruction:
        uid = holding.uid

        def change(found: Reservation, now: float) -> Document | None:
            if found.metadata.uid != uid or found.phase != "Waiting":
                return None
            if any(amount > holding.names.get(name, 0) for name, amount in amounts(found.status.allocatable).items()):
                return None  # it has grown since; decided again when the new size arrives
            return status.promoted(found, now)

        def done(written: bool) -> Iterable[Instruction]:
            self._promoting.discard(uid)
            if written:
                message = f"The reserved resources on node {holding.stand_in.node_name} are now available"
                yield RecordEvent(RESERVATIONS, holding.reservation, "Normal", "Available", message)

        return PatchStatus(RESERVATIONS, Reservation, holding.name, change, done)

    def resize(self, reservation: Reservation) -> Iterable[Instruction]:
        """Resize a reservation to match its template, as far as there is room."""
        holding = self._ledger.holdings.get(reservation.metadata.uid)
        if holding is None or reservation.terminating:
            return ()
        try:
            wanted, plan = wanted_quantities(holding.reservation), self._ledger.resizing(holding)
        except BadReservation as fault:
            log.info("reservation %s cannot be resized: %s", holding.name, fault)
            return ()
        uid = holding.uid
        if plan.refused:
            self._growing.add(uid)
        else:
            self._growing.discard(uid)
        if not plan.changes and not plan.says_more(reservation):
            return ()
        if plan.changes:
            self._ledger.promise(uid, plan.allocatable)
        planned_as = holding.reservation.phase

        def change(found: Reservation, now: float) -> Document | None:
            # A Waiting reservation may grow where an Available one may not.
            if found.metadata.uid != uid or found.phase != planned_as:
                return None
            with suppress(BadReservation):
                if wanted_quantities(found) == wanted:
                    return status.resized(found, plan, now)
            return None  # the template has changed again

        def done(written: bool) -> Iterable[Instruction]:
            if written:
                return ()
            self._ledger.forget_promise(uid, plan.allocatable)
            self._growing.add(uid)  # retried at the next cluster change
            current = self._ledger.holdings.get(uid)
            if current is None or current.reservation.phase == planned_as:
                return ()
            return self.resize(current.reservation)

        return (PatchStatus(RESERVATIONS, Reservation, reservation.metadata.name, change, done),)
