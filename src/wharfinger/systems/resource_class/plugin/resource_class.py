"""The resourceclass plugin: a node must have the devices that a pod requests by class, alias or raw resource name.

All requests of a pod are evaluated together, so that no device is counted twice. Devices are chosen when the pod is
assumed on a node, and the record is written with the Binding. If the pod already has a record, it is honoured.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from wharfinger.api.keys import ObjectKey
from wharfinger.api.resources import CPU, EPHEMERAL_STORAGE, MEMORY
from wharfinger.api.validation.resources import is_unqualified
from wharfinger.api.views import Pod
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.explaining import AskedAmount, ExplainedTable
from wharfinger.framework.plugin import MAX_SCORE, Plugin, Prepared, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.stand_ins import StandIn
from wharfinger.framework.status import SUCCESS, Code, Status, unresolvable, unschedulable
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.systems.resource_class.kinds.views import ALIAS_PREFIX, NodeComputeResources, ResourceClass
from wharfinger.systems.resource_class.plugin.catalogue import Meaning
from wharfinger.systems.resource_class.plugin.holdings import (
    Holding,
    Slot,
    demand,
    effective,
    free_units,
    held_by,
    holding,
    record_fault,
    requested,
    spread_over_containers,
)
from wharfinger.systems.resource_class.plugin.ledger import MANY, DeviceLedger, ledger_of
from wharfinger.systems.resource_class.rules.assigning import Demand, assign, fits
from wharfinger.systems.resource_class.rules.compute_resources import (
    OVERLAID,
    RECORD,
    Allocation,
    BadRecord,
    format_record,
    record_fields,
    recorded,
)

CLASS = "ResourceClass"
INVENTORY = "NodeComputeResources"
_MAX_COMBINED = 3  # names per raw resource for which all combinations are checked with arrays

_PLAIN = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
_NEVER, _TOGETHER = 1, 2  # bits of a filter code; those of the names follow


class ResourceClasses(Plugin):
    name = "resourceclass"
    points = frozenset({"preFilter", "filter", "preScore", "score", "reserve", "preBind"})
    weight = 10  # outweighs the stock spreading plugins, but not scheduling units and reservations
    reserves_prepared = True
    position = 87  # after reservations, which determine the devices that are available
    ours = True
    handles_resources = True
    kinds = (CLASS, INVENTORY)
    views = {CLASS: ResourceClass, INVENTORY: NodeComputeResources}
    watches_pods = True

    def __init__(self, tables: Tables, args: Any) -> None:
        super().__init__(tables, args)
        self._ledger, self._updates_ledger = ledger_of(tables)  # the first profile updates it for all

    # cluster events

    def observe(self, kind: str, old: Any, new: Any) -> None:
        if not self._updates_ledger:
            return
        if kind == INVENTORY:
            self._ledger.set_inventory((new or old).metadata.name, new)
        elif new is None:
            self._ledger.remove_class(old.metadata.name)
        else:
            self._ledger.set_class(new)

    def handled_resources(self) -> Collection[str]:
        self._ledger.sync()
        return self.tables.handled

    def concerned(self, shape: Shape) -> bool:
        return shape.devices

    def pod_added(self, pod: PodOnNode) -> None:
        if self._updates_ledger and (pod.shape.devices or RECORD in pod.pod.metadata.annotations):
            self._ledger.pod_added(pod)

    def pod_removed(self, pod: PodOnNode) -> None:
        if self._updates_ledger:
            self._ledger.pod_removed(pod)

    def pod_replaced(self, pod: PodOnNode) -> None:
        if self._updates_ledger:
            self._ledger.pod_replaced(pod)

    def wake_ups(self) -> tuple[WakeUp, ...]:
        return (
            WakeUp(NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE),
            WakeUp(POD, Action.DELETE, lambda pod, old, new: bool(old is not None and holding(old))),
            WakeUp(INVENTORY, Action.ALL),  # without an inventory, the classic capacity of the node counts
            WakeUp(CLASS, Action.ALL, _requests_class),
        )

    def explained(self, pod: Pod, rows: Sequence[int]) -> Iterator[ExplainedTable]:
        """The devices of the nodes, and for which of the requested names each can be used."""
        catalogue = self._ledger.catalogue
        meanings = {
            name: meaning
            for amounts in requested(pod).values()
            for name in amounts
            if (meaning := catalogue.meaning(name)) is not None and not meaning.per_cluster
        }
        lines = []
        for row in rows if meanings else ():
            for slot in self._ledger.slots(row):
                names = [name for name, meaning in sorted(meanings.items()) if slot.set in meaning.sets]
                if any(slot.raw == meaning.raw for meaning in meanings.values()):
                    found = catalogue.sets[slot.set]
                    properties = (
                        "" if found is None else ", ".join(f"{k}={v}" for k, v in sorted(found.properties.items()))
                    )
                    node = self.tables.name(row)
                    lines.append(
                        (node, slot.raw, properties, slot.capacity, slot.free, ", ".join(names) or "nothing asked")
                    )
        if lines:
            yield ExplainedTable(
                "Devices", ("node", "resource", "properties", "healthy", "free", "serves"), tuple(lines)
            )

    # scheduling cycle

    def shape_key(self, pod: Pod) -> Hashable:
        """The versions of the requested names, and the pod's record."""
        names: set[str] = set()
        has_fields = False
        for each in pod.spec.init_containers:
            has_fields = has_fields or bool(each.allocated_compute_resources)
            names.update(each.resources.limits, each.resources.requests)
        for each in pod.spec.containers:
            resources = each.resources
            has_fields = has_fields or bool(each.allocated_compute_resources)
            if not (resources.limits.keys() <= _PLAIN and resources.requests.keys() <= _PLAIN):
                names.update(resources.limits, resources.requests)
        annotations = pod.metadata.annotations
        record = annotations.get(RECORD)
        if record is None and has_fields:
            fields = record_fields(pod).items()
            record = repr(sorted((name, sorted(given.items())) for name, given in fields))
        if record is None and names <= _PLAIN:
            return None
        if OVERLAID in annotations:
            record = f"{record} over {annotations[OVERLAID]}"
        self._ledger.sync()
        version = self._ledger.catalogue.version
        meanings = tuple(sorted((name, number) for name in names - _PLAIN if (number := version(name)) is not None))
        return (meanings, record) if record is not None or meanings else None

    def key_is_shared(self, shape: Shape) -> bool:
        return not shape.devices  # the meaning of device names can change

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        self._ledger.sync()
        asked = requested(shape.pod)
        meanings: dict[str, Meaning] = {}
        for name in sorted({name for amounts in asked.values() for name in amounts}):
            meaning = self._ledger.catalogue.meaning(name)
            if meaning is None and self._ledger.catalogue.is_served(name):
                continue
            if meaning is None and (is_unqualified(name) or name.startswith(ALIAS_PREFIX)):
                return unresolvable(f'unknown class "{name}"')
            if meaning is not None and not meaning.per_cluster:
                meanings[name] = meaning
        try:
            record = recorded(shape.pod)
        except BadRecord as error:
            return unresolvable(str(error))
        if record is not None:
            fault = record_fault(
                shape.pod, record, asked, lambda name: meanings[name].group_size if name in meanings else 0
            )
            return unresolvable(fault) if fault else _Recorded(self._ledger, asked, shape.pod, record, meanings)
        if not meanings:
            return None
        amounts = effective(shape.pod, asked)
        return _Asked(self._ledger, asked, [Wanted(name, amounts[name], meaning) for name, meaning in meanings.items()])

    def reserve(self, pod: Pod, row: int, prepared: Prepared | None) -> Status:
        if not isinstance(prepared, _Devices):
            return SUCCESS
        allocation = prepared.allocate(pod, row)
        if allocation is None:
            return unschedulable("the devices were allocated to another pod in the meantime")
        self._ledger.given[pod.metadata.key] = (allocation, held_by(pod, allocation, prepared.asked))
        return SUCCESS

    def unreserve(self, pod: Pod, row: int) -> None:
        self._ledger.given.pop(pod.metadata.key, None)

    def pre_bind(self, pod: Pod, node_name: str) -> Mapping[str, str]:
        given = self._ledger.given.get(pod.metadata.key)
        return {RECORD: format_record(given[0])} if given is not None else {}


