"""Dry runs that nodes share, and candidates cached between attempts, against dry runs of every node from scratch."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.engine.builders import node, pod

from wharfinger.api.views import Pod
from wharfinger.engine import Engine, PreemptionResult, victims

NODES = [f"n{index}" for index in range(8)]
SIZES = ("500m", "1", "2")
STARTS = (None, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")


class Cluster:
    """A cluster as plain objects, and an engine that receives every change."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.engine = Engine()
        self.nodes = {name: node(name, cpu=self.random.choice(("4", "6"))) for name in NODES}
        self.pods: dict[str, Pod] = {}
        self.budgets: list[dict[str, Any]] = []
        for each in self.nodes.values():
            self.engine.set_node(each)

    def fresh(self) -> Engine:
        engine = Engine()
        for each in self.nodes.values():
            engine.set_node(each)
        for bound in self.pods.values():
            engine.set_pod(bound)
        for each in self.budgets:
            engine.apply("PodDisruptionBudget", each)
        return engine

    # -- events

    def bind(self) -> None:
        name = f"p{self.random.randrange(60)}"
        self.end(name)
        start = self.random.choice(STARTS)
        spec: dict[str, Any] = {"priority": self.random.randrange(-1, 3)}
        if self.random.random() < 0.1:
            ports = [{"hostPort": 80}]
            spec["containers"] = [{"name": "c", "ports": ports, "resources": {"requests": {"cpu": "500m"}}}]
        self.pods[name] = pod(
            name,
            self.random.choice(NODES),
            cpu=self.random.choice(SIZES),
            namespace=self.random.choice(("default", "other")),
            labels={"app": self.random.choice(("web", "db"))},
            status={"startTime": start} if start else {},
            **spec,
        )
        self.engine.set_pod(self.pods[name])

    def end(self, name: str = "") -> None:
        old = self.pods.pop(name or f"p{self.random.randrange(60)}", None)
        if old is not None:
            self.engine.remove_pod(old.metadata.namespace, old.metadata.name)

    def cordon(self) -> None:
        name = self.random.choice(NODES)
        self.nodes[name] = node(name, cpu=self.random.choice(("4", "6")), unschedulable=self.random.random() < 0.3)
        self.engine.set_node(self.nodes[name])

    def guard(self) -> None:
        namespace, allowed = self.random.choice(("default", "other")), self.random.randrange(2)
        budget = {
            "metadata": {"name": "b", "namespace": namespace},
            "spec": {"selector": {"matchLabels": {"app": "db"}}},
            "status": {"disruptionsAllowed": allowed},
        }
        self.budgets = [each for each in self.budgets if each["metadata"]["namespace"] != namespace] + [budget]
        self.engine.apply("PodDisruptionBudget", budget)

    def attempts(self) -> list[Pod]:
        ports = [{"name": "c", "ports": [{"hostPort": 80}], "resources": {"requests": {"cpu": "3"}}}]
        return [
            pod("small", cpu="1", priority=2),
            pod("large", cpu="4", priority=10),
            pod("larger", cpu="4", priority=1),
            pod("ports", containers=ports, priority=10),
        ]


def told(result: PreemptionResult) -> tuple[Any, ...]:
    candidates = {
        name: ([victim.metadata.name for victim in each.victims], each.violations, each.rank)
        for name, each in result.candidates.items()
    }
    return result.message, result.plugins, candidates, result.chosen


@pytest.mark.parametrize("seed", range(8))
def test_shared_and_cached_dry_runs_equal_those_of_every_node(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(seed)
    events = [cluster.bind] * 8 + [cluster.end] * 2 + [cluster.cordon]
    shared = victims._inputs
    for step in range(60):
        cluster.random.choice(events)()
        if step == 30:
            events.append(cluster.guard)
        if step < 12:
            continue
        fresh = cluster.fresh()
        for waiting in cluster.attempts():
            monkeypatch.setattr(victims, "_inputs", shared)
            found = cluster.engine.preempt(waiting)
            monkeypatch.setattr(victims, "_inputs", lambda tables, filters: None)
            expected = fresh.preempt(waiting)
            assert told(found) == told(expected)
            if found.node is not None:
                assert found.node in expected.chosen
                assert found.victims == expected.candidates[found.node].victims
