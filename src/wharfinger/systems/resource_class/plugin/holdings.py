"""The devices that pods request and hold, and what that leaves free on one node. Independent of the scheduler's tables.

The record is authoritative: a device in a pod's record is in use, even if its class has changed since. But it is never
worth more than the pod's requests, whoever wrote it. A pod without a record (bound by another scheduler) is assumed to
hold the devices that this scheduler would have given it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

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


class Slot(msgspec.Struct):
    """A ComputeResource of a node, with its free devices."""

    name: str
    raw: str
    set: int  # number of its property set in the catalogue
    capacity: int  # healthy devices
    devices: int = 0  # all devices
    free: int = 0
    column: int = 0  # index among the node's slots of the same raw resource
    classic: bool = False  # classic node capacity, not published by a device agent


class Holding(msgspec.Struct, frozen=True):
    """The devices that one pod holds."""

    recorded: tuple[tuple[str, str, int], ...] = ()  # (requested name, ComputeResource, devices)
    unrecorded: tuple[tuple[str, int], ...] = ()  # (requested name, requested amount)
    doubtful: tuple[tuple[str, int], ...] = ()  # (requested name, amount) where the record differs from the request
    reserves: str = ""  # of a reservation's stand-in: the UID of the reservation
    uses: str = ""  # of a pod that consumes a reservation: the UID of the reservation

    def __bool__(self) -> bool:
        return bool(self.recorded or self.unrecorded)


NOTHING = Holding()

Unit = Callable[[str], int | None]
"""Devices per requested unit of a name: 0 if it stands for no devices of nodes, None if it is not known."""


def requested(pod: Pod) -> dict[str, Amounts]:
    """Device requests by container, in pod order, without containers that request no devices."""
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
    """The pod's effective request, from the requests of its containers: init containers run one after another."""
    return sum_containers(pod.spec, lambda container: by_container.get(container.name, {}))


def holding(pod: Pod) -> Holding:
    """The devices that a pod holds according to its record; requests missing from the record are `unrecorded`."""
    try:
        record = recorded(pod)
    except BadRecord:
        record = None
    return held_by(pod, record)


def held_by(pod: Pod, record: Allocation | None, asked: Mapping[str, Amounts] | None = None) -> Holding:
    """The devices that a pod with this record holds. `asked` is the result of `requested`, if the caller has it."""
    asked = requested(pod) if asked is None else asked
    if not asked and not record:
        return NOTHING
    if record and len(asked) == 1 and asked.keys() == record.keys():
        # Fast path: a single container has devices, so nothing is shared between containers.
        (names,) = record.values()
        (amounts,) = asked.values()
        parts = tuple(
            (name, each, count) for name, counts in names.items() if name in amounts for each, count in counts.items()
        )
        return _holding(parts, amounts)
    wanted = effective(pod, asked)
    if not record:
        return Holding(unrecorded=tuple(wanted.items()))
    # Sum per name and ComputeResource, so that devices that containers use one after another count once.
    flat = {
        container: {(name, resource): count for name, counts in names.items() for resource, count in counts.items()}
        for container, names in record.items()
    }
    keys = {key for counts in flat.values() for key in counts}
    numbered = {key: f"{index}" for index, key in enumerate(sorted(keys))}
    held = effective(pod, {c: {numbered[key]: count for key, count in counts.items()} for c, counts in flat.items()})
    parts = tuple((*key, held[number]) for key, number in numbered.items() if key[0] in wanted and held.get(number, 0))
    return _holding(parts, wanted)


def _holding(parts: tuple[tuple[str, str, int], ...], wanted: Mapping[str, int]) -> Holding:
    told: Amounts = {}
    for name, _, count in parts:
        told[name] = told.get(name, 0) + count
    return Holding(
        parts,
        tuple((name, amount) for name, amount in wanted.items() if name not in told),
        tuple((name, amount) for name, amount in wanted.items() if told.get(name, amount) != amount),
    )


