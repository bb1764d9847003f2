"""Spread scores that are computed by class of rows are those that are computed row by row."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.engine.builders import node, pod

from wharfinger.api.views import Pod
from wharfinger.engine import Engine, default_profile
from wharfinger.plugins.pod_topology_spread.row_classes import RowClasses
from wharfinger.plugins.pod_topology_spread.scoring import Spread

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
WEB = {"app": "web"}


def soft(key: str, skew: int = 1, app: str = "web") -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}


def spread_of(made: Engine, waiting: Pod) -> Spread:
    prepared = made.profile(waiting).answers_for(waiting).prepared.by_plugin["PodTopologySpread"]
    assert isinstance(prepared, Spread)
    return prepared


def counted_classes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each call, whether there were few enough classes."""
    calls: list[bool] = []
    final = RowClasses.final

    def count(classes: RowClasses) -> Any:
        found = final(classes)
        calls.append(found is not None)
        return found

    monkeypatch.setattr(RowClasses, "final", count)
    return calls


@pytest.mark.parametrize(
    "constraints",
    [
        [soft(HOST)],
        [soft(HOST, 3), soft(ZONE, 5)],
        [soft(ZONE), soft("rack", 2), soft(HOST)],
        [soft(ZONE, 1, "db"), soft(HOST, 2)],
    ],
    ids=["hosts", "system defaults", "three keys", "two selectors"],
)
def test_classes_score_as_rows_do(constraints: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    by_class = counted_classes(monkeypatch)
    rng = random.Random(len(constraints))
    made = Engine([default_profile()])
    zones, racks = ["a", "b", "c"], ["1", "2"]
    for number in range(20):
        made.set_node(node(f"n{number}", labels={ZONE: rng.choice(zones), "rack": rng.choice(racks)}))
    waiting = pod("waiting", labels=WEB, topologySpreadConstraints=constraints)
    spread, rows = spread_of(made, waiting), made.tables.rows
    placed: list[str] = []
    for number in range(300):
        for _ in range(rng.choice((1, 1, 2, 70))):
            if placed and rng.random() < 0.4:
                made.remove_pod("default", placed.pop(rng.randrange(len(placed))))
            else:
                placed.append(f"p{number}-{len(placed)}-{rng.random()}")
                app = {"app": rng.choice(("web", "web", "db"))}
                made.set_pod(pod(placed[-1], f"n{rng.randrange(rng.choice((3, 20)))}", labels=app, cpu="1m", memory=""))
        while len(placed) > 150:
            made.remove_pod("default", placed.pop(0))
        if number % 50 == 49:  # nodes come and go, too
            made.set_node(node(f"m{number}", labels={ZONE: rng.choice(zones), "rack": rng.choice(racks)}))
            made.remove_node(f"n{number // 50}")
            placed = [name for name in placed if ("default", name) in made.tables.pods]
            rows = made.tables.rows
        expected = spread.normalize(spread.score(rows), rows)
        assert np.array_equal(spread.final(rows), expected)
    assert by_class.count(True) > 200


def test_nodes_without_the_keys_of_system_defaults_are_scored_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    by_class = counted_classes(monkeypatch)
    made = Engine([default_profile()])
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": WEB}}
    made.apply("Service", service)
    for name in ("a", "b", "c", "d"):
        made.set_node(node(name, labels={ZONE: "z"} if name in "ab" else {HOST: name if name == "c" else ""}))
    waiting = pod("waiting", labels=WEB)
    spread, rows = spread_of(made, waiting), made.tables.rows
    for number, name in enumerate("aabcddda"):
        made.set_pod(pod(f"p{number}", name, labels=WEB))
        assert np.array_equal(spread.final(rows), spread.normalize(spread.score(rows), rows))
    assert all(by_class) and len(by_class) == 8


def test_many_classes_are_left_to_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    by_class = counted_classes(monkeypatch)
    made = Engine([default_profile()])
    for number in range(RowClasses.MOST + 2):
        made.set_node(node(f"n{number}", pods=1000))
        for each in range(number):
            made.set_pod(pod(f"p{number}-{each}", f"n{number}", labels=WEB, cpu="1m", memory=""))
    waiting = pod("waiting", labels=WEB, topologySpreadConstraints=[soft(HOST)])
    spread, rows = spread_of(made, waiting), made.tables.rows
    assert np.array_equal(spread.final(rows), spread.normalize(spread.score(rows), rows))
    assert by_class == [False]
