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


_NOTHING: Numbers = {}
_NO_CONSUMERS: dict[ObjectKey, Charge] = {}


class ReservedSize(msgspec.Struct, frozen=True, eq=False):
    """What a reservation holds, in the scheduler's units, by name and by resource number. Most reservations are alike and
    share one, so that answers which follow from the size can be kept by it."""

    names: dict[str, int]
    numbers: Numbers
    unused: Numbers  # 0 by resource number: what consumers take as long as there are none
    charge: Charge  # of the stand-in as long as there are none


class ReservedSizes:
    """The sizes of reservations."""

    MOST = 1024

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._known: dict[Hashable, ReservedSize] = {}

    def of(self, quantities: Quantities) -> ReservedSize:
        key = tuple(quantities.items())
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self.MOST:
                self._known.clear()
            named = amounts(quantities)
            numbers = dict(self._tables.charge_of(named))
            found = self._known[key] = ReservedSize(named, numbers, dict.fromkeys(numbers, 0), tuple(numbers.items()))
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
        "open",
        "order",
        "owners",
        "pods_limit",
        "quantities",
        "reservation",
        "reserved",
        "restricted",
        "scored",
        "size",
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
        spec = reservation.spec
        self.open = not (spec.unschedulable or spec.taints or reservation.terminating)  # no toleration is needed
        self.order = order_of(reservation)
        self.created = _created(reservation)
        self.quantities = quantities
        self.size = sizes.of(quantities)
        self.names, self.reserved = self.size.names, self.size.numbers
        annotated = _annotated(reservation, INNER)
        self.inner: Numbers = dict(tables.charge_of(amounts(annotated))) if annotated else _NOTHING
        self.consumer_limit: Numbers = self.reserved  # upper bound for consumers if it is restricted
        self.pods_limit = self.names.get(PODS)
        self.restricted: frozenset[int] | None = None  # resources that must come from it alone; None: not restricted
        if reservation.spec.allocate_policy == "Restricted":
            wanted = [tables.resource(name) for name in _restricted_names(reservation) if name in self.names]
            self.restricted = frozenset(wanted or self.reserved)
        # What unused reservations share: see `count`.
        self.consumers: dict[ObjectKey, Charge] = _NO_CONSUMERS  # with what each takes of the reserved resources
        self.allocated: Numbers = self.size.unused
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

    @property
    def simple(self) -> bool:
        """Whether it accepts the first consumer if the node has what the reservation lacks, whatever else there is."""
        return not (self.closed or self.spent or self.consumers or self.inner) and self.restricted is None

    def usable(self) -> bool:
        """Whether it accepts another consumer, regardless of size."""
        return not (self.closed or (self.once and (self.spent or self.consumers)))

    @property
    def used_up(self) -> bool:
        """Whether its only consumer is there, or has left again."""
        return self.once and (self.spent or bool(self.consumers))

    def count(self, pod: PodOnNode) -> None:
        """Counts a consumer, for the reserved resources only."""
        if not self.consumers:
            self.consumers, self.allocated = {}, dict(self.size.unused)
        taken, allocated = pod.charge, self.allocated
        beside = False
        for number, amount in taken:
            if number in allocated:
                allocated[number] += amount
            else:
                beside = True
        self.consumers[pod.key] = tuple([each for each in taken if each[0] in allocated]) if beside else taken
        self.scored = (self.scored[0] + pod.nonzero[0], self.scored[1] + pod.nonzero[1])

    def charge(self) -> Charge:
        """What the stand-in requests: the part that consumers do not use."""
        allocated = self.allocated
        if allocated is self.size.unused:
            return self.size.charge
        unused: Charge = ()
        for number, amount in self.reserved.items():
            if amount > allocated[number]:
                unused += ((number, amount - allocated[number]),)
        return unused

    def nonzero(self) -> tuple[int, int]:
        """What the stand-in counts for in scores, CPU and memory."""
        cpu, memory = nonzero = self.stand_in.shape.nonzero
        used_cpu, used_memory = self.scored
        if not used_cpu and not used_memory:
            return nonzero
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
