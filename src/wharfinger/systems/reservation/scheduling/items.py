"""Reservations as a `Schedulable`: stand-ins for pending reservations, and how reservation events affect the queue.

A stand-in is bound by a status patch (`binding`). Reservations that hold a node are maintained by `upkeep`, and
preemption can reserve the room that victims free (`guarantees`). Everything else here is pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from wharfinger.api.registry import Document
from wharfinger.api.resources import CPU, requests
from wharfinger.api.views import Pod
from wharfinger.api.wording import listed
from wharfinger.engine.outcome import Decision, Diagnosis
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
from wharfinger.systems.reservation.scheduling.binding import bind_reservation, version_on
from wharfinger.systems.reservation.scheduling.guarantees import Guarantees
from wharfinger.systems.reservation.scheduling.upkeep import ReservationUpkeep

if TYPE_CHECKING:
    from prometheus_client.core import Metric

FIT = "NodeResourcesFit"
EXAMINED, NAMED = 64, 5  # nodes that a refusal is explained with, and reservations that it names


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
        self._written: dict[str, int] = {}  # by uid: the version with the node that we wrote; the cache may be older
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
        if reservation is None or reservation.terminating or self._is_outdated(reservation):
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

    def _is_outdated(self, reservation: Reservation) -> bool:
        """Whether this is the reservation before we bound it, which events may report long after that."""
        written = self._written.get(reservation.metadata.uid)
        return written is not None and int(reservation.metadata.resource_version) < written

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

    # -- explanations and metrics

    def note(self, pod: Pod, diagnosis: Diagnosis) -> str:
        """Which reservations hold the room that the pod lacks."""
        ledger, tables = self._ledger, self.context.engine.tables
        if not ledger.stand_ins_on:
            return ""
        refused = (row for status, rows in diagnosis.groups if status.plugin == FIT for row in rows)
        charge, names, nodes = tables.charge_of(requests(pod)), dict[str, None](), 0
        for row in islice((row for row in refused if row in ledger.stand_ins_on), EXAMINED):
            found = [each.name for each in ledger.blocking(row, charge) if each.uid != pod.metadata.uid]
            names.update(dict.fromkeys(found))
            nodes += bool(found)
        if not names:
            return ""
        return f"The room on {nodes} node(s) is reserved by {listed(sorted(names), NAMED)}."

    def explanations(self, pod: Pod, decision: Decision) -> Iterable[str]:
        yield from super().explanations(pod, decision)
        if decision.node is not None and not isinstance(pod, StandIn):
            assumed = self.context.engine.assume(pod, decision.node)
            holding = self._ledger.assumed(pod.metadata.key) if assumed.ok else None
            if holding is not None:
                yield f"it would use reservation {holding.name}"

    def find(self, name: str) -> tuple[Reservation | None, StandIn | None]:
        """A reservation, and the item that is or would be scheduled for it, if any."""
        found = self._reservations.get(name) if self._reservations is not None else None
        return found, self._pending(found)[0]

    def metrics(self) -> Iterable[Metric]:
        """Computed from what the scheduler knows; amounts are in base units, cpu in cores."""
        from prometheus_client.core import GaugeMetricFamily

        phases = Counter(each.phase for each in self._ledger.reservations.values())
        counts = GaugeMetricFamily("wharfinger_reservations", "Reservations, by phase.", labels=["phase"])
        for phase in ("Pending", "Waiting", "Available", "Succeeded", "Failed"):
            counts.add_metric([phase], phases[phase])
        yield counts
        reserved, used, waiting = Counter[str](), Counter[str](), Counter[str]()
        for holding in self._ledger.holdings.values():
            (waiting if holding.waiting else reserved).update(holding.names)
            for number, amount in holding.allocated.items():
                used[self.context.engine.tables.resource_names[number]] += amount
        for name, help, amounts in (
            ("wharfinger_reserved_resources", "Resources held by Available reservations.", reserved),
            ("wharfinger_reserved_resources_used", "Reserved resources that consumers use.", used),
            ("wharfinger_reserved_resources_waiting", "Resources that Waiting reservations wait for.", waiting),
        ):
            family = GaugeMetricFamily(name, help, labels=["resource"])
            for resource, amount in sorted(amounts.items()):
                family.add_metric([resource], amount / 1000 if resource == CPU else amount)
            yield family

    # -- events

    def changed(self, old: Reservation | None, new: Reservation | None) -> ItemChange:
        before, _ = self._pending(old)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid or not self._is_outdated(new)):
            self._written.pop(old.metadata.uid, None)
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
        version = await bind_reservation(self.context.client, self.context.clock, item, node, placement, annotations)
        known = self._reservation(item)
        if known is not None and int(known.metadata.resource_version) < version:
            self._written[item.metadata.uid] = version

    async def is_on(self, item: Pod, node: str) -> bool:
        assert isinstance(item, StandIn)
        return await version_on(self.context.client, item, node) is not None

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
