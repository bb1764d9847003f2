"""Reservations as a `Schedulable`: stand-ins for pending reservations, and how reservation events affect the queue.

A stand-in is bound by a status patch (`binding`). Reservations that hold a node are maintained by `upkeep`, and
preemption can reserve the room that victims free (`guarantees`). Everything else here is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.framework.stand_ins import StandIn
from wharfinger.scheduler.instructions import Instruction, PatchStatus, RecordEvent
from wharfinger.scheduler.schedulable import ItemChange, KeptRoom, ObjectCache, Schedulable, SchedulerContext
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.plugin.ledger import ReservationPlacement, ledger_of
from wharfinger.systems.reservation.plugin.reservation import ReservationPlugin
from wharfinger.systems.reservation.rules import reservations as rules
from wharfinger.systems.reservation.rules.reservations import BadReservation
from wharfinger.systems.reservation.scheduling import status
from wharfinger.systems.reservation.scheduling.binding import bind_reservation
from wharfinger.systems.reservation.scheduling.guarantees import Guarantees
from wharfinger.systems.reservation.scheduling.upkeep import ReservationUpkeep


class ReservationItems(Schedulable):
    resource = RESERVATIONS
    view = Reservation

    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context)
        engine = context.engine
        self._reservations: ObjectCache[Reservation] | None = context.objects
        self._ledger = ledger_of(engine.tables)
        self._profile = next(iter(engine.profiles))
        self._preempts = any(
            isinstance(plugin, ReservationPlugin) and plugin.args.enable_preemption
            for profile in engine.profiles.values()
            for plugin in profile.plugins.values()
        )
        self._upkeep = ReservationUpkeep(self._ledger)
        self._guarantees = Guarantees(context.client, engine.tables, self._ledger, self._reservations)
        self._acting = False  # synced, and this scheduler is the leader
        self._reported: dict[str, tuple[str, str]] = {}  # by uid: last reason and message
        self._nominated: dict[str, str] = {}  # by uid: the node on which pods are evicted for it
        self._woken: set[int] = set()  # owner classes of added or updated reservations

    @staticmethod
    def stand_in(found: Reservation) -> StandIn | None:
        if found.ended:
            return None
        try:
            return rules.stand_in(found)
        except BadReservation:
            return None

    @staticmethod
    def used_by(pod: Pod) -> str:
        return rules.uses(pod)

    # -- stand-ins

    def current(self, item: Pod) -> Pod | None:
        found = self._reservation(item)
        return None if found is None else self._pending(found)[0]

    def bound(self, item: Pod) -> bool:
        found = self._reservation(item)
        return found is not None and found.holds and not rules.is_mover(item)

    def title(self, item: Pod) -> str:
        return _name(item)

    def described(self, item: Pod) -> Reservation | None:
        """None for one that looks for a better node: that it found none is no event."""
        return None if rules.is_mover(item) else self._reservation(item)

    def _reservation(self, item: Pod) -> Reservation | None:
        found = self._reservations.get(_name(item)) if self._reservations is not None else None
        return found if found is not None and found.metadata.uid == item.metadata.uid else None

    def may_preempt(self, item: Pod) -> bool:
        return item.spec.preemption_policy != "Never"

    def _pending(self, reservation: Reservation | None) -> tuple[StandIn | None, str]:
        """The stand-in of a pending reservation for one of our profiles, and the fault if the reservation is invalid."""
        if reservation is None or reservation.terminating:
            return None, ""
        if reservation.phase == "Waiting":
            return self._mover(reservation), ""
        if reservation.phase != "Pending" or reservation.status.node_name:
            return None, ""
        try:
            if not reservation.spec.owners:
                raise BadReservation("spec.owners: Required value")
            scheduler = rules.template_of(reservation).spec.scheduler_name
            if scheduler not in self.context.engine.profiles:
                if scheduler not in rules.FOREIGN_NAMES:
                    return None, ""
                scheduler = self._profile
            item = rules.stand_in(reservation, scheduler_name=scheduler, preempts=self._preempts)
            if node := self._nominated.get(item.metadata.uid):
                # A Reservation has no field for it. Without it, the item would preempt again while its victims stop.
                item = replace(item, status=replace(item.status, nominated_node_name=node))
            return item, ""
        except BadReservation as fault:
            return None, str(fault)

    def _mover(self, reservation: Reservation) -> StandIn | None:
        """The item of a Waiting reservation that may move to a node where it need not wait."""
        try:
            template = rules.template_of(reservation)
            scheduler = template.spec.scheduler_name
            if template.spec.node_name or (
                scheduler not in self.context.engine.profiles and scheduler not in rules.FOREIGN_NAMES
            ):
                return None
            known = scheduler in self.context.engine.profiles
            return rules.mover(reservation, scheduler_name=scheduler if known else self._profile)
        except BadReservation:
            return None

    # -- events

    def changed(self, old: Reservation | None, new: Reservation | None) -> ItemChange:
        before, _ = self._pending(old)
        after, fault = self._pending(new)
        if before is not None and (after is None or before.metadata.key != after.metadata.key):
            self._reported.pop(before.metadata.uid, None)
            self._nominated.pop(before.metadata.uid, None)
        if old is not None and (new is None or new.ended):
            self._guarantees.forget(old.metadata.name)
        instructions: list[Instruction] = []
        if new is not None and fault:
            instructions += self._report(new.metadata.name, new.metadata.uid, "Unschedulable", fault)
        if new is not None and new.holds:
            instructions += self._holds(old, new)
        return ItemChange(before, after, _released(old, new), instructions)

    def _holds(self, old: Reservation | None, reservation: Reservation) -> Iterable[Instruction]:
        """A reservation that holds a node was added or updated."""
        self._guarantees.settle(reservation.metadata.name, holds=True)
        holding = self._ledger.holdings.get(reservation.metadata.uid)
        if holding is not None and holding.owners is not None:
            self._woken.add(holding.owners)
        if not self._acting:
            return
        if old is not None and old.phase == "Waiting" and old.status.node_name != reservation.status.node_name:
            message = f"Moved from node {old.status.node_name} to node {reservation.status.node_name}, which has room"
            yield RecordEvent(RESERVATIONS, reservation, "Normal", "Moved", message)
        yield from self._upkeep.resize(reservation)
        if reservation.phase == "Waiting":
            yield from self._upkeep.room_changed()

    @property
    def has_woken(self) -> bool:
        return self._ledger.gave_back

    def wakes(self) -> Callable[[Pod], bool] | None:
        """Owners of added or updated reservations are retried, whichever plugin rejected them. All pods are, if a
        reservation gave back what the pods that it adopted use."""
        gave_back, self._ledger.gave_back = self._ledger.gave_back, False
        if gave_back:
            self._woken.clear()
            return lambda pod: True
        if not self._woken:
            return None
        woken, self._woken = self._woken, set()
        classes = self._ledger.classes
        return lambda pod: not woken.isdisjoint(classes.of(pod))

    def synced(self) -> Iterable[Instruction]:
        """Catch up with changes made while no scheduler was active."""
        self._acting = True
        for reservation in self._reservations or ():
            fault = self._pending(reservation)[1]
            if fault:
                yield from self._report(reservation.metadata.name, reservation.metadata.uid, "Unschedulable", fault)
        yield from self._upkeep.synced()
        yield from self._guarantees.synced()

    def room_changed(self) -> Iterable[Instruction]:
        return self._upkeep.room_changed()

    # -- reporting

    def unschedulable(self, item: Pod, reason: str, message: str, nominated_node: str | None) -> Iterable[Instruction]:
        if rules.is_mover(item):
            return ()
        if nominated_node:
            self._nominated[item.metadata.uid] = nominated_node
        elif nominated_node is not None:
            self._nominated.pop(item.metadata.uid, None)
        if reason == "Unschedulable":
            self._guarantees.settle(_name(item), holds=False)
        return self._report(_name(item), item.metadata.uid, reason, message)

    def _report(self, name: str, uid: str, reason: str, message: str) -> Iterable[Instruction]:
        if not self._acting or self._reported.get(uid) == (reason, message):
            return ()
        self._reported[uid] = (reason, message)

        def change(found: Reservation, now: float) -> Document | None:
            if found.metadata.uid != uid or found.phase != "Pending":
                return None
            return status.unschedulable(found, reason, message, now)

        return (PatchStatus(RESERVATIONS, Reservation, name, change, newest_only=True),)

    # -- API requests

    async def bind(self, item: Pod, node: str, annotations: Mapping[str, str]) -> None:
        assert isinstance(item, StandIn)
        placement = self._ledger.placements.get(item.metadata.key, ReservationPlacement())
        await bind_reservation(self.context.client, self.context.clock, item, node, placement, annotations)

    def keeps_room_for(self, pod: Pod) -> bool:
        return self._guarantees.given_to(pod)

    async def keep_room(self, pod: Pod, node: str, victims: Sequence[Pod]) -> KeptRoom:
        if not self._preempts or isinstance(pod, StandIn):
            return KeptRoom.OPEN
        return await self._guarantees.give(pod, node, victims)

    async def evictions_failed(self, pod: Pod) -> None:
        await self._guarantees.take_back(pod)


def _name(item: Pod) -> str:
    assert isinstance(item, StandIn)
    return item.object_name


def _released(old: Reservation | None, new: Reservation | None) -> StandIn | None:
    """The stand-in of a reservation that holds less than before, so that pods are retried."""
    if old is None or not old.holds:
        return None
    there, held = old.status.node_name, old.status.allocatable
    if new is not None and new.holds and (new.status.node_name, new.status.allocatable) == (there, held):
        return None
    try:
        return rules.stand_in(old)
    except BadReservation:
        return None
