"""What pods ask for and hold of devices, and what that leaves free on one node. Knows no tables and no shapes.

Truth is the record: a device that a pod's record names is taken, whatever classes mean by now. A pod without a record (one
that somebody else bound) is taken to hold what the choice of devices would give it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.api.quantity import value
from wharfinger.api.resources import Amounts, add_amounts, sum_containers
from wharfinger.api.views import Node, Pod
from wharfinger.api.views.nodes import ComputeResource
from wharfinger.systems.resource_class.plugin.catalogue import Catalogue, Meaning
from wharfinger.systems.resource_class.rules.assigning import Demand, assign
from wharfinger.systems.resource_class.rules.compute_resources import (
    OVERLAID,
    Allocation,
    BadRecord,
    capacity,
    compute_resource_name,
    device_requests,
    named,
    overlaid_requests,
    recorded,
)


@dataclass(slots=True)
class Slot:
    """A ComputeResource of a node."""

    name: str
    raw: str
    set: int  # the number of its properties in the catalogue
    capacity: int  # healthy devices
    free: int = 0
    column: int = 0  # its place among the slots of the raw resource
    classic: bool = False  # made of the node's capacity, not published


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pod holds."""

    recorded: tuple[tuple[str, str, int], ...] = ()  # (name as asked for, ComputeResource, devices)
    unrecorded: tuple[tuple[str, int], ...] = ()  # (name as asked for, amount as asked for)
    reserves: str = ""  # for the stand-in of a reservation: the uid of the reservation
    uses: str = ""  # for a pod that uses a reservation: its uid

    def __bool__(self) -> bool:
        return bool(self.recorded or self.unrecorded)


NOTHING = Holding()


def requested(pod: Pod) -> dict[str, Amounts]:
    """By container what it asks for, in the order of the pod; containers that ask for no devices are left out."""
    spec = pod.spec
    every = spec.containers if not spec.init_containers else (*spec.init_containers, *spec.containers)
    found = {each.name: amounts for each in every if (amounts := device_requests(each))}
    if OVERLAID in pod.metadata.annotations:
        for container, raws in overlaid_requests(pod).items():
            amounts = found.get(container, {})
            for raw, amount in raws.items():
                if amounts.get(raw, 0) > amount:
                    amounts[raw] -= amount
                else:
                    amounts.pop(raw, None)
    return found


def effective(pod: Pod, by_container: Mapping[str, Mapping[str, int]]) -> Amounts:
    """What the pod needs at once, given what its containers need."""
    return sum_containers(pod.spec, lambda container: by_container.get(container.name, {}))


def holding(pod: Pod) -> Holding:
    """What a pod holds by its record; what that does not tell is unrecorded."""
    try:
        record = recorded(pod)
    except BadRecord:
        record = None
    return held_by(pod, record)


def held_by(pod: Pod, record: Allocation | None, asked: Mapping[str, Amounts] | None = None) -> Holding:
    """What a record means for the pod as a whole; `asked` is what `requested` says, where that is known."""
    asked = requested(pod) if asked is None else asked
    if not asked and not record:
        return NOTHING
    if record and len(asked) == 1 and asked.keys() == record.keys():
        # The common case: one container with devices, so that nothing is shared.
        (names,) = record.values()
        (amounts,) = asked.values()
        parts = tuple((name, each, count) for name, counts in names.items() for each, count in counts.items())
        return Holding(parts, tuple((name, amount) for name, amount in amounts.items() if name not in names))
    wanted = effective(pod, asked)
    if not record:
        return Holding(unrecorded=tuple(wanted.items()))
    # Counted a name and ComputeResource at a time, so that what containers share one after the other counts once.
    flat = {
        container: {(name, resource): count for name, counts in names.items() for resource, count in counts.items()}
        for container, names in record.items()
    }
    keys = {key for counts in flat.values() for key in counts}
    numbered = {key: f"{index}" for index, key in enumerate(sorted(keys))}
    held = effective(pod, {c: {numbered[key]: count for key, count in counts.items()} for c, counts in flat.items()})
    parts = tuple((*key, held.get(number, 0)) for key, number in numbered.items() if held.get(number))
    told = {name for name, _, _ in parts}
    return Holding(parts, tuple((name, amount) for name, amount in wanted.items() if name not in told))


def spread_over_containers(
    pod: Pod, asked: Mapping[str, Amounts], pools: Mapping[str, Mapping[str, int]], units: Mapping[str, int]
) -> Allocation:
    """The record: each container's share of what the pod was given for a name.

    Containers that run together get different devices; an init container uses those that come into use after it.
    """
    if len(asked) == 1:
        (container,) = asked
        return {container: {name: dict(counts) for name, counts in pools.items()}}
    queues = {name: [r for r, count in counts.items() for _ in range(count)] for name, counts in pools.items()}
    taken: Amounts = {}
    record: Allocation = {}

    def take(container: str, start: Mapping[str, int]) -> None:
        for name, amount in asked.get(container, {}).items():
            if name in queues:
                first = start.get(name, 0)
                counts = record.setdefault(container, {}).setdefault(name, {})
                for resource in queues[name][first : first + amount * units.get(name, 1)]:
                    counts[resource] = counts.get(resource, 0) + 1

    for each in pod.spec.init_containers:
        take(each.name, taken)
        if each.restart_policy == "Always":
            add_amounts(taken, {n: a * units.get(n, 1) for n, a in asked.get(each.name, {}).items()})
    for each in pod.spec.containers:
        take(each.name, taken)
        add_amounts(taken, {n: a * units.get(n, 1) for n, a in asked.get(each.name, {}).items()})
    return record


