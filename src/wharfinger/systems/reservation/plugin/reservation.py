"""Reservation: owners may use what is reserved for them, other pods see it as taken, and reservations are scheduled.

The accounting is in the ledger. This module decides which reservations a pod matches, which of them it would use on a
row (`nominate`), how much room it sees there, and on which rows a reservation itself may be placed. The plugin
corresponds to Koordinator's plugin of the same name and uses the same failure messages.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from wharfinger.api.resources import amount_text, requests
from wharfinger.api.views import Pod
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.explaining import ExplainedTable, Suggestion
from wharfinger.framework.plugin import Args, Plugin, Prepared
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import SUCCESS, Status, error, unschedulable
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.plugin.adoption import Adopting, adopts
from wharfinger.systems.reservation.plugin.demands import BadDemand, demands_of
from wharfinger.systems.reservation.plugin.ledger import ReservationPlacement, ledger_of
from wharfinger.systems.reservation.plugin.placing import Placing
from wharfinger.systems.reservation.plugin.use import NOT_MET, Ignoring, Using
from wharfinger.systems.reservation.rules.reservations import (
    AFFINITY,
    ALLOCATED,
    EXACT_MATCH,
    IGNORED,
    MOVED_POD,
    NOT_PREEMPTIBLE,
    RESERVATION,
    RESERVATION_NODE,
    allocation_text,
    is_guarantee,
    is_mover,
    is_reservation,
)


class ReservationArgs(Args, frozen=True):
    enable_preemption: bool = False
    honour_ignored_label: bool = False


class ReservationKey(NamedTuple):
    """What this plugin reads from a pod."""

    classes: tuple[int, ...] = ()
    affinity: str | None = None
    exact: str | None = None
    ignoring: bool = False
    # Pinned node, allocate policy, pre-allocation, preemption guarantee, uid of the pod that it replaces.
    stand_in: tuple[str, str, bool, bool, str] | None = None
    adopting: str = ""  # uid of a reservation that takes over pods; makes the shape unique


class ReservationPlugin(Plugin):
    name = RESERVATION
    points = frozenset({"preFilter", "filter", "preScore", "score", "reserve", "preBind"})
    reserves_prepared = True
    position = 85  # after resources: its reasons concern the room left inside reservations
    weight = 5000
    ours = True
    args_type = ReservationArgs
    kinds = (RESERVATION,)
    views = {RESERVATION: Reservation}

    def __init__(self, tables: Tables, args: ReservationArgs) -> None:
        super().__init__(tables, args)
        self.ledger = ledger_of(tables)

    # -- cluster events

    def observe(self, kind: str, old: Reservation | None, new: Reservation | None) -> None:
        if old is not None and (new is None or old.metadata.uid != new.metadata.uid):
            self.ledger.remove(old)
        if new is not None:
            self.ledger.set(new)

    def wake_ups(self) -> tuple[WakeUp, ...]:
        return (
            WakeUp(RESERVATION, Action.ALL),
            WakeUp(POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN),
            WakeUp(POD, Action.ADD | Action.UPDATE_POD_LABEL, self._may_be_adopted),
            WakeUp(NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE),
        )

    def _may_be_adopted(self, pod: Pod, old: Pod | None, new: Pod) -> bool:
        """Whether the added or relabelled pod may be a candidate for adoption by this reservation."""
        reservation = self.ledger.reservations.get(pod.metadata.uid) if is_reservation(pod) else None
        return reservation is not None and adopts(reservation)

    def explained(self, pod: Pod, rows: Sequence[int]) -> Iterator[ExplainedTable]:
        """The reservations that the pod is an owner of, with what is left of each."""
        if is_reservation(pod):
            return
        asked, classes, lines = requests(pod), set(self.ledger.classes.of(pod)), []
        for each in sorted(self.ledger.holdings.values(), key=lambda each: each.name):
            if each.owners not in classes:
                continue
            numbers = {self.tables.resource_names[number]: number for number in each.reserved}
            left = {name: each.names[name] - each.allocated.get(number, 0) for name, number in numbers.items()}
            short = [name for name, amount in left.items() if amount < asked.get(name, 0)]
            state = (
                "waits for its room"
                if each.waiting
                else "used up"
                if each.spent or (each.once and each.consumers)
                else ""
            )
            if not state:
                state = f"holds too little {', '.join(short)} by itself" if short else "large enough"
            holds = ", ".join(f"{amount_text(name, amount)} {name}" for name, amount in left.items())
            lines.append((each.name, each.reservation.status.node_name, holds or "nothing", len(each.consumers), state))
        if lines:
            yield ExplainedTable(
                "Reservations for the pod", ("name", "node", "left", "consumers", "state"), tuple(lines)
            )

    def suggestions(self, pod: Pod, rows: Sequence[int]) -> Iterator[Suggestion]:
        """Without the reservations that hold the room which the pod lacks, it may fit."""
        charge, seen = self.tables.charge_of(requests(pod)), set[str]()
        for row in rows:
            for each in self.ledger.blocking(row, charge):
                if each.uid not in seen and each.uid != pod.metadata.uid:
                    seen.add(each.uid)
                    yield Suggestion(RESERVATION, "", each.name, f"delete Reservation {each.name}")

    # -- scheduling cycle

    def shape_key(self, pod: Pod) -> Hashable:
        if is_reservation(pod):
            reservation = self.ledger.reservations.get(pod.metadata.uid)
            spec = None if reservation is None else reservation.spec
            pinned = pod.metadata.annotations.get(RESERVATION_NODE, "")
            policy, pre = ("", False) if spec is None else (spec.allocate_policy, spec.pre_allocation)
            pre = pre and not is_mover(pod)
            moved = "" if reservation is None else reservation.metadata.annotations.get(MOVED_POD, "")
            adopting = reservation is not None and adopts(reservation)
            guarantees = reservation is not None and is_guarantee(reservation)
            return ReservationKey(
                stand_in=(pinned, policy, pre, guarantees, moved), adopting=pod.metadata.uid if adopting else ""
            )
        metadata = pod.metadata
        if self.args.honour_ignored_label and metadata.labels.get(IGNORED) == "true":
            return ReservationKey(ignoring=True)
        classes = self.ledger.classes.of(pod)
        affinity, exact = metadata.annotations.get(AFFINITY), metadata.annotations.get(EXACT_MATCH)
        if not classes and affinity is None:
            return None
        return ReservationKey(classes, affinity, exact)

    def key_is_shared(self, shape: Shape) -> bool:
        # Stand-ins have annotations, and labels are part of every shape.
        return self.ledger.classes.told_by_labels

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        keys = shape.extra if isinstance(shape.extra, tuple) else ()
        key = next((each for each in keys if isinstance(each, ReservationKey)), None)
        if key is None:
            return None
        adopting = self.ledger.reservations.get(key.adopting) if key.adopting else None
        if key.stand_in is not None and adopting is not None:
            return Adopting(self.tables, self.ledger, shape, key.stand_in[0], adopting)
        if key.stand_in is not None:
            return Placing(self.tables, self.ledger, shape, *key.stand_in)
        if key.ignoring:
            return Ignoring(self.ledger)
        try:
            demands = demands_of(shape.pod.metadata)
        except BadDemand as fault:
            return error(str(fault))
        return Using(self.tables, self.ledger, shape, demands, key.classes)

    def spares_pods(self) -> bool:
        return self.args.enable_preemption or self.ledger.needed

    def may_evict(self, preemptor: Pod, victim: PodOnNode) -> bool:
        if is_reservation(victim.pod):
            return False
        if self.args.enable_preemption and victim.pod.metadata.labels.get(NOT_PREEMPTIBLE) == "true":
            return False
        holding = self.ledger.use(victim.key)
        if holding is None:
            return True
        # What an evicted consumer frees goes back to its reservation, so only pods that may use that reservation
        # benefit.
        return (
            self.args.enable_preemption
            and not holding.once
            and not is_reservation(preemptor)
            and holding.owners in self.ledger.classes.of(preemptor)
        )

    def reserve(self, pod: Pod, row: int, prepared: Prepared | None) -> Status:
        if isinstance(prepared, Using):
            holding = prepared.nominate(row)
            if holding is not None:
                self.ledger.assume(pod.metadata.key, holding.uid)
            elif prepared.required:
                return unschedulable(NOT_MET)
        elif isinstance(prepared, Adopting):
            adopted = tuple(each.pod.metadata for each in prepared.adoptees(row))
            self.ledger.placements[pod.metadata.key] = ReservationPlacement(adopted=adopted)
        elif isinstance(prepared, Placing):
            self.ledger.placements[pod.metadata.key] = ReservationPlacement(waiting=prepared.short(row))
        return SUCCESS

    def unreserve(self, pod: Pod, row: int) -> None:
        self.ledger.unassume(pod.metadata.key)
        self.ledger.placements.pop(pod.metadata.key, None)

    def commit(self, pod: Pod) -> None:
        self.ledger.placements.pop(pod.metadata.key, None)

    def pre_bind(self, pod: Pod, node_name: str) -> Mapping[str, str]:
        if is_reservation(pod):
            return {}
        holding = self.ledger.assumed(pod.metadata.key)
        if holding is not None:
            return {ALLOCATED: allocation_text(holding.name, holding.uid)}
        # Only the scheduler may set this annotation; clear it if the pod was created with one.
        return {ALLOCATED: ""} if pod.metadata.annotations.get(ALLOCATED) else {}
