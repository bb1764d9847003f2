"""The controller counts as the scheduler does: over random histories of pods, reservations and nodes, in any order, both
charge the same pods and reservations to the same units."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from tests.systems.reservation.reservations import DOMAIN, Books, node, pod, reservation

from wharfinger.api.views import Pod
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.reservations import allocation_of, template_of
from wharfinger.systems.reservation.scheduling.items import ReservationItems
from wharfinger.systems.resource_policy.controllers.cache import PolicyCache
from wharfinger.systems.resource_policy.plugin.book import book_of

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
BY_REVISION: dict[str, Any] = {"metadata": POLICY["metadata"], "spec": {**POLICY["spec"], "matchLabelKeys": ["rev"]}}
BY_SIZE: dict[str, Any] = {
    "metadata": POLICY["metadata"],
    "spec": {
        **BY_REVISION["spec"],
        "units": [
            {"name": "a", "priority": 9, "maxCount": 3, "nodeSelector": {"matchLabels": {"pool": "a"}}},
            {
                "name": "b",
                "priority": 5,
                "maxResources": {"cpu": "4"},
                "nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["b", "c"]}]},
            },
        ],
    },
}
NODES = ("n1", "n2", "n3")
NAMES = ("x", "y", "z")


class Both:
    """The scheduler's engine and the controller's world, told of the same changes."""

    def __init__(self, policy: dict[str, Any] = POLICY) -> None:
        self.books, self.world = Books(), PolicyCache((ReservationItems,))
        self.books.engine.apply("ResourcePolicy", policy)
        self.world.set_policy(None, policy)
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
            self.world.set_schedulable(ReservationItems, old, new)
        if new is None:
            self.books.drop(old)
        else:
            self.books.add(new)

    def check(self) -> None:
        (scheduler,) = book_of(self.books.engine.tables).policies("default")
        scheduler.catch_up()
        controller = self.world.policies["default"]["p"]
        pods = scheduler.counting.pods
        assert pods.keys() == controller.counting.pods.keys()
        totals = [0] * len(scheduler.rules.units)
        for signature in {each.signature for each in pods.values()}:
            group = scheduler.counting.acquire(signature)
            for key, each in pods.items():
                share = each.share(signature)
                if each.signature == signature and share is None:
                    assert controller.cost(key) is None
                elif each.signature == signature and share is not None:
                    unit = group.unit(each.order)
                    assert controller.cost(key) == (-1 if unit is None else scheduler.rules.units[unit].priority)
                    if unit is not None:
                        totals[unit] += share[1]
            scheduler.counting.release(signature)
        assert controller.counts() == totals

    def check_places(self) -> None:
        """By the rule in plain words, for each group by itself: of a reservation and its users in the group, the users
        count, and the reservation only where there is none; in size it counts with what its users leave over."""
        (scheduler,) = book_of(self.books.engine.tables).policies("default")
        pools = {
            name: pool
            for (kind, name), each in self.known.items()
            if kind == "node" and (pool := each.metadata.labels.get("pool"))
        }
        pods = [each for (kind, _), each in self.known.items() if kind == "pod" and each.spec.node_name in pools]
        reservations = [each for (kind, _), each in self.known.items() if kind == "reservation" and each.holds]
        for rev in ("1", "2", None):
            group = scheduler.counting.acquire((rev,))
            inside = [each for each in pods if _in_group(each.metadata.labels, rev)]
            held = [(1, 1, pools[each.spec.node_name]) for each in inside]  # places, cpu and pool of each
            for each in reservations:
                on = each.status.node_name
                if on in pools and _in_group(template_of(each).metadata.labels, rev):
                    users = sum(_user_of(each, pod) for pod in inside)
                    held.append((not users, max(3 - users, 0), pools[on]))
            assert sum(group.counts) == sum(places for places, _, _ in held)
            if scheduler.rules.sized:
                used = sum(cpu for _, cpu, pool in held if pool != "a")
                rooms = [group.has_room(1, {"cpu": cpu * 1000}) for cpu in range(1, 5)]
                assert rooms == [used + cpu <= 4 for cpu in range(1, 5)]
            scheduler.counting.release((rev,))


def _in_group(labels: Mapping[str, str], rev: str | None) -> bool:
    return labels["app"] == "web" and rev in (None, labels.get("rev"))


def _user_of(reservation: Reservation, pod: Pod) -> bool:
    record = allocation_of(pod.metadata)
    return (
        record is not None
        and record.uid == reservation.metadata.uid
        and pod.spec.node_name == reservation.status.node_name
    )


def any_pod(source: random.Random, name: str) -> Any:
    used = source.choice(["", *NAMES])
    note = {f"{DOMAIN}/reservation-allocated": json.dumps({"name": used, "uid": f"uid-{used}"})} if used else {}
    labels = {"app": source.choice(["web", "web", "other"]), **source.choice([{"rev": "1"}, {"rev": "2"}, {}])}
    return pod(name, 1, labels=labels, annotations=note, node_name=source.choice(NODES))


def any_reservation(source: random.Random, name: str) -> Any:
    revision = source.choice([{"rev": "1"}, {"rev": "2"}, {}])
    template = {"metadata": {"labels": {"app": source.choice(["web", "other"]), **revision}}}
    phase = source.choice(["Available", "Available", "Waiting", "Succeeded", "Pending"])
    return reservation(name, 3, on=source.choice(NODES), phase=phase, template=template, created=source.randint(0, 9))


@pytest.mark.parametrize("policy", [POLICY, BY_REVISION, BY_SIZE], ids=["one group", "by revision", "by size"])
@pytest.mark.parametrize("seed", range(20))
def test_scheduler_and_controller_count_alike(seed: int, policy: dict[str, Any]) -> None:
    source, both = random.Random(seed), Both(policy)
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
        if policy is not POLICY:
            both.check_places()
