"""Reservations that hold a node: what they reserve, and how much of it their consumers use."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from wharfinger.api.keys import ObjectKey
from wharfinger.api.times import BadTime, parse_time
from wharfinger.api.views import ObjectMeta
from wharfinger.api.views.pods import Container, PodSpec, Quantities, ResourceRequirements
from wharfinger.framework.node_table import PODS
from wharfinger.framework.stand_ins import StandIn
from wharfinger.framework.tables import Charge, PodOnNode, Tables
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.reservations import (
    INNER,
    RESERVATION,
    RESTRICTED_OPTIONS,
    BadReservation,
    amounts,
    annotated_names,
    annotated_quantities,
    order_of,
    stand_in,
    stand_in_name,
)

Numbers = dict[int, int]
"""Amounts by resource number."""


class ReservedSizes:
    """What reservations hold. Most are alike and share it, so it must not be changed."""

    MOST = 1024

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._known: dict[Hashable, tuple[dict[str, int], Numbers]] = {}

    def of(self, quantities: Quantities) -> tuple[dict[str, int], Numbers]:
        """The amounts in the scheduler's units, by name and by resource number."""
        key = tuple(quantities.items())
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self.MOST:
                self._known.clear()
            named = amounts(quantities)
            found = self._known[key] = named, dict(self._tables.charge_of(named))
        return found


class ReservationHolding:
    """A reservation that holds a node. `reserved`, `inner` and `allocated` are keyed by resource number."""

    __slots__ = (
        "allocated",
        "closed",
        "consumer_limit",
        "consumers",
        "created",
        "inner",
        "names",
        "number",
        "once",
        "order",
        "owners",
        "pods_limit",
        "quantities",
        "reservation",
        "reserved",
        "restricted",
        "scored",
        "spent",
        "stand_in",
        "uid",
        "waiting",
    )

    def __init__(
        self,
        tables: Tables,
        sizes: ReservedSizes,
        reservation: Reservation,
        quantities: Quantities,
        owners: int | None,
        number: int,
    ) -> None:
        """`quantities` is what it holds: `status.allocatable`, or the larger size that is being written."""
        self.reservation = reservation
        self.uid: str = reservation.metadata.uid
        self.owners = owners  # owner class; None if no pod can match
        self.number = number  # sequence number in the order first seen
        self.once = reservation.once
        self.spent = False  # its only consumer has left already
        self.waiting = reservation.phase == "Waiting"
        self.closed = self.waiting or reservation.terminating
        self.order = order_of(reservation)
        self.created = _created(reservation)
        self.quantities = quantities
        self.names, self.reserved = sizes.of(quantities)
        self.inner: Numbers = dict(tables.charge_of(amounts(_annotated(reservation, INNER))))
        self.consumer_limit: Numbers = self.reserved  # upper bound for consumers if it is restricted
        self.pods_limit = self.names.get(PODS)
        self.restricted: frozenset[int] | None = None  # resources that must come from it alone; None: not restricted
        if reservation.spec.allocate_policy == "Restricted":
            wanted = [tables.resource(name) for name in _restricted_names(reservation) if name in self.names]
            self.restricted = frozenset(wanted or self.reserved)
        self.consumers: dict[ObjectKey, Charge] = {}  # with what each takes of the reserved resources
        self.allocated: Numbers = dict.fromkeys(self.reserved, 0)
        self.scored = (0, 0)  # CPU and memory that consumers count for in scores
        self.stand_in = _stand_in(tables, reservation, quantities)

    @property
    def name(self) -> str:
        return self.reservation.metadata.name

    @property
    def row(self) -> int:
        return self.stand_in.row

    @property
    def policy(self) -> str:
        return self.reservation.spec.allocate_policy

    def limit_to(self, tables: Tables, promised: Quantities | None) -> None:
        """Limit new consumers to what is written and will be written: growth counts only once it is written."""
        if promised is None:
            return
        has, gets = amounts(self.reservation.status.allocatable), amounts(promised)
        names = tables.resource_names
        self.consumer_limit = {
            number: min(has.get(names[number], 0), gets.get(names[number], 0)) for number in self.reserved
        }
        if self.pods_limit is not None:
            self.pods_limit = min(has.get(PODS, 0), gets.get(PODS, 0))

    def usable(self) -> bool:
        """Whether it accepts another consumer, regardless of size."""
        return not (self.closed or self.used_up)

    @property
    def used_up(self) -> bool:
        """Whether its only consumer is there, or has left again."""
        return self.once and (self.spent or bool(self.consumers))

    def charge(self) -> Charge:
        """What the stand-in requests: the part that consumers do not use."""
        allocated = self.allocated
        unused = [
            (number, amount - allocated[number])
            for number, amount in self.reserved.items()
            if amount > allocated[number]
        ]
        return tuple(unused)

    def nonzero(self) -> tuple[int, int]:
        """What the stand-in counts for in scores, CPU and memory."""
        cpu, memory = self.stand_in.shape.nonzero
        used_cpu, used_memory = self.scored
        return cpu - used_cpu if cpu > used_cpu else 0, memory - used_memory if memory > used_memory else 0

    def held(self, number: int) -> int:
        """What the reservation and its consumers take of the node together."""
        return max(self.reserved.get(number, 0), self.allocated.get(number, 0))


def _created(reservation: Reservation) -> float:
    try:
        return parse_time(reservation.metadata.creation_timestamp)
    except BadTime:
        return 0.0


def _annotated(reservation: Reservation, annotation: str) -> Quantities:
    try:
        return annotated_quantities(reservation.metadata, annotation)
    except BadReservation:
        return {}


def _restricted_names(reservation: Reservation) -> tuple[str, ...]:
    try:
        return annotated_names(reservation.metadata, RESTRICTED_OPTIONS, "resources")
    except BadReservation:
        return ()


def _stand_in(tables: Tables, reservation: Reservation, quantities: Quantities) -> PodOnNode:
    status = msgspec.structs.replace(reservation.status, allocatable=quantities)
    reservation = msgspec.structs.replace(reservation, status=status)
    try:
        pod = stand_in(reservation)
    except BadReservation:
        # Reserved resources stay reserved even if the template has become invalid.
        metadata = reservation.metadata
        container = Container(name="reserved", resources=ResourceRequirements(requests=reservation.status.allocatable))
        pod = StandIn(
            ObjectMeta(name=stand_in_name(metadata.uid), namespace="default", uid=metadata.uid),
            PodSpec(node_name=reservation.status.node_name, containers=(container,)),
            kind=RESERVATION,
            object_name=metadata.name,
        )
    return tables.record(pod, reservation.status.node_name)
