"""The pools of devices that a node can use.

A pool counts with its newest generation. One of which slices are missing is incomplete, one that contradicts itself is
invalid; no device of either is allocated. Pools come by driver and name, those with binding conditions last, and the slices
of a pool by name: the search takes the first devices that fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from wharfinger.api.views import Node
from wharfinger.devices.slices import Counters, Device, PoolID, Slice


class PoolError(Exception):
    """The pools of a node cannot be determined."""


class CandidateDevice(NamedTuple):
    """A device that may be chosen."""

    pool: Pool
    slice: Slice
    device: Device


class Pool:
    """A pool as some nodes see it. Nodes that can use the same slices share one."""

    __slots__ = ("candidates", "counter_sets", "elsewhere", "id", "incomplete", "invalid", "version")

    def __init__(
        self,
        id: PoolID,
        slices: Sequence[Slice] = (),
        elsewhere: Sequence[Slice] = (),
        counter_sets: Mapping[str, Counters] | None = None,
        *,
        incomplete: bool = False,
        invalid: str = "",
    ) -> None:
        self.id = id
        self.version = 0  # moves when its devices are taken or given back
        self.candidates = [CandidateDevice(self, each, device) for each in slices for device in each.devices]
        self.elsewhere = elsewhere  # slices with devices for other nodes
        self.counter_sets = counter_sets or {}
        self.incomplete = incomplete
        self.invalid = invalid  # why, if it is

    @property
    def devices(self) -> Iterator[tuple[Slice, Device]]:
        return ((each.slice, each.device) for each in self.candidates)

    @property
    def usable(self) -> bool:
        return not self.incomplete and not self.invalid


Views = dict[tuple[str, ...], Pool | None]
"""A pool as nodes see it, by the names of the slices that they can use."""


def gather_pools(
    node: Node,
    slices: Iterable[Slice],
    of_pool: Mapping[PoolID, Sequence[Slice]],
    views: dict[PoolID, Views] | None = None,
) -> list[Pool]:
    """The pools of a node. `slices` are those that may concern it; `of_pool` has all slices. What was found for another
    node with the same slices is taken from `views`. Raises PoolError."""
    found: dict[PoolID, list[Slice]] = {}
    for each in sorted(slices, key=lambda each: each.name):
        if each.grouped:
            continue
        if fault := each.fault():
            raise PoolError(f"gather pool information: {fault}")
        if not each.concerns(node):
            continue
        known = found.get(each.pool)
        if known is None or each.generation > known[0].generation:
            found[each.pool] = [each]
        elif each.generation == known[0].generation:
            known.append(each)
    pools: list[Pool] = []
    late: list[Pool] = []
    for id in sorted(found):
        seen: Views = {} if views is None else views.setdefault(id, {})
        names = tuple(each.name for each in found[id])
        if names not in seen:
            seen[names] = _pool(id, found[id], of_pool.get(id, ()))
        pool = seen[names]
        if pool is not None:
            (late if _has_binding_conditions(pool) else pools).append(pool)
    return pools + late


def _pool(id: PoolID, targeting: list[Slice], every: Sequence[Slice]) -> Pool | None:
    """None if the driver is replacing the pool by a generation that has nothing for this node."""
    if len(targeting) == targeting[0].slice_count:
        return _checked(id, targeting, ())
    generation = targeting[0].generation
    if any(each.generation > generation for each in every):
        return None
    current = [each for each in every if each.generation == generation and not each.grouped]
    if len(current) != targeting[0].slice_count:
        return Pool(id, incomplete=True)
    names = {each.name for each in targeting}
    return _checked(id, targeting, [each for each in current if each.name not in names])


def _checked(id: PoolID, targeting: Sequence[Slice], others: Sequence[Slice]) -> Pool:
    offering = [each for each in targeting if not each.counter_sets]
    elsewhere = [each for each in others if not each.counter_sets]
    names: set[str] = set()
    for each in offering:
        for device in each.devices:
            if device.name in names:
                return Pool(id, invalid=f"duplicate device name {device.name}")
            names.add(device.name)
    counter_sets: dict[str, Counters] = {}
    for each in (*targeting, *others):
        for name, counters in each.counter_sets:
            if name in counter_sets:
                return Pool(id, invalid=f"duplicate counter set name {name}")
            counter_sets[name] = counters
    for each in (*offering, *elsewhere):
        for device in each.devices:
            for name, consumed in device.consumes:
                if name not in counter_sets:
                    return Pool(id, invalid=f"counter set {name} not found")
                for counter in consumed:
                    if counter not in counter_sets[name]:
                        return Pool(id, invalid=f"counter {counter} not found in counter set {name}")
    return Pool(id, offering, elsewhere, counter_sets)


def _has_binding_conditions(pool: Pool) -> bool:
    return any(device.binding_conditions is not None for _, device in pool.devices)