def settled(held: Holding, unit: Unit) -> Holding:
    """The holding without doubtful parts: as many devices as the requests are worth.

    Records of classes with device groups have more devices than units, so it takes the classes to tell. While a class
    is not known, its record counts as far as it has whole units.
    """
    if not held.doubtful:
        return held
    worth, missing = {}, list(held.unrecorded)
    for name, amount in held.doubtful:
        told = sum(count for each, _, count in held.recorded if each == name)
        size = unit(name)
        worth[name] = told // amount * amount if size is None else amount * size
        if size and told < worth[name]:
            missing.append((name, amount - told // size))
    parts = []
    for name, resource, count in held.recorded:
        left = worth.get(name, count)
        if name in worth:
            worth[name] = max(left - count, 0)
        if left > 0:
            parts.append((name, resource, min(count, left)))
    return replace(held, recorded=tuple(parts), unrecorded=tuple(missing), doubtful=())


def record_fault(pod: Pod, record: Allocation, asked: Mapping[str, Amounts], unit: Unit) -> str:
    """How the record differs from the pod's requests; empty if it doesn't."""
    for container in sorted({*record, *asked}):
        counts = {name: sum(given.values()) for name, given in record.get(container, {}).items()}
        amounts = asked.get(container, {})
        for name in sorted({*counts, *amounts}):
            count, amount, size = counts.get(name, 0), amounts.get(name, 0), unit(name)
            wanted = amount * size if size is not None else count if amount and count % amount == 0 else amount
            if count != wanted:
                return f"the pod's record gives container {container} {count} of {name}, which asks for {wanted}"
    for name, amount in held_by(pod, record, asked).doubtful:
        size, held = unit(name), sum(count for each, _, count in held_by(pod, record, asked).recorded if each == name)
        if size and held != amount * size:
            return f"the pod's record gives it {held} of {name} at a time, and it asks for {amount * size}"
    return ""


def spread_over_containers(
    pod: Pod, asked: Mapping[str, Amounts], pools: Mapping[str, Mapping[str, int]], units: Mapping[str, int]
) -> Allocation:
    """Divides the pod's devices for each name (`pools`) among its containers and returns the record.

    Containers that run at the same time get different devices. Init containers reuse the devices of the containers that
    start after them.
    """
    if len(asked) == 1:
        (container,) = asked
        return {container: {name: dict(counts) for name, counts in pools.items()}}
    taken: Amounts = {}
    record: Allocation = {}

    def take(container: str, start: Mapping[str, int]) -> None:
        for name, amount in asked.get(container, {}).items():
            if name in pools:
                given = _cut(pools[name], start.get(name, 0), amount * units.get(name, 1))
                record.setdefault(container, {})[name] = given

    for each in pod.spec.init_containers:
        take(each.name, taken)
        if each.restart_policy == "Always":
            add_amounts(taken, {n: a * units.get(n, 1) for n, a in asked.get(each.name, {}).items()})
    for each in pod.spec.containers:
        take(each.name, taken)
        add_amounts(taken, {n: a * units.get(n, 1) for n, a in asked.get(each.name, {}).items()})
    return record


def _cut(pool: Mapping[str, int], first: int, count: int) -> dict[str, int]:
    """So many of a pool's devices in its order, without the first ones."""
    given: dict[str, int] = {}
    for resource, has in pool.items():
        part = min(max(has - first, 0), count)
        first = max(first - has, 0)
        count -= part
        if part:
            given[resource] = part
    return given


def slots_of(node: Node, resources: Iterable[ComputeResource], catalogue: Catalogue) -> list[Slot]:
    """The node's ComputeResources, sorted by name, each holding a reference to its property set.

    Classic node capacity becomes a slot without properties if no ComputeResource of that raw resource is published.
    """
    slots = [
        Slot(
            name,
            each.resource_name,
            catalogue.number(each.resource_name, each.properties),
            capacity(each),
            len(set(each.devices)),
        )
        for name, each in named(resources)
    ]
    told = {slot.raw for slot in slots}
    for raw, quantity in node.status.allocatable.items():
        if raw not in told and raw in catalogue.raws() and (amount := value(quantity)) > 0:
            number = catalogue.number(raw, {}, classic=True)
            slots.append(Slot(compute_resource_name(raw, {}), raw, number, amount, amount, classic=True))
    slots.sort(key=lambda slot: slot.name)
    return slots


def choice(slots: Sequence[Slot], meaning: Meaning, catalogue: Catalogue) -> tuple[int, ...]:
    """Indices of the matching slots in order of preference: lowest rank first, then by name."""
    places = [place for place, slot in enumerate(slots) if slot.set in meaning.sets]
    if len(places) > 1:
        places.sort(key=lambda place: catalogue.rank(slots[place].set))  # stable: slots are sorted by name
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


def free_units(slots: Sequence[Slot], free: Sequence[int], meaning: Meaning, catalogue: Catalogue) -> int:
    """Whole units of a name that are free, given the free devices by slot: a unit takes devices of one group."""
    wanted = demand(slots, meaning.name, 1, meaning, catalogue)
    groups: dict[str, int] = {}
    for index, place in enumerate(wanted.places):
        group = wanted.values[index] if wanted.values else ""
        groups[group] = groups.get(group, 0) + max(free[place], 0)
    return sum(devices // wanted.size for devices in groups.values())


class DeviceUse(msgspec.Struct):
    """Free devices by slot, and the ones in use as (pod, requested name, slot index, devices)."""

    free: list[int]
    taken: list[tuple[tuple[str, str], str, int, int]] = msgspec.field(default_factory=list)


def use(slots: Sequence[Slot], holders: Mapping[tuple[str, str], Holding], catalogue: Catalogue) -> DeviceUse:
    """Computes what the pods leave free. Independent of their order, so a restarted scheduler gets the same result."""
    made = DeviceUse([slot.capacity for slot in slots])
    if not holders:
        return made
    holders = all_settled(holders, catalogue)
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


def all_settled(holders: Mapping[tuple[str, str], Holding], catalogue: Catalogue) -> Mapping[tuple[str, str], Holding]:
    if not any(held.doubtful for held in holders.values()):
        return holders
    return {key: settled(held, catalogue.unit) for key, held in holders.items()}


def consumed(holders: Mapping[tuple[str, str], Holding]) -> dict[str, Amounts]:
    """Devices by ComputeResource that the consumers of each reservation hold, by reservation UID."""
    found: dict[str, Amounts] = {}
    for held in holders.values():
        if held.uses:
            amounts = found.setdefault(held.uses, {})
            for _, resource, count in held.recorded:
                amounts[resource] = amounts.get(resource, 0) + count
    return found


def left_of(reserving: Holding, used_up: Mapping[str, Amounts]) -> list[tuple[str, str, int]]:
    """What a reservation still holds: its record minus the devices of its consumers."""
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
    """Assigns slots to devices whose ComputeResource is unknown.

    With `lost` (the recorded ComputeResource is gone from the node) any devices of the raw resource are taken instead.
    If there are too few, all that are left are taken.
    """
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