def slots_of(node: Node, resources: Iterable[ComputeResource], catalogue: Catalogue) -> list[Slot]:
    """The node's ComputeResources by name. Classic capacity is one without properties, where no other tells of the raw
    name; the numbers of properties are counted as used."""
    slots = [
        Slot(name, each.resource_name, catalogue.number(each.resource_name, each.properties), capacity(each))
        for name, each in named(resources)
    ]
    told = {slot.raw for slot in slots}
    for raw, quantity in node.status.allocatable.items():
        if raw not in told and raw in catalogue.raws() and (amount := value(quantity)) > 0:
            number = catalogue.number(raw, {}, classic=True)
            slots.append(Slot(compute_resource_name(raw, {}), raw, number, amount, classic=True))
    slots.sort(key=lambda slot: slot.name)
    return slots


def choice(slots: Sequence[Slot], meaning: Meaning, catalogue: Catalogue) -> tuple[int, ...]:
    """The places of matching slots, those that the fewest classes claim first, then by name."""
    places = [place for place, slot in enumerate(slots) if slot.set in meaning.sets]
    if len(places) > 1:
        places.sort(key=lambda place: catalogue.rank(slots[place].set))  # slots are sorted by name already
    return tuple(places)


def demand(slots: Sequence[Slot], name: str, amount: int, meaning: Meaning, catalogue: Catalogue) -> Demand:
    places = choice(slots, meaning, catalogue)
    if meaning.group_size == 1:
        return Demand(name, amount, places)
    values = []
    for place in places:
        found = catalogue.sets[slots[place].set]
        assert found is not None
        values.append(found.properties[meaning.group_by])
    return Demand(name, amount, places, meaning.group_size, tuple(values))


@dataclass(slots=True)
class DeviceUse:
    """What is left of each slot, and who has the rest: (pod, name as asked for, place, devices)."""

    free: list[int]
    taken: list[tuple[tuple[str, str], str, int, int]] = field(default_factory=list)


def use(slots: Sequence[Slot], holders: Mapping[tuple[str, str], Holding], catalogue: Catalogue) -> DeviceUse:
    """What the holders leave. The same whatever order they came in, so that a restart finds the same."""
    made = DeviceUse([slot.capacity for slot in slots])
    if not holders:
        return made
    place_of = {slot.name: place for place, slot in enumerate(slots)}
    used_up = consumed(holders)
    unplaced: list[tuple[tuple[str, str], str, int, bool]] = []
    for key in sorted(holders):
        held = holders[key]
        for name, resource, count in left_of(held, used_up) if held.reserves in used_up else held.recorded:
            place = place_of.get(resource)
            if place is None:
                unplaced.append((key, name, count, True))
            else:
                made.free[place] -= count
                made.taken.append((key, name, place, count))
        unplaced += [(key, name, amount, False) for name, amount in held.unrecorded]
    made.free = [max(amount, 0) for amount in made.free]
    for key, name, amount, lost in unplaced:
        _place(made, slots, catalogue, key, name, amount, lost=lost)
    return made


def consumed(holders: Mapping[tuple[str, str], Holding]) -> dict[str, Amounts]:
    """By uid of a reservation: how many devices of which ComputeResource its users hold."""
    found: dict[str, Amounts] = {}
    for held in holders.values():
        if held.uses:
            amounts = found.setdefault(held.uses, {})
            for _, resource, count in held.recorded:
                amounts[resource] = amounts.get(resource, 0) + count
    return found


def left_of(reserving: Holding, used_up: Mapping[str, Amounts]) -> list[tuple[str, str, int]]:
    """What a reservation still keeps: its record without what its users hold."""
    taken = dict(used_up.get(reserving.reserves, {}))
    left = []
    for name, resource, count in reserving.recorded:
        part = min(count, taken.get(resource, 0))
        if part:
            taken[resource] -= part
        if count > part:
            left.append((name, resource, count - part))
    return left


def _place(
    made: DeviceUse,
    slots: Sequence[Slot],
    catalogue: Catalogue,
    key: tuple[str, str],
    name: str,
    amount: int,
    *,
    lost: bool,
) -> None:
    """Takes what a pod must have somewhere: of what it asked for, or, where a record names what the node no longer has, of
    the raw resource. What there is not enough of takes what there is."""
    meaning = catalogue.meaning(name)
    if meaning is None or meaning.per_cluster:
        return
    if lost:
        meaning = catalogue.meaning(meaning.raw) or meaning
    wanted = demand(slots, name, amount, meaning, catalogue)
    given = assign([wanted], made.free)
    if given is None:
        left = amount * wanted.size
        given = [{}]
        for place in wanted.places:
            part = min(left, made.free[place])
            if part:
                given[0][place] = part
                left -= part
    for place, count in given[0].items():
        made.free[place] -= count
        made.taken.append((key, name, place, count))
