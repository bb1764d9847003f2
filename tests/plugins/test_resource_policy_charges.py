"""Charging pods to units: the incremental bookkeeping gives what the rule in plain words gives, whatever happens."""

from __future__ import annotations

import random

import pytest

from wharfinger.plugins.resource_policy_charges import Charges, Order, Units


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
