"""Reservation: owners see what is reserved for them, everyone else sees it taken; and reservations find their node.

The accounts are the ledger's. Here stand the verdicts: which reservations a pod matches, which of them it would use on a
row (`nominate`), what it may imagine there, and which rows a reservation itself may go to. Upstream's plugin of the same
name is Koordinator's; its reasons are used word for word.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import msgspec

from wharfinger.api.views import ObjectMeta, Pod
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.plugin import Args, Plugin, Prepared
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import SUCCESS, Status, error, unschedulable
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.systems.reservation.kinds.views import Reservation as ReservationView
from wharfinger.systems.reservation.plugin.adoption import Adopting, adopts
from wharfinger.systems.reservation.plugin.demands import BadDemand, demands_of
from wharfinger.systems.reservation.plugin.fakes import FakePod
from wharfinger.systems.reservation.plugin.ledger import ledger_of
from wharfinger.systems.reservation.plugin.use import NOT_MET, Ignoring, Using
from wharfinger.systems.reservation.rules.reservations import (
    AFFINITY,
    ALLOCATED,
    EXACT_MATCH,
    IGNORED,
    NOT_PREEMPTIBLE,
    RESERVATION_NODE,
    allocation_text,
    is_fake,
    is_guarantee,
)

RESERVATION = "Reservation"
PHASE = "wharfinger.dev/reservation-phase"
"""What `pre_bind` says of a reservation that found its node: Available or Waiting. It stays inside the scheduler."""


ADOPTED = "wharfinger.dev/adopted-pods"
"""And which pods it takes over: namespace, name and uid of each."""


class ReservationArgs(Args, frozen=True):
    enable_preemption: bool = False
    honour_ignored_label: bool = False


class Key(NamedTuple):
    """What this plugin reads of a pod."""

    classes: tuple[int, ...] = ()
    affinity: str | None = None
    exact: str | None = None
    ignoring: bool = False
    fake: tuple[str, str, bool, bool] | None = None  # pinned node, policy, pre-allocation, guarantee of a preemption
    adopting: str = ""  # the uid of a reservation that takes over pods: no two are alike


class Reservation(Plugin):
    name = RESERVATION
    points = frozenset({"preFilter", "filter", "preScore", "score", "reserve", "preBind"})
    reserves_prepared = True
    position = 85  # after resources: its own reasons are about what is left inside reservations
    weight = 5000
    ours = True
    args_type = ReservationArgs
    kinds = (RESERVATION,)

    def __init__(self, tables: Tables, args: ReservationArgs) -> None:
        super().__init__(tables, args)
        self.ledger = ledger_of(tables)
        self._short: set[tuple[str, str]] = set()  # pre-allocations that must wait
        self._adopted: dict[tuple[str, str], list[ObjectMeta]] = {}  # pods that a reservation takes over

    # -- what happens in the cluster

    def observe(self, kind: str, old: ReservationView | None, new: ReservationView | None) -> None:
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
        """Whether a pod that came to a node, or has other labels now, is something to take over."""
        reservation = self.ledger.reservations.get(pod.metadata.uid) if is_fake(pod) else None
        return reservation is not None and adopts(reservation)

    # -- the way of a pod

    def shape_key(self, pod: Pod) -> Hashable:
        if is_fake(pod):
            reservation = self.ledger.reservations.get(pod.metadata.uid)
            spec = None if reservation is None else reservation.spec
            pinned = pod.metadata.annotations.get(RESERVATION_NODE, "")
            policy, pre = ("", False) if spec is None else (spec.allocate_policy, spec.pre_allocation)
            adopting = reservation is not None and adopts(reservation)
            guarantees = reservation is not None and is_guarantee(reservation)
            return Key(fake=(pinned, policy, pre, guarantees), adopting=pod.metadata.uid if adopting else "")
        metadata = pod.metadata
        if self.args.honour_ignored_label and metadata.labels.get(IGNORED) == "true":
            return Key(ignoring=True)
        classes = self.ledger.classes.of(pod)
        affinity, exact = metadata.annotations.get(AFFINITY), metadata.annotations.get(EXACT_MATCH)
        if not classes and affinity is None:
            return None
        return Key(classes, affinity, exact)

    def key_is_shared(self, shape: Shape) -> bool:
        # Fake pods have annotations; labels are part of every shape.
        return self.ledger.classes.told_by_labels

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        keys = shape.extra if isinstance(shape.extra, tuple) else ()
        key = next((each for each in keys if isinstance(each, Key)), None)
        if key is None:
            return None
        adopting = self.ledger.reservations.get(key.adopting) if key.adopting else None
        if key.fake is not None and adopting is not None:
            return Adopting(self.tables, self.ledger, shape, key.fake[0], adopting)
        if key.fake is not None:
            return FakePod(self.tables, self.ledger, shape, *key.fake)
        if key.ignoring:
            return Ignoring(self.ledger)
        try:
            demands = demands_of(shape.pod.metadata)
        except BadDemand as fault:
            return error(str(fault))
        return Using(self.tables, self.ledger, shape, demands, key.classes)

    def may_evict(self, preemptor: Pod, victim: PodOnNode) -> bool:
        if is_fake(victim.pod):
            return False
        if self.args.enable_preemption and victim.pod.metadata.labels.get(NOT_PREEMPTIBLE) == "true":
            return False
        holding = self.ledger.use(victim.key)
        if holding is None:
            return True
        # What a consumer leaves goes back to its reservation, so only others who may use that one gain by its eviction.
        return (
            self.args.enable_preemption
            and not holding.once
            and not is_fake(preemptor)
            and holding.owners in self.ledger.classes.of(preemptor)
        )

    def reserve(self, pod: Pod, row: int, prepared: Prepared | None) -> Status:
        if isinstance(prepared, Adopting):
            self._adopted[pod.metadata.key] = [each.pod.metadata for each in prepared.adoptees(row)]
        elif isinstance(prepared, FakePod):
            if prepared.short(row):
                self._short.add(pod.metadata.key)
        elif isinstance(prepared, Using):
            holding = prepared.nominate(row)
            if holding is not None:
                self.ledger.assume(pod.metadata.key, holding.uid)
            elif prepared.required:
                return unschedulable(NOT_MET)
        return SUCCESS

    def unreserve(self, pod: Pod, row: int) -> None:
        self.ledger.unassume(pod.metadata.key)
        self._short.discard(pod.metadata.key)
        self._adopted.pop(pod.metadata.key, None)

    def pre_bind(self, pod: Pod, node_name: str) -> Mapping[str, str]:
        key = pod.metadata.key
        if is_fake(pod):
            phase = "Waiting" if key in self._short else "Available"
            self._short.discard(key)
            adopted = [[each.namespace, each.name, each.uid] for each in self._adopted.pop(key, ())]
            return {PHASE: phase, **({ADOPTED: msgspec.json.encode(adopted).decode()} if adopted else {})}
        holding = self.ledger.assumed(key)
        if holding is not None:
            return {ALLOCATED: allocation_text(holding.name, holding.uid)}
        # An annotation that nobody but a scheduler may give is voided where it came with the pod.
        return {ALLOCATED: ""} if pod.metadata.annotations.get(ALLOCATED) else {}


def phase_bound(annotations: Mapping[str, Any]) -> str:
    return str(annotations.get(PHASE, "Available"))


def pods_adopted(annotations: Mapping[str, str]) -> list[tuple[str, str, str]]:
    return msgspec.json.decode(annotations.get(ADOPTED, "[]"), type=list[tuple[str, str, str]])


plugins = (Reservation,)
