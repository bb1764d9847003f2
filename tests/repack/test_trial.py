"""Where a pod could move, found while it is where it is, against what the engine says once it has left."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.engine.builders import node, pod

from wharfinger.api.views import Pod
from wharfinger.engine import Engine
from wharfinger.repack.movable import sort_pods
from wharfinger.repack.trial import Trial

NODES = [f"n{index}" for index in range(6)]


def _spec(source: random.Random) -> dict[str, Any]:
    """Rules about the node, about host ports, and about other pods."""
    kind = source.randrange(6)
    if kind == 0:
        return {"nodeSelector": {"disk": "ssd"}}
    if kind == 1:
        return {"tolerations": [{"key": "team", "operator": "Exists"}]}
    if kind == 2:
        container = {"name": "c", "ports": [{"hostPort": 80}], "resources": {"requests": {"cpu": "500m"}}}
        return {"containers": [container]}
    if kind == 3:
        rule = "podAntiAffinity" if source.random() < 0.5 else "podAffinity"
        term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
        return {"affinity": {rule: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    return {}


def _cluster(seed: int) -> Engine:
    source, engine = random.Random(seed), Engine()
    for index, name in enumerate(NODES):
        labels = {"zone": f"z{index % 2}", **({"disk": "ssd"} if index % 3 else {})}
        taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}] if index == 4 else []
        engine.set_node(node(name, cpu="4", labels=labels, taints=taints))
    for index in range(24):
        labels = {"app": source.choice(("web", "db"))}
        cpu = source.choice(("250m", "500m", "1"))
        engine.set_pod(pod(f"p{index}", source.choice(NODES), cpu=cpu, labels=labels, **_spec(source)))
    return engine


@pytest.mark.parametrize("seed", range(8))
def test_targets_are_those_of_a_pod_that_has_left_its_node(seed: int) -> None:
    engine = _cluster(seed)
    trial = Trial(engine, sort_pods(engine))
    closed = trial.mask((NODES[seed % 6],))
    for each in trial.pods.movable.values():
        found = trial.targets(each, closed)
        with trial.without(each):
            expected = _feasible(engine, each.pod, closed) - {each.node}
        assert {trial.tables.name(row) for row in found.tolist()} == expected


def _feasible(engine: Engine, each: Pod, closed: np.ndarray[Any, Any]) -> set[str]:
    return {name for name in engine.explain(each).scores if not closed[engine.tables.row_of[name]]}
