"""How a pod uses reservations: which ones it matches on a row, which one it would use, and the room it sees there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from wharfinger.framework.columns import Bools, Flags, IntColumn, Ints, Rows
from wharfinger.framework.node_table import PODS
from wharfinger.framework.plugin import MAX_SCORE, Overlays, Prepared, RowFunctions, Scope, normalize_by_max
from wharfinger.framework.shapes import HostPort, Shape
from wharfinger.framework.simulation import Overlay, Simulation
from wharfinger.framework.status import unresolvable, unschedulable
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.systems.reservation.plugin.demands import Demands
from wharfinger.systems.reservation.plugin.holding import Numbers, ReservationHolding, ReservedSize, ReservedSizes
from wharfinger.systems.reservation.plugin.ledger import ReservationLedger

NO_MATCH = "node(s) no reservations match reservation affinity"
NOT_MET = "node(s) no reservation(s) to meet the requirements"
PREFERRED = 1000
"""Raw score of the node that has the reservation with the lowest order."""


def score_of(reserved: dict[str, int], allocated: dict[str, int], requests: dict[str, int]) -> int:
    """How well the pod fills the reservation: average utilization afterwards, where a resource that does not fit counts
    0."""
    shares = []
    for name, amount in reserved.items():
        if amount > 0:
            used = allocated.get(name, 0) + requests.get(name, 0)
            shares.append(MAX_SCORE * used // amount if used <= amount else 0)
    return sum(shares) // len(shares) if shares else 0


class _SizeUse(NamedTuple):
    """What follows from the size of a reservation that nobody uses yet."""

    number: int
    shares: bool  # whether it holds a resource that the pod requests
    score: int
    beside: tuple[int, ...]  # what the node must have free beside it, for each resource that the pod requests


class Imagined:
    """State of a simulation on a row: the reservation the pod would use, and what simulated evictions free inside
    reservations."""

    __slots__ = ("candidate", "freed", "leaving")

    def __init__(self, candidate: ReservationHolding | None) -> None:
        self.candidate = candidate
        self.freed: dict[str, Numbers] = {}  # by uid of the reservation
        self.leaving = 0  # consumers of the candidate evicted in the simulation


class Using(Prepared, Overlays):
    """For pods that may or must use reservations. Rows without a matching reservation are left unchanged."""

    scope = Scope.ROW
    filters = scores = normalizes = True

    def __init__(
        self,
        tables: Tables,
        ledger: ReservationLedger,
        shape: Shape,
        demands: Demands,
        classes: tuple[int, ...],
    ) -> None:
        super().__init__()
        self._tables = tables
        self._ledger = ledger
        self._demands = demands
        self._reads_nodes = demands.reads_nodes
        self._selective = bool(demands.name) or demands.reads_nodes
        self._classes = frozenset(classes)
        self.required = demands.required
        self.widens = not self.required
        self._requests = {**shape.requests, PODS: 1}
        self._wanted = tables.charge(shape)
        self._claims = bool(shape.pod.spec.resource_claims)
        self._no_match = self.refuse(unresolvable(NO_MATCH))
        self._not_met = self.refuse(unschedulable(NOT_MET))
        self._matched: dict[int, tuple[ReservationHolding, ...]] = {}  # by row; most have one
        self._row_of: dict[int, int] = {}  # row by holding number
        self._used = [tables.requested[number].cells for number, _ in self._wanted]
        self._has = [tables.allocatable[number].cells for number, _ in self._wanted]
        #: By row with several, with what was requested there of the resources that the pod requests.
        self._nominated: dict[int, tuple[list[int], ReservationHolding | None]] = {}
        self._orders: dict[int, int] = {}  # lowest order by row
        self._sizes: dict[ReservedSize, _SizeUse] = {}
        self._size_uses: list[_SizeUse] = []  # the same by number
        #: [row]: the number of the size if one reservation matches, which nobody uses and which is not restricted; or -1.
        self._simple = IntColumn(tables.capacity, -1)
        self._overlaid = Flags(tables.capacity)  # [row] whether there are matching reservations
        self._logs = [ledger.log_of(number) for number in classes]
        self._log_positions: list[int] | None = None  # of each log; None: nothing was read yet
        self._node_position = -1
        self._state = -1  # sum of the positions of all logs that are read

    # -- matching

    def _catch_up(self) -> None:
        node_position = state = self._tables.node_log.position
        for log in self._logs:
            state += log.position
        if state == self._state:
            return
        self._state = state
        if not self._read_holdings():
            self._match_all()
        if self._node_position != node_position:
            self._node_position = node_position
            self._nominated.clear()

    def _read_holdings(self) -> bool:
        """Follows the holdings that changed; returns whether that is enough."""
        positions = self._log_positions
        if positions is None or (self._reads_nodes and self._tables.node_log.position != self._node_position):
            return False
        for index, log in enumerate(self._logs):
            if log.position == positions[index]:
                continue
            changed = log.since(positions[index])
            if changed is None:
                return False
            positions[index] = log.position
            for number in changed:
                if number in self._row_of:
                    self._leave(number)
                found = self._ledger.by_number.get(number)
                if found is not None and found.owners in self._classes and not found.used_up:
                    self._enter(found)
        return True

    def _match_all(self) -> None:
        self._log_positions = [log.position for log in self._logs]
        self._matched.clear()
        self._overlaid.view[:] = False
        self._simple.view[:] = -1
        self._sizes.clear()
        self._size_uses.clear()
        self._row_of.clear()
        self._orders.clear()
        self._nominated.clear()
        for number in self._classes:
            for holding in self._ledger.of_class.get(number, {}).values():
                self._enter(holding)

    def _enter(self, holding: ReservationHolding) -> None:
        row = holding.stand_in.row
        if row >= 0 and self._matches(holding, row):
            self._row_of[holding.number] = row
            self._match(row, (*self._matched.get(row, ()), holding))

    def _leave(self, number: int) -> None:
        row = self._row_of.pop(number)
        matched = self._matched[row]
        self._match(row, () if len(matched) == 1 else tuple([each for each in matched if each.number != number]))

    def _match(self, row: int, matched: tuple[ReservationHolding, ...]) -> None:
        """These are the matching reservations on a row from now on."""
        if matched:
            self._matched[row] = matched
        else:
            del self._matched[row]
        self._overlaid.cells[row] = bool(matched)
        self._simple.cells[row] = (
            self._use_of(matched[0].size).number if len(matched) == 1 and matched[0].simple else -1
        )
        if self._nominated:
            self._nominated.pop(row, None)
        if self._orders:
            self._orders.pop(row, None)
        for holding in matched:
            if holding.order:
                self._orders[row] = min(self._orders.get(row, holding.order), holding.order)

    def _matches(self, holding: ReservationHolding, row: int) -> bool:
        """Whether the pod may use the holding. Sizes are checked only for an exact match."""
        if holding.waiting or holding.used_up:
            return False
        demands = self._demands
        for name in demands.exact:
            if holding.names.get(name) != self._requests.get(name):
                return False
        if not self.required and not self._shares(holding):
            return False
        if holding.open and not self._selective:
            return True
        node = self._tables.nodes[row]
        assert node is not None
        return demands.accepts(holding.reservation, node.metadata.labels)

    def _shares(self, holding: ReservationHolding) -> bool:
        """Whether it holds a resource that the pod requests, or devices for claims if the pod has some. A pod without
        requests may use one that holds nothing."""
        return self._use_of(holding.size).shares or (self._claims and bool(holding.stand_in.pod.spec.resource_claims))

    def _use_of(self, size: ReservedSize) -> _SizeUse:
        found = self._sizes.get(size)
        if found is None:
            if len(self._sizes) > ReservedSizes.MOST + 2 * len(self._row_of):
                self._log_positions = None  # most are not in use any more: start over at the next change
            shares = not size.numbers
            if self._wanted:
                shares = any(self._requests.get(name) for name in size.names if name != PODS)
            beside = tuple([amount - size.numbers.get(number, 0) for number, amount in self._wanted])
            found = _SizeUse(len(self._size_uses), shares, score_of(size.names, {}, self._requests), beside)
            self._sizes[size] = found
            self._size_uses.append(found)
        return found

    # -- nomination

    def nominate(self, row: int) -> ReservationHolding | None:
        """The reservation the pod would use on a row."""
        self._catch_up()
        return self._nominee(row)

    def _nominee(self, row: int) -> ReservationHolding | None:
        matched = self._matched.get(row)
        if not matched:
            return None
        simple = self._simple.cells[row]
        if simple >= 0:
            return matched[0] if self._has_room(row, self._size_uses[simple].beside) else None
        used = [each[row] for each in self._used]
        known = self._nominated.get(row)
        if known is not None and known[0] == used:
            return known[1]
        fitting = [holding for holding in matched if self._fits(holding, row)]
        chosen = fitting[0] if len(fitting) == 1 else self._preferred(fitting) if fitting else None
        self._nominated[row] = used, chosen
        return chosen

    def _preferred(self, fitting: Sequence[ReservationHolding]) -> ReservationHolding:
        ordered = [holding for holding in fitting if holding.order]
        if ordered:
            return min(ordered, key=lambda holding: (holding.order, holding.created, holding.name))
        return min(fitting, key=lambda holding: (-self._score(holding), holding.created, holding.name))

    def _fits(self, holding: ReservationHolding, row: int) -> bool:
        if not holding.usable() or (holding.restricted is not None and self._short_inside(holding, None)):
            return False
        reserved, allocated, inner = holding.reserved, holding.allocated, holding.inner
        beside = [
            amount - max(0, reserved[number] - allocated[number]) + inner.get(number, 0)
            if number in reserved
            else amount
            for number, amount in self._wanted
        ]
        return self._has_room(row, beside)

    def _has_room(self, row: int, beside: Sequence[int]) -> bool:
        """Whether so much is free on the row, as far as that is checked here."""
        for has, used, amount, (number, _) in zip(self._has, self._used, beside, self._wanted):
            if has[row] - used[row] < amount and not self._checked_elsewhere(number, row):
                return False
        return True

    def _checked_elsewhere(self, number: int, row: int) -> bool:
        """Whether the plugin that handles the resource checks it."""
        name = self._tables.resource_names[number]
        return name in self._tables.handled or self._tables.is_by_devices(name, row)

    def _short_inside(self, holding: ReservationHolding, imagined: Imagined | None) -> list[str]:
        """The failure reasons of a restricted reservation that lacks room."""
        if holding.restricted is None:
            return []
        reasons = []
        freed = imagined.freed.get(holding.uid, {}) if imagined is not None else {}
        leaving = imagined.leaving if imagined is not None else 0
        if holding.pods_limit is not None and len(holding.consumers) - leaving >= holding.pods_limit:
            reasons.append("Reservation(s) Too many pods")
        for number, amount in self._wanted:
            if number in holding.restricted and number in holding.reserved:
                used = holding.allocated[number] - freed.get(number, 0) + holding.inner.get(number, 0)
                if amount > max(0, holding.consumer_limit[number] - used):
                    reasons.append(f"Reservation(s) Insufficient {self._tables.resource_names[number]}")
        return reasons

    def _score(self, holding: ReservationHolding) -> int:
        if not holding.consumers:
            return self._use_of(holding.size).score
        names = self._tables.resource_names
        allocated = {names[number]: amount for number, amount in holding.allocated.items()}
        allocated[PODS] = len(holding.consumers)
        return score_of(holding.names, allocated, self._requests)

    # -- filtering

    @property
    def overlays(self) -> Overlays:
        return self

    @property
    def favours(self) -> bool:
        self._catch_up()
        return not self._orders

    @property
    def overlaid(self) -> Collection[int]:
        self._catch_up()
        return self._matched.keys()

    def overlaid_mask(self, capacity: int) -> Bools:
        self._catch_up()
        return self._overlaid.view

    def overlays_on(self, row: int, *, evicting: bool = False) -> Sequence[Overlay]:
        nominated = self.nominate(row)
        matched = self._matched.get(row, ())
        opened: Iterable[ReservationHolding]
        if evicting:
            opened = sorted(matched, key=lambda holding: holding is not nominated)
        elif nominated is not None:
            opened = (nominated,)
        else:
            # None fits; if a reservation is required, the first one gives the reason.
            opened = matched[:1] if self.required else ()
        found = [self._opening(holding, matched) for holding in opened]
        if not self.required:
            found.append(self._closed)
        return found

    def _opening(self, candidate: ReservationHolding, matched: Sequence[ReservationHolding]) -> Overlay:
        """The row as seen by a pod that uses the candidate. The stand-ins of all matching reservations are removed; the
        resources of the other ones stay charged."""

        def imagine(simulation: Simulation) -> None:
            simulation.state[self] = Imagined(candidate)
            simulation.opened = candidate.uid
            for holding in matched:
                simulation.remove(holding.stand_in)
                if holding is not candidate:
                    for number, amount in holding.stand_in.charge:
                        simulation.charge(number, amount)
            for number, amount in candidate.inner.items():
                if number in candidate.reserved:
                    simulation.charge(number, amount)
            dropped = [port for holding in matched for port in holding.stand_in.shape.host_ports]
            if dropped:
                simulation.ports = self._ports_without(simulation.row, dropped)

        return imagine

    def _closed(self, simulation: Simulation) -> None:
        """The row unchanged, for a pod that uses no reservation."""
        simulation.state[self] = Imagined(None)
        simulation.opened = ""

    def _ports_without(self, row: int, dropped: Iterable[HostPort]) -> set[HostPort]:
        users = dict(self._tables.ports.get(row, {}))
        for port in dropped:
            users[port] -= 1
        return {port for port, count in users.items() if count > 0}

    def pod_simulated(self, simulation: Simulation, pod: PodOnNode, sign: int) -> None:
        """What a consumer frees or takes is accounted to its reservation, not to the row."""
        holding = self._ledger.use(pod.key)
        if holding is None or pod.key not in holding.consumers:
            return
        imagined = simulation.state.get(self)
        if imagined is None:
            imagined = simulation.state[self] = Imagined(None)
        freed = imagined.freed.setdefault(holding.uid, {})
        for number, amount in holding.consumers[pod.key]:
            before = freed.get(number, 0)
            freed[number] = before - sign * amount
            if holding is not imagined.candidate:
                reserved, allocated = holding.reserved[number], holding.allocated[number]
                grown = max(0, reserved - allocated + freed[number]) - max(0, reserved - allocated + before)
                simulation.charge(number, grown)
        if holding is imagined.candidate:
            imagined.leaving -= sign

    def filter(self, rows: Rows) -> Ints:
        if not self.required:
            return np.zeros(len(rows), dtype=np.int64)
        self._catch_up()
        codes = np.full(len(rows), self._no_match, dtype=np.int64)
        for index, row in enumerate(rows.tolist()):
            if row in self._matched:
                codes[index] = self.filter_row(row)
        return codes

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        self._catch_up()
        if row not in self._matched:
            return self._no_match if self.required else 0
        imagined = simulation.state.get(self) if simulation is not None else None
        if imagined is None:
            # Not part of a preemption simulation: any reservation on the row will do.
            return 0 if not self.required or self.nominate(row) is not None else self._refusal(row)
        candidate = imagined.candidate
        if candidate is None:
            return self._refusal(row) if self.required else 0
        reasons = self._short_inside(candidate, imagined)
        if reasons:
            return self.refuse(unschedulable(*reasons))
        return 0 if candidate.usable() else self._not_met

    def row_functions(self) -> RowFunctions:
        # If no reservation is required, this filter rejects no row.
        return RowFunctions(self.filter_row, self.score_row, None if self.required else ())

    def _refusal(self, row: int) -> int:
        reasons: dict[str, None] = {}
        for holding in self._matched[row]:
            reasons.update(dict.fromkeys(self._short_inside(holding, None)))
        return self.refuse(unschedulable(*reasons)) if reasons else self._not_met

    # -- scoring

    def score(self, rows: Rows) -> Ints:
        self._catch_up()
        scores = np.zeros(len(rows), dtype=np.int64)
        overlaid = self._overlaid.view.take(rows)
        if self._size_uses:
            sizes = self._simple.take(rows)
            simple = np.flatnonzero(overlaid & (sizes >= 0))
            scores[simple] = self._score_simple(rows[simple], sizes[simple])
            overlaid &= sizes < 0
        for index in np.flatnonzero(overlaid).tolist():
            scores[index] = self._score_of(int(rows[index]))
        return scores

    def _score_simple(self, rows: Rows, sizes: Ints) -> Ints:
        """The scores of rows with one unused reservation each, by the number of its size."""
        scores = np.array([each.score for each in self._size_uses], dtype=np.int64).take(sizes)
        for index, (number, _) in enumerate(self._wanted):
            beside = np.array([each.beside[index] for each in self._size_uses], dtype=np.int64).take(sizes)
            free = self._tables.allocatable[number].take(rows) - self._tables.requested[number].take(rows)
            for short in np.flatnonzero(free < beside).tolist():
                if not self._checked_elsewhere(number, int(rows[short])):
                    scores[short] = 0
        return scores

    def score_row(self, row: int) -> int:
        self._catch_up()
        return self._score_of(row)

    def _score_of(self, row: int) -> int:
        simple = self._simple.cells[row]
        if simple >= 0:
            use = self._size_uses[simple]
            return use.score if self._has_room(row, use.beside) else 0
        holding = self._nominee(row)
        return 0 if holding is None else self._score(holding)

    def normalize(self, scores: Ints, rows: Rows) -> Ints:
        self._catch_up()
        if self._orders:
            scores = self._with_order(scores, rows)
        return normalize_by_max(scores)

    @property
    def scales(self) -> bool:
        self._catch_up()
        return not self._orders

    def normalize_values(self, values: Sequence[int]) -> list[int]:
        largest = max(max(values), 0)
        return [each * MAX_SCORE // largest for each in values] if largest else list(values)

    def _with_order(self, scores: Ints, rows: Rows) -> Ints:
        """Put the row with the lowest order first; ties are broken by score, then by node name."""
        name: Callable[[int], str] = self._tables.name
        ranked = [
            (self._orders[row], -score, name(row), index)
            for index, (row, score) in enumerate(zip(rows.tolist(), scores.tolist(), strict=True))
            if row in self._orders
        ]
        if not ranked:
            return scores
        scores = scores.copy()
        scores[min(ranked)[-1]] = PREFERRED
        return scores


class Ignoring(Prepared, Overlays):
    """For pods that may ignore reservations: unused reserved resources look free to them."""

    def __init__(self, ledger: ReservationLedger) -> None:
        super().__init__()
        self._ledger = ledger

    @property
    def overlays(self) -> Overlays:
        return self

    @property
    def overlaid(self) -> Collection[int]:
        return self._ledger.stand_ins_on.keys()

    def overlays_on(self, row: int, *, evicting: bool = False) -> Sequence[Overlay]:
        def imagine(simulation: Simulation) -> None:
            for each in self._ledger.stand_ins_on[row].values():
                simulation.remove(each)

        return (imagine,)