class Wanted(msgspec.Struct, frozen=True):
    """A device name that a pod requests."""

    name: str
    amount: int
    meaning: Meaning


class _Devices(Prepared):
    """Base of both prepared states: tracks the devices of simulated pods."""

    scope = Scope.ROW
    filters = True

    def __init__(self, ledger: DeviceLedger, asked: Mapping[str, dict[str, int]]) -> None:
        super().__init__()
        self._ledger = ledger
        self.asked = asked  # by container

    def allocate(self, pod: Pod, row: int) -> Allocation | None:
        """The record for the pod on this row's node; None if it does not fit."""
        raise NotImplementedError

    def pod_simulated(self, simulation: Simulation, pod: PodOnNode, sign: int) -> None:
        changes: dict[ObjectKey, Holding | None] = simulation.state.setdefault(self, {})
        there = pod.row == simulation.row
        if there and isinstance(pod.pod, StandIn) and simulation.opened not in (None, pod.pod.metadata.uid):
            return  # only hidden from other plugins; it keeps its devices
        if (sign > 0) == there:
            changes.pop(pod.key, None)
        elif there:
            changes[pod.key] = None
        elif held := holding(pod.pod):
            changes[pod.key] = held

    def _available(self, pod: Pod, row: int, slots: Sequence[Slot]) -> tuple[list[int], Mapping[str, int]]:
        """Free devices by slot for a pod that is being assumed, and what its reservation holds for it."""
        reservation = self._ledger.assumed_reservation(pod.metadata.key)
        return self._ledger.opened(row, reservation) if reservation else ([slot.free for slot in slots], {})

    def _free(self, row: int, slots: Sequence[Slot], simulation: Simulation | None) -> list[int]:
        changes = simulation.state.get(self) if simulation is not None else None
        return self._ledger.use(row, changes).free if changes else [slot.free for slot in slots]


