"""Charging pods to units: the incremental bookkeeping gives what the rule in plain words gives, whatever happens."""

from __future__ import annotations

import math
import random

import pytest

from wharfinger.systems.resource_policy.plugin.charges import Charges, Order, Units
from wharfinger.systems.resource_policy.plugin.sized import Limit, SizedCharges


def charged(pods: dict[Order, Units], limits: list[int | None]) -> dict[Order, int | None]:
    """The rule: oldest first, each to the first of its units that has room, to the first of all when none has."""
    counts = [0] * len(limits)
    found: dict[Order, int | None] = {}
    for order in sorted(pods):
        unit = None
        for candidate in pods[order]:
            limit = limits[candidate]
            if limit is None or counts[candidate] < limit:
                unit = candidate
                break
        else:
            unit = pods[order][0] if pods[order] else None
        if unit is not None:
            counts[unit] += 1
        found[order] = unit
    return found


def check(charges: Charges, pods: dict[Order, Units], limits: list[int | None]) -> None:
    wanted = charged(pods, limits)
    assert {order: charges.unit(order) for order in pods} == wanted
    counts = [sum(unit == index for unit in wanted.values()) for index in range(len(limits))]
    assert charges.counts == counts
    for index, limit in enumerate(limits):
        assert charges.has_room(index) == (limit is None or counts[index] < limit)
    assert len(charges) == len(pods)


@pytest.mark.parametrize("seed", range(150))
def test_any_history_ends_as_the_rule_says(seed: int) -> None:
    source = random.Random(seed)
    size = source.randint(1, 5)
    limits = [source.choice([None, 0, 1, 2, 3, 6]) for _ in range(size)]
    kinds: list[Units] = [tuple(source.sample(range(size), source.randint(0, size))) for _ in range(4)]
    charges, pods = Charges(limits), {}
    rooms = [charges.has_room(unit) for unit in range(size)]
    for step in range(60):
        version = charges.version
        if pods and source.random() < 0.4:
            gone = source.choice(sorted(pods))
            del pods[gone]
            charges.remove(gone)
        else:
            order = (f"2026-01-01T00:00:{source.randint(0, 9):02}Z", str(source.random()), f"pod-{step}")
            pods[order] = source.choice(kinds)
            charges.add(order, pods[order])
        check(charges, pods, limits)
        now = [charges.has_room(unit) for unit in range(size)]
        assert (charges.version != version) == (now != rooms), "the version moves with the units that are full"
        rooms = now


def test_pods_whose_charge_changed_are_told() -> None:
    charges = Charges([1, None])
    charges.add(("2", "", "young"), (0, 1))
    charges.moved = set()
    charges.add(("1", "", "old"), (0, 1))
    assert charges.moved == {("1", "", "old"), ("2", "", "young")}
    charges.moved.clear()
    charges.remove(("1", "", "old"))
    assert charges.moved == {("2", "", "young")}
    assert charges.unit(("2", "", "young")) == 0


def charged_by_size(pods: dict[Order, tuple[Units, dict[str, int]]], limits: list[Limit]) -> dict[Order, int | None]:
    """The same rule with limits by number, percent and resources."""
    found: dict[Order, int | None] = {}

    def fits(unit: int, size: dict[str, int]) -> bool:
        inside = [order for order, charged in found.items() if charged == unit]
        limit = limits[unit]
        if limit.count is not None and len(inside) >= limit.count:
            return False
        if limit.percent is not None and len(inside) + 1 > math.ceil(limit.percent * len(pods) / 100):
            return False
        return all(
            not size.get(name) or sum(pods[order][1].get(name, 0) for order in inside) + size[name] <= most
            for name, most in limit.resources.items()
        )

    for order in sorted(pods):
        units, size = pods[order]
        found[order] = next((unit for unit in units if fits(unit, size)), units[0] if units else None)
    return found


@pytest.mark.parametrize("seed", range(80))
def test_limits_of_any_kind(seed: int) -> None:
    source = random.Random(seed)
    size = source.randint(1, 4)
    limits = [
        Limit(
            source.choice([None, None, 2, 4]),
            source.choice([None, None, 0, 30, 50, 100]),
            source.choice([{}, {"cpu": 5}, {"cpu": 8, "gpu": 2}]),
        )
        for _ in range(size)
    ]
    most = source.choice([1, size])
    kinds: list[Units] = [tuple(source.sample(range(size), source.randint(0, most))) for _ in range(4)]
    charges = SizedCharges(limits)
    pods: dict[Order, tuple[Units, dict[str, int]]] = {}
    if seed % 2:
        charges.moved = set()
    units: dict[Order, int | None] = {}
    for step in range(40):
        if pods and source.random() < 0.4:
            gone = source.choice(sorted(pods))
            del pods[gone], units[gone]
            charges.remove(gone)
        else:
            order = (f"2026-01-01T00:00:{source.randint(0, 9):02}Z", str(source.random()), f"pod-{step}")
            pods[order] = (source.choice(kinds), {"cpu": source.randint(0, 3), "gpu": source.randint(0, 1)})
            charges.add(order, *pods[order])
        wanted = charged_by_size(pods, limits)
        if charges.moved is not None:
            changed = {order for order, unit in wanted.items() if order not in units or units[order] != unit}
            assert charges.moved == changed
            charges.moved.clear()
        units = wanted
        assert {order: charges.unit(order) for order in pods} == wanted
        assert charges.counts == [sum(unit == index for unit in wanted.values()) for index in range(size)]


@pytest.mark.parametrize(
    ("limit", "count", "used", "size", "total", "fits"),
    [
        (Limit(), 100, {}, {}, 101, True),
        (Limit(count=2), 1, {}, {}, 2, True),
        (Limit(count=2), 2, {}, {}, 3, False),
        (Limit(percent=40), 0, {}, {}, 1, True),
        (Limit(percent=40), 1, {}, {}, 2, False),
        (Limit(percent=40), 1, {}, {}, 3, True),
        (Limit(percent=0), 0, {}, {}, 1, False),
        (Limit(resources={"cpu": 1000}), 5, {"cpu": 600}, {"cpu": 400}, 6, True),
        (Limit(resources={"cpu": 1000}), 5, {"cpu": 600}, {"cpu": 401}, 6, False),
        (Limit(resources={"cpu": 1000}), 5, {"cpu": 2000}, {"memory": 1}, 6, True),
        (Limit(count=1, resources={"cpu": 1000}), 1, {}, {"cpu": 1}, 2, False),
    ],
)
def test_what_fits_into_a_unit(
    limit: Limit, count: int, used: dict[str, int], size: dict[str, int], total: int, fits: bool
) -> None:
    assert limit.fits(count, used, size, total) == fits


def test_charges_that_nobody_asks_for_between_changes() -> None:
    """Several changes in a row, as when a scheduler starts or bindings fail together."""
    charges = SizedCharges([Limit(None, None, {"cpu": 4}), Limit()])
    both, first, later = ("1", "", "both"), ("2", "", "first"), ("3", "", "later")
    charges.add(both, (0, 1), {"cpu": 1})
    charges.add(first, (0,), {"cpu": 1})
    charges.remove(both)
    charges.remove(first)
    charges.add(later, (0,), {"cpu": 3})
    assert charges.counts == [1, 0]
    assert charges.has_room(0, {"cpu": 1})
    assert not charges.has_room(0, {"cpu": 2})
