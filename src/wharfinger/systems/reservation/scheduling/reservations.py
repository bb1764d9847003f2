"""Reservations in the live scheduler: fake pods for those without a node, and the writes to their status.

Binding a fake pod is a status write. Those that wait for resources become Available, and those whose template changed
are resized, when the tables show that there is room; the scheduler alone sees pods that are still being bound.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from wharfinger.api.errors import ApiError, Conflict, NotFound
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document
from wharfinger.api.resources import requests
from wharfinger.api.views import Pod, view
from wharfinger.client.events import EventRecorder
from wharfinger.client.informer import Informer
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock
from wharfinger.engine import Engine
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.plugin.ledger import Holding, Ledger, ledger_of
from wharfinger.systems.reservation.plugin.reservation import ADOPTED, PHASE, phase_bound, pods_adopted
from wharfinger.systems.reservation.plugin.reservation import Reservation as ReservationPlugin
from wharfinger.systems.reservation.rules.reservations import (
    ALLOCATED,
    FOREIGN_NAMES,
    BadReservation,
    allocation_text,
    amounts,
    fake_pod,
    guarantee_name,
    is_fake,
    reservation_name,
    template_of,
    wanted_quantities,
)
from wharfinger.systems.reservation.scheduling.guarantees import Room, guarantee
from wharfinger.systems.reservation.scheduling.status import available, promoted, resized, unschedulable

log = logging.getLogger(__name__)

_TRIES = 8
GUARANTEE_SECONDS = 30.0  # how long evictions wait for the reservation of what they free

Change = Callable[[Reservation], Document | None]
"""From the present object to the members of its status to write; None for nothing."""


class Reservations:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        engine: Engine,
        recorder: EventRecorder | None,
        beside: Callable[[Awaitable[None]], None],
    ) -> None:
        self._client = client
        self._clock = clock
        self._engine = engine
        self._recorder = recorder
        self._beside = beside
        self.ledger: Ledger = ledger_of(engine.tables)
        self.informer: Informer[Reservation] | None = None  # set by the feed, where a plugin observes reservations
        self._profile = next(iter(engine.profiles))
        self._preempts = any(
            isinstance(plugin, ReservationPlugin) and plugin.args.enable_preemption
            for profile in engine.profiles.values()
            for plugin in profile.plugins.values()
        )
        self._wishes: dict[str, Change] = {}  # by name: the newest of what is to be said of it
        self._writing: set[str] = set()  # names with a writer
        self._said: dict[str, tuple[str, str]] = {}  # uid to the reason and message said last
        self._speaks = False  # whether everything is known and it is this process that acts
        self._promoting: set[str] = set()
        self._growing: set[str] = set()  # uids whose new size waits for room, or was not written
        self._awaited: dict[str, asyncio.Future[bool]] = {}  # guarantees by name: whether they found their node

    # -- fake pods

    def pending(self, reservation: Reservation) -> Pod | None:
        """The fake pod of a reservation that needs a node and is ours; None for all others."""
        if reservation.phase != "Pending" or reservation.status.node_name:
            return None
        try:
            if not reservation.spec.owners:
                raise BadReservation("spec.owners: Required value")
            named = template_of(reservation).spec.scheduler_name
            if named not in self._engine.profiles:
                if named not in FOREIGN_NAMES:
                    return None
                named = self._profile
            return fake_pod(reservation, scheduler_name=named, preempts=self._preempts)
        except BadReservation as fault:
            self.tell(reservation.metadata.name, reservation.metadata.uid, "Unschedulable", str(fault))
            return None

    def current(self, fake: Pod) -> Pod | None:
        """The fake pod as the API server has it now; None when it is gone or needs no node any more."""
        found = self.of(fake)
        return None if found is None else self.pending(found)

    def of(self, fake: Pod) -> Reservation | None:
        if self.informer is None:
            return None
        found = self.informer.get(reservation_name(fake))
        return found if found is not None and found.metadata.uid == fake.metadata.uid else None

    def holds(self, fake: Pod) -> bool:
        """Whether it was bound after all."""
        found = self.of(fake)
        return found is not None and found.holds

    def released(self, old: Reservation | None, new: Reservation | None) -> Pod | None:
        """The fake pod that takes less now than before, so that others may be tried again."""
        if old is None or not old.holds:
            return None
        if new is not None and new.holds and new.status.allocatable == old.status.allocatable:
            return None
        try:
            return fake_pod(old)
        except BadReservation:
            return None

    # -- binding

    async def bind(self, fake: Pod, node: str, annotations: Mapping[str, str]) -> None:
        """Raises ApiError; Conflict when it is no longer to be bound."""
        name, phase = reservation_name(fake), phase_bound(annotations)
        adopted = pods_adopted(annotations)
        try:
            record = allocation_text(name, fake.metadata.uid)
            for namespace, pod, uid in adopted:
                await self._annotate(namespace, pod, uid, record)
            await self._record_devices(fake, annotations)
            await self._bind(fake, node, phase)
        except ApiError:
            for namespace, pod, uid in adopted:
                await self._release(namespace, pod, uid)
            raise

    async def _annotate(self, namespace: str, pod: str, uid: str, record: str | None) -> None:
        patch = {"metadata": {"uid": uid, "annotations": {ALLOCATED: record}}}
        await self._client.patch(PODS, pod, patch, namespace)

    async def _release(self, namespace: str, pod: str, uid: str) -> None:
        try:
            await self._annotate(namespace, pod, uid, None)
        except ApiError as error:
            log.info("pod %s/%s keeps the record of a reservation that did not come about: %s", namespace, pod, error)

    async def _record_devices(self, fake: Pod, annotations: Mapping[str, str]) -> None:
        """What other plugins put on a Binding stands on the reservation: devices that its pods are to get."""
        own = {key: value for key, value in annotations.items() if key not in (PHASE, ADOPTED)}
        if own:
            patch = {"metadata": {"uid": fake.metadata.uid, "annotations": own}}
            await self._client.patch(RESERVATIONS, reservation_name(fake), patch)

    async def _bind(self, fake: Pod, node: str, phase: str) -> None:
        name = reservation_name(fake)
        for attempt in range(_TRIES):
            document = await self._client.get(RESERVATIONS, name)
            found = view(document, Reservation)
            if found.metadata.uid != fake.metadata.uid or found.terminating:
                raise NotFound(f'reservations.scheduling.koordinator.sh "{name}" is not the one that was scheduled')
            if found.phase != "Pending":
                raise Conflict(f"reservation {name} is {found.phase} by now")
            if found.metadata.generation != fake.metadata.generation:
                raise Conflict(f"reservation {name} was changed while it was scheduled")
            try:
                await self._write(found, available(found, node, phase, self._clock.now()))
                return
            except Conflict:
                # Someone else, or our own note on why it had to wait, was faster.
                if attempt == _TRIES - 1:
                    raise

    def event(self, fake: Pod, reason: str, message: str) -> None:
        found = self.of(fake)
        if found is not None:
            self._record(found, "Normal" if reason == "Scheduled" else "Warning", reason, message)

    def _record(self, reservation: Reservation, type: str, reason: str, message: str) -> None:
        if self._recorder is not None:
            self._recorder.event(
                RESERVATIONS, reservation, "Normal" if type == "Normal" else "Warning", reason, message
            )

    # -- preemption with a guarantee

    def guaranteed(self, pod: Pod) -> bool:
        """Whether room is reserved, or about to be, for a pod for which others were evicted."""
        found = self.informer.get(guarantee_name(pod.metadata.uid)) if self.informer is not None else None
        return found is not None and not found.ended and not found.terminating

    async def guarantee(self, pod: Pod, node: str) -> Room:
        """Reserves a node for a preemptor before its victims go."""
        if not self._preempts or self.informer is None or is_fake(pod):
            return Room.OPEN
        name, row = guarantee_name(pod.metadata.uid), self._engine.tables.row_of.get(node)
        if row is None or not self.ledger.fits_beside(row, requests(pod)):
            # The pod counts on a reservation of its own there: what is freed inside goes back to that one.
            return Room.OPEN
        aligned = any(self.ledger.policies_on(row))
        found = self._awaited[name] = asyncio.get_running_loop().create_future()
        try:
            document = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace)
            await self._forget_ended(name)
            await self._client.create(RESERVATIONS, guarantee(document, node, aligned=aligned))
            if await asyncio.wait_for(found, GUARANTEE_SECONDS):
                return Room.RESERVED
        except TimeoutError:
            pass
        except ApiError as error:
            log.warning("no guarantee for pod %s/%s on node %s: %s", *pod.metadata.key, node, error)
            return Room.OPEN
        finally:
            self._awaited.pop(name, None)
        log.info("no guarantee for pod %s/%s: its reservation was not put on node %s", *pod.metadata.key, node)
        with suppress(ApiError):
            await self._client.delete(RESERVATIONS, name)
        row = self._engine.tables.row_of.get(node)
        room = row is not None and self.ledger.fits_beside(row, requests(pod))
        return Room.OPEN if room else Room.TAKEN

    async def _forget_ended(self, name: str) -> None:
        """An earlier guarantee of the same pod that ran out makes way for the new one."""
        found = self.informer.get(name) if self.informer is not None else None
        if found is not None and found.ended:
            with suppress(NotFound):
                await self._client.delete(RESERVATIONS, name, uid=found.metadata.uid)

    def holding(self, reservation: Reservation) -> None:
        """A reservation holds a node."""
        self._settle(reservation.metadata.name, holds=True)

    def _settle(self, name: str, *, holds: bool) -> None:
        """Whether a guarantee found its node is known now."""
        awaited = self._awaited.get(name)
        if awaited is not None and not awaited.done():
            awaited.set_result(holds)

    # -- what is said of those that found no node

    def unschedulable(self, fake: Pod, reason: str, message: str) -> None:
        if reason == "Unschedulable":
            self._settle(reservation_name(fake), holds=False)
        self.tell(reservation_name(fake), fake.metadata.uid, reason, message)

    def tell(self, name: str, uid: str, reason: str, message: str) -> None:
        if not self._speaks or self._said.get(uid) == (reason, message):
            return
        self._said[uid] = (reason, message)

        def change(found: Reservation) -> Document | None:
            if found.metadata.uid != uid or found.phase != "Pending":
                return None
            return unschedulable(found, reason, message, self._clock.now())

        self._change(name, change)

    def forget(self, uid: str) -> None:
        self._said.pop(uid, None)

    # -- waiting and resizing

    def loaded(self) -> None:
        """Everything is known: what changed while nobody looked is caught up with."""
        self._speaks = True
        for reservation in self.informer or ():
            self.pending(reservation)  # those that cannot be scheduled at all are told so
        self.room_made()
        for holding in list(self.ledger.holdings.values()):
            self.resize(holding.reservation)

    def room_made(self) -> None:
        """Something left a node, or a node changed: who waits for that?"""
        ledger = self.ledger
        for holding in ledger.ready():
            if holding.uid not in self._promoting:
                self._promoting.add(holding.uid)
                self._beside(self._promote(holding))
        for uid in list(self._growing):
            holding_now = ledger.holdings.get(uid)
            if holding_now is None:
                self._growing.discard(uid)
            else:
                self.resize(holding_now.reservation)

    async def _promote(self, holding: Holding) -> None:
        uid = holding.uid

        def change(found: Reservation) -> Document | None:
            if found.metadata.uid != uid or found.phase != "Waiting":
                return None
            if any(amount > holding.names.get(name, 0) for name, amount in amounts(found.status.allocatable).items()):
                return None  # it has grown since: its new size is weighed when that is known here
            return promoted(found, self._clock.now())

        try:
            if await self._apply(holding.name, change):
                message = f"The resources reserved on node {holding.fake.node_name} are free now"
                self._record(holding.reservation, "Normal", "Available", message)
        finally:
            self._promoting.discard(uid)

    def resize(self, reservation: Reservation) -> None:
        """Brings what is reserved to what the template says now, as far as there is room."""
        holding = self.ledger.holdings.get(reservation.metadata.uid)
        if holding is None or reservation.terminating:
            return
        try:
            wanted, plan = wanted_quantities(holding.reservation), self.ledger.resizing(holding)
        except BadReservation as fault:
            log.info("reservation %s cannot be resized: %s", holding.name, fault)
            return
        uid = holding.uid
        if plan.refused:
            self._growing.add(uid)
        else:
            self._growing.discard(uid)
        if not plan.changes and not plan.says_more(reservation):
            return
        if plan.changes:
            self.ledger.promise(uid, plan.allocatable)
        planned_as = holding.reservation.phase

        def change(found: Reservation) -> Document | None:
            # One that waits may grow where one that is Available may not.
            if found.metadata.uid != uid or found.phase != planned_as:
                return None
            with suppress(BadReservation):
                if wanted_quantities(found) == wanted:
                    return resized(found, plan, self._clock.now())
            return None  # something else is wanted by now

        async def write() -> None:
            if not await self._apply(reservation.metadata.name, change):
                self.ledger.forget_promise(uid, plan.allocatable)
                self._growing.add(uid)  # looked at again with the next change of the cluster
                now = self.ledger.holdings.get(uid)
                if now is not None and now.reservation.phase != planned_as:
                    self.resize(now.reservation)

        self._beside(write())

    # -- writing

    def _change(self, name: str, change: Change) -> None:
        """Writes beside the decisions; what was not written yet is replaced."""
        self._wishes[name] = change
        if name not in self._writing:
            self._writing.add(name)
            self._beside(self._write_wishes(name))

    async def _write_wishes(self, name: str) -> None:
        try:
            while (change := self._wishes.pop(name, None)) is not None:
                await self._apply(name, change)
        finally:
            self._writing.discard(name)

    async def _apply(self, name: str, change: Change) -> bool:
        """Whether it was written, or was so already."""
        for attempt in range(_TRIES):
            try:
                found = await self._client.get(RESERVATIONS, name, view=Reservation)
                status = change(found)
                if status is None:
                    return False
                if status:
                    await self._write(found, status)
                return True
            except Conflict:
                await asyncio.sleep(0.01 * 2**attempt)
            except NotFound:
                return False
            except ApiError as error:
                log.warning("cannot write the status of reservation %s: %s", name, error)
                return False
        return False

    async def _write(self, found: Reservation, status: Document) -> None:
        metadata = {"resourceVersion": found.metadata.resource_version, "uid": found.metadata.uid}
        patch = {"metadata": metadata, "status": status}
        await self._client.patch(RESERVATIONS, found.metadata.name, patch, subresource="status")