class _Asked(_Devices):
    """State for a pod that requests devices by name.

    Filter codes are bit sets: bit 0 if preemption cannot help, bit 1 if the requests fit individually but not together,
    then one bit per requested name that is short. Scores prefer nodes whose devices match fewer classes, so that
    sought-after devices stay free.
    """

    scores = True

    def __init__(self, ledger: DeviceLedger, asked: Mapping[str, dict[str, int]], wanted: list[Wanted]) -> None:
        super().__init__(ledger, asked)
        self._wanted = wanted
        self._devices = sum(each.amount * each.meaning.group_size for each in wanted)
        by_raw: dict[str, list[int]] = {}
        for index, each in enumerate(wanted):
            by_raw.setdefault(each.meaning.raw, []).append(index)
        self._by_raw = by_raw
        self._small = self._devices < MANY
        self._in_arrays = (
            self._small
            and all(len(indices) <= _MAX_COMBINED for indices in by_raw.values())
            and all(each.meaning.group_size == 1 for each in wanted)
        )

    def filter(self, rows: Rows) -> Ints:
        self._ledger.sync()
        if not self._in_arrays or len(rows) == 1:
            return np.fromiter((self.filter_row(int(row)) for row in rows), dtype=np.int64, count=len(rows))
        # Hall's condition: a node can serve all requests exactly if, for every subset of them, it has at least as many
        # devices usable by any request in the subset as the subset asks for.
        codes = np.zeros(len(rows), dtype=np.int64)
        for raw, indices in self._by_raw.items():
            short_of_one = np.zeros(len(rows), dtype=np.bool_)
            for size in range(1, len(indices) + 1):
                for some in combinations(indices, size):
                    usable = np.logical_or.reduce([self._ledger.array(self._wanted[i].meaning) for i in some])
                    amount = sum(self._wanted[i].amount for i in some)
                    short = self._ledger.totals(raw, usable, rows, free=True) < amount
                    if not short.any():
                        continue
                    never = self._ledger.totals(raw, usable, rows, free=False) < amount
                    codes |= np.where(short & never, _NEVER, 0)
                    if size == 1:
                        codes |= np.where(short, 4 << some[0], 0)
                        short_of_one |= short
                    else:
                        codes |= np.where(short & ~short_of_one, _TOGETHER, 0)
        return codes

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        slots = self._ledger.slots(row)
        free = self._free(row, slots, simulation)
        wanted = self._wanted
        if len(wanted) == 1 and wanted[0].meaning.group_size == 1:
            sets, amount = wanted[0].meaning.sets, wanted[0].amount
            if sum(left for slot, left in zip(slots, free, strict=True) if slot.set in sets) >= amount:
                return 0
            return 4 if sum(slot.capacity for slot in slots if slot.set in sets) >= amount else 4 | _NEVER
        code = 0
        for indices in self._by_raw.values():
            code |= self._code(slots, free, indices)
        return code

    def score(self, rows: Rows) -> Ints:
        self._ledger.sync()
        if not self._small:
            return np.fromiter((self.score_row(int(row)) for row in rows), dtype=np.int64, count=len(rows))
        cost = np.zeros(len(rows), dtype=np.int64)
        for each in self._wanted:
            meaning = each.meaning
            usable = self._ledger.array(meaning)
            cost += self._ledger.claims(meaning.raw, usable, each.amount * meaning.group_size, rows)
        return MAX_SCORE * self._devices // (self._devices + cost)

    def score_row(self, row: int) -> int:
        slots, rank = self._ledger.slots(row), self._ledger.catalogue.rank
        cost = 0
        for each in self._wanted:
            missing = each.amount * each.meaning.group_size
            sets = each.meaning.sets
            for claims, free in sorted((rank(slot.set), slot.free) for slot in slots if slot.set in sets):
                taken = free if free < missing else missing
                cost += taken * claims
                missing -= taken
        return MAX_SCORE * self._devices // (self._devices + cost)

    def _code(self, slots: Sequence[Slot], free: Sequence[int], indices: Sequence[int]) -> int:
        demands = self._demands(slots, indices)
        if fits(demands, free):
            return 0
        code = 0
        for index, each in zip(indices, demands, strict=True):
            if not fits([each], free):
                code |= 4 << index
        code = code or _TOGETHER
        return code if fits(demands, [slot.capacity for slot in slots]) else code | _NEVER

    def _demands(self, slots: Sequence[Slot], indices: Sequence[int]) -> list[Demand]:
        catalogue = self._ledger.catalogue
        chosen = [self._wanted[index] for index in indices]
        return [demand(slots, each.name, each.amount, each.meaning, catalogue) for each in chosen]

    def status(self, code: int) -> Status:
        reasons = [self._insufficient(each) for i, each in enumerate(self._wanted) if code & (4 << i)]
        if code & _TOGETHER:
            names = " and ".join(each.name for each in self._wanted)
            reasons.append(f"Insufficient devices for {names} together")
        return Status(Code.UNRESOLVABLE if code & _NEVER else Code.UNSCHEDULABLE, tuple(reasons))

    def _insufficient(self, wanted: Wanted) -> str:
        """As NodeResourcesFit says it; of a class also what there is in the whole cluster, since a class does not tell."""
        meaning = wanted.meaning
        if not meaning.is_class:
            return f"Insufficient {wanted.name}"
        devices, healthy, free = self._ledger.overall(meaning)
        return (
            f"Insufficient {wanted.name} (devices in the cluster: {devices} matching, {healthy} healthy, {free} free)"
        )

    def amounts(self, row: int, simulation: Simulation | None = None) -> list[AskedAmount]:
        """Free units of each name by itself: requests that share devices may fit only one at a time."""
        slots = self._ledger.slots(row)
        free, catalogue = self._free(row, slots, simulation), self._ledger.catalogue
        return [
            AskedAmount(each.name, each.amount, free_units(slots, free, each.meaning, catalogue))
            for each in self._wanted
        ]

    def allocate(self, pod: Pod, row: int) -> Allocation | None:
        slots = self._ledger.slots(row)
        free, kept = self._available(pod, row, slots)
        demands = self._demands(slots, range(len(self._wanted)))
        if kept:
            # Use the devices that are reserved for the pod first.
            demands = [
                _preferring(each, [place for place in each.places if slots[place].name in kept]) for each in demands
            ]
        given = assign(demands, free)
        if given is None:
            return None
        pools = {
            each.name: {slots[place].name: count for place, count in counts.items()}
            for each, counts in zip(self._wanted, given, strict=True)
        }
        return spread_over_containers(
            pod, self.asked, pools, {each.name: each.meaning.group_size for each in self._wanted}
        )


