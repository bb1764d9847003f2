"""Assigns the devices of one node to all requests of a pod together.

A request can be served by several ComputeResources. It takes those with the lowest rank first, as long as the pod's
other requests can still be met. That is decided exactly, as a maximum-flow problem.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

GROUPINGS = 4096  # distributions of groups to try before giving up


class Demand(msgspec.Struct, frozen=True):
    """A number of devices wanted from the ComputeResources at these indices, in order of preference.

    With a group size, the amount counts units, and all devices of a unit come from places with the same value.
    """

    name: str
    amount: int
    places: tuple[int, ...]
    size: int = 1
    values: tuple[str, ...] = ()  # of the groupBy property, by place


Part = tuple[int, tuple[int, ...]]
"""A number of devices, and the places they can come from."""


def fits(demands: Sequence[Demand], free: Sequence[int]) -> bool:
    return _divided(demands, free) is not None


def assign(demands: Sequence[Demand], free: Sequence[int]) -> list[dict[int, int]] | None:
    """The number of devices from each place, by demand; None if the demands cannot all be met."""
    if len(demands) == 1 and demands[0].size == 1:
        return _assign_one(demands[0], free)
    order = sorted(range(len(demands)), key=lambda index: (len(demands[index].places), demands[index].name))
    divided = _divided([demands[index] for index in order], free)
    if divided is None:
        return None
    parts = [(owner, part) for owner, own in zip(order, divided, strict=True) for part in own]
    left = list(free)
    given: list[dict[int, int]] = [{} for _ in demands]
    for position, (owner, (amount, places)) in enumerate(parts):
        later = [part for _, part in parts[position + 1 :]]
        for index, place in enumerate(places):
            if not amount:
                break
            taken = _most_from(amount, places[index + 1 :], place, later, left)
            if taken:
                left[place] -= taken
                amount -= taken
                given[owner][place] = given[owner].get(place, 0) + taken
    return given


def _assign_one(demand: Demand, free: Sequence[int]) -> list[dict[int, int]] | None:
    given: dict[int, int] = {}
    missing = demand.amount
    for place in demand.places:
        taken = min(missing, free[place])
        if taken > 0:
            given[place] = taken
            missing -= taken
            if not missing:
                return [given]
    return None if missing else [given]


def _most_from(amount: int, others: tuple[int, ...], place: int, later: list[Part], left: list[int]) -> int:
    """The most that can be taken from a place while the rest of this part and all later parts can still be met."""
    most = min(amount, left[place])
    if not later:
        return most
    met = _meet([(amount, (place, *others)), *later], left)
    assert met is not None  # parts before this one left enough for all
    # What can be taken is a range of numbers, since flows can be mixed. So its end is found by bisection.
    possible, impossible = met[0].get(place, 0), most + 1
    while impossible - possible > 1:
        taken = (possible + impossible) // 2
        left[place] -= taken
        if _can_meet([(amount - taken, others), *later], left):
            possible = taken
        else:
            impossible = taken
        left[place] += taken
    return possible


def _divided(demands: Sequence[Demand], free: Sequence[int]) -> list[list[Part]] | None:
    """Splits demands into parts that can all be met together: one part per demand, or one per group value."""
    plain = [(demand.amount * demand.size, demand.places) for demand in demands]
    if not _can_meet(plain, free):
        return None
    if all(demand.size == 1 for demand in demands):
        return [[part] for part in plain]
    for divided in islice(_groupings(demands, free), GROUPINGS):
        if _can_meet([part for own in divided for part in own], free):
            return divided
    return None


def _groupings(demands: Sequence[Demand], free: Sequence[int]) -> Iterator[list[list[Part]]]:
    if not demands:
        yield []
        return
    first = demands[0]
    for own in _spread(first, free):
        for rest in _groupings(demands[1:], free):
            yield [own, *rest]


def _spread(demand: Demand, free: Sequence[int]) -> Iterator[list[Part]]:
    """Yields the ways to distribute a demand's units over group values, preferred values first."""
    if demand.size == 1:
        yield [(demand.amount, demand.places)]
        return
    by_value: dict[str, list[int]] = {}
    for place, value in zip(demand.places, demand.values, strict=True):
        by_value.setdefault(value, []).append(place)
    pools = [tuple(places) for places in by_value.values()]
    room = [sum(max(free[place], 0) for place in pool) // demand.size for pool in pools]

    def spread(index: int, units: int) -> Iterator[list[Part]]:
        if not units:
            yield []
            return
        if index == len(pools) or sum(room[index:]) < units:
            return
        for here in range(min(units, room[index]), -1, -1):
            for rest in spread(index + 1, units - here):
                yield [(here * demand.size, pools[index]), *rest] if here else rest

    yield from spread(0, demand.amount)


def _can_meet(parts: Sequence[Part], free: Sequence[int]) -> bool:
    """Whether all parts can be met together: maximum flow from parts to places, by augmenting paths."""
    if len(parts) == 1:
        amount, places = parts[0]
        return sum(free[place] for place in places) >= amount
    return _meet(parts, free) is not None


def _meet(parts: Sequence[Part], free: Sequence[int]) -> list[dict[int, int]] | None:
    """What each part takes from each place; None if the parts cannot be met together."""
    left = list(free)
    holds: list[dict[int, int]] = [{} for _ in parts]
    for index, (amount, places) in enumerate(parts):
        for place in places:
            taken = min(amount, left[place])
            if taken > 0:
                left[place] -= taken
                holds[index][place] = taken
                amount -= taken
        while amount > 0:
            pushed = _augment(index, amount, parts, holds, left)
            if not pushed:
                return None
            amount -= pushed
    return holds


def _augment(start: int, amount: int, parts: Sequence[Part], holds: list[dict[int, int]], left: list[int]) -> int:
    """Finds an augmenting path for one part, moving others to different places. Returns the amount gained."""
    reached_by: dict[int, tuple[int, int]] = {}  # place → (part that takes it, place that part gives up or -1)
    queue = deque([(start, -1)])
    seen = {start}
    while queue:
        part, through = queue.popleft()
        for place in parts[part][1]:
            if place in reached_by:
                continue
            reached_by[place] = (part, through)
            if left[place] > 0:
                return _push(start, place, amount, reached_by, holds, left)
            for other, held in enumerate(holds):
                if held.get(place) and other not in seen:
                    seen.add(other)
                    queue.append((other, place))
    return 0


def _push(
    start: int,
    end: int,
    amount: int,
    reached_by: dict[int, tuple[int, int]],
    holds: list[dict[int, int]],
    left: list[int],
) -> int:
    path: list[tuple[int, int, int]] = []  # (part, place given up, place taken), last first
    place = end
    while True:
        part, through = reached_by[place]
        path.append((part, through, place))
        if part == start:
            break
        place = through
    pushed = min(amount, left[end], *(holds[part][through] for part, through, _ in path if through >= 0))
    left[end] -= pushed
    for part, through, place in path:
        if through >= 0:
            holds[part][through] -= pushed
        holds[part][place] = holds[part].get(place, 0) + pushed
    return pushed
