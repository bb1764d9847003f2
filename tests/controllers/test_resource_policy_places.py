"""The controller counts as the scheduler does: over random histories of pods, reservations and nodes, in any order, both
charge the same pods and reservations to the same units."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from tests.plugins.reservations import DOMAIN, Books, node, pod, reservation

from wharfinger.controllers.resource_policy_world import World
from wharfinger.plugins.resource_policy_book import book_of

POLICY = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {
        "podSelector": {"matchLabels": {"app": "web"}},
        "units": [
            {"name": "a", "priority": 9, "maxCount": 2, "nodeSelector": {"matchLabels": {"pool": "a"}}},
            {"name": "b", "priority": 5, "maxCount": 1, "nodeSelector": {"matchLabels": {"pool": "b"}}},
            {
                "name": "again",
                "priority": 1,
                "nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
            },
        ],
    },
}
NODES = ("n1", "n2", "n3")
NAMES = ("x", "y", "z")


class Both:
    """The scheduler's engine and the controller's world, told of the same changes."""

    def __init__(self) -> None:
        self.books, self.world = Books(), World()
        self.books.engine.apply("ResourcePolicy", POLICY)
        self.world.set_policy(None, POLICY)
        self.known: dict[tuple[str, str], Any] = {}

    def set(self, kind: str, name: str, new: Any) -> None:
        old = self.known.pop((kind, name), None)
        if new is not None:
            self.known[kind, name] = new
        if new is None and old is None:
            return
        if kind == "node":
            self.world.set_node(new, name)
            if new is None:
                self.books.engine.remove_node(name)
            else:
                self.books.add(new)
            return
        if kind == "pod":
            self.world.set_pod(old, new)
        else:
            self.world.set_reservation(old, new)
        if new is None:
            self.books.drop(old)
        else:
            self.books.add(new)

    def check(self) -> None:
        (scheduler,) = book_of(self.books.engine.tables).policies("default")
        scheduler.catch_up()
        controller = self.world.policies["default"]["p"]
        group = scheduler.counting.acquire(())
        counted = {key: group.unit(each.order) for key, each in scheduler.counting.pods.items()}
        assert counted.keys() == controller.counting.pods.keys()
        assert controller.counts() == list(group.counts)
        for key, unit in counted.items():
            assert controller.cost(key) == (-1 if unit is None else scheduler.rules.units[unit].priority)
        scheduler.counting.release(())


def any_pod(source: random.Random, name: str) -> Any:
    used = source.choice(["", *NAMES])
    note = {f"{DOMAIN}/reservation-allocated": json.dumps({"name": used, "uid": f"uid-{used}"})} if used else {}
    labels = {"app": source.choice(["web", "web", "other"])}
    return pod(name, 1, labels=labels, annotations=note, node_name=source.choice(NODES))


def any_reservation(source: random.Random, name: str) -> Any:
    template = {"metadata": {"labels": {"app": source.choice(["web", "other"])}}}
    phase = source.choice(["Available", "Available", "Waiting", "Succeeded", "Pending"])
    return reservation(name, 1, on=source.choice(NODES), phase=phase, template=template, created=source.randint(0, 9))


@pytest.mark.parametrize("seed", range(40))
def test_scheduler_and_controller_count_alike(seed: int) -> None:
    source, both = random.Random(seed), Both()
    for _ in range(60):
        kind = source.choice(["node", "pod", "pod", "reservation"])
        gone = source.random() < 0.25
        if kind == "node":
            name = source.choice(NODES)
            labels = {"pool": source.choice(["a", "b", "c"])} if source.random() < 0.8 else {}
            both.set(kind, name, None if gone else node(name, **labels))
        else:
            name = source.choice(NAMES)
            make = any_pod if kind == "pod" else any_reservation
            both.set(kind, name, None if gone else make(source, name))
        both.check()