def _preferring(demand: Demand, places: list[int]) -> Demand:
    """The demand with these places preferred."""
    if not places or len(places) == len(demand.places):
        return demand
    order = sorted(range(len(demand.places)), key=lambda index: demand.places[index] not in places)
    values = tuple(demand.values[index] for index in order) if demand.values else ()
    return replace(demand, places=tuple(demand.places[index] for index in order), values=values)


class _Recorded(_Devices):
    """State for a pod that has a record: only nodes with these ComputeResources, free and matching, pass."""

    def __init__(
        self,
        ledger: DeviceLedger,
        asked: Mapping[str, dict[str, int]],
        pod: Pod,
        record: Allocation,
        meanings: Mapping[str, Meaning],
    ) -> None:
        super().__init__(ledger, asked)
        self._record = record
        self._meanings = meanings
        self._held = holding(pod)
        self._absent = self.refuse(unresolvable("node(s) didn't have the ComputeResources of the pod's record"))

    def filter(self, rows: Rows) -> Ints:
        return np.fromiter((self.filter_row(int(row)) for row in rows), dtype=np.int64, count=len(rows))

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        slots = self._ledger.slots(row)
        return self._judge(slots, self._free(row, slots, simulation))

    def _judge(self, slots: Sequence[Slot], free: Sequence[int]) -> int:
        place_of = {slot.name: place for place, slot in enumerate(slots)}
        needed: dict[int, int] = {}
        for name, resource, count in self._held.recorded:
            place = place_of.get(resource)
            if place is None:
                return self._absent
            if name in self._meanings and slots[place].set not in self._meanings[name].sets:
                return self.refuse(unresolvable(f"ComputeResource {resource} of the pod's record doesn't match {name}"))
            needed[place] = needed.get(place, 0) + count
        short = [place for place, count in needed.items() if free[place] < count]
        if not short:
            return 0
        reasons = [f"Insufficient {slots[place].name}" for place in short]
        never = any(slots[place].capacity < needed[place] for place in short)
        return self.refuse(unresolvable(*reasons) if never else unschedulable(*reasons))

    def allocate(self, pod: Pod, row: int) -> Allocation | None:
        slots = self._ledger.slots(row)
        free, _ = self._available(pod, row, slots)
        return None if self._judge(slots, free) else self._record


def _requests_class(pod: Pod, old: Any, new: Any) -> bool:
    """Whether the pod requests the class, under its old or new name or alias, or what the devices of the class are."""
    known = [each for each in (old, new) if each is not None]
    names = {name for each in known for name in (each.name, each.alias, each.spec.resource_name)}
    return any(names.intersection(amounts) for amounts in requested(pod).values())


plugins = (ResourceClasses,)
