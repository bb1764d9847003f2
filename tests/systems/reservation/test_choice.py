"""The node that an owner gets has the best score of all, whatever happened before. The engine compares nodes with
reservations alone as long as that is enough; here the scores of all nodes are computed without caches."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.engine.builders import pod
from tests.systems.reservation.reservations import node, reservation

from wharfinger.api.views import Pod
from wharfinger.engine import Engine

NODES = [f"n{index}" for index in range(6)]
APPS = ("a", "b", "c")
ORDER = "scheduling.koordinator.sh/reservation-order"
TERM = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "zone"}
BEYOND: tuple[dict[str, Any], ...] = (
    {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": TERM}]}},
    {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}},
)
"""Scores that depend on other nodes, and a filter that looks beyond the node."""


class Cluster:
    def __init__(self, seed: int, *, beyond: float) -> None:
        """`beyond` is the share of pods whose answers do not follow from single nodes."""
        self.random = random.Random(seed)
        self.engine = Engine(seed=seed)
        self.beyond = beyond
        self.placed: list[Pod] = []
        self.reserved: dict[str, Any] = {}
        self.count = 0
        for name in NODES:
            self.set_node(name)

    # -- events

    def set_node(self, name: str = "") -> None:
        labels = {"zone": self.random.choice("xy")}
        self.engine.set_node(node(name or self.random.choice(NODES), self.random.choice((4, 8)), **labels))

    def reserve(self) -> None:
        self.count += 1
        name = f"r{self.random.randrange(10)}"
        self.unreserve(name)
        made = self.reserved[name] = reservation(
            name,
            self.random.choice((1, 2)),
            on=self.random.choice(NODES),
            labels={ORDER: str(self.random.randrange(1, 4))} if self.random.random() < 0.1 else {},
            uid=f"{name}-{self.count}",
            owners=[{"labelSelector": {"matchLabels": {"app": self.random.choice(APPS)}}}],
            allocateOnce=self.random.random() < 0.5,
        )
        self.engine.apply("Reservation", made)

    def unreserve(self, name: str = "") -> None:
        old = self.reserved.pop(name or f"r{self.random.randrange(10)}", None)
        if old is not None:
            self.engine.apply("Reservation", old, deleted=True)

    def place(self) -> None:
        self.count += 1
        waiting = self.waiting(f"p{self.count}")
        decision = self.engine.schedule(waiting)
        explained = self.engine.explain(waiting)
        totals = {name: explained.total(name) for name in explained.scores}
        assert (decision.node is None) == (not totals)
        if decision.node is not None:
            assert totals[decision.node] == max(totals.values()), (decision.node, totals)
            if self.engine.assume(waiting, decision.node).ok:
                self.placed.append(waiting)

    def leave(self) -> None:
        if self.placed:
            gone = self.placed.pop(self.random.randrange(len(self.placed)))
            self.engine.remove_pod(gone.metadata.namespace, gone.metadata.name)

    def nominate(self) -> None:
        self.engine.set_nominated(pod("nominated", cpu="2", priority=5), self.random.choice([*NODES, None, None, None]))

    def waiting(self, name: str) -> Pod:
        cpu, app = self.random.choice(("1", "2")), self.random.choice((*APPS, "other"))
        spec = {"affinity": self.random.choice(BEYOND)} if self.random.random() < self.beyond else {}
        return pod(name, cpu=cpu, labels={"app": app}, **spec)


@pytest.mark.parametrize("beyond", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(6))
def test_owners_get_a_node_with_the_best_score(seed: int, beyond: float) -> None:
    cluster = Cluster(seed, beyond=beyond)
    steps = [cluster.place] * 12 + [cluster.reserve] * 5 + [cluster.leave] * 4
    steps += [cluster.unreserve, cluster.set_node, cluster.nominate]
    for _ in range(150):
        cluster.random.choice(steps)()
