"""Rows that are evaluated for many shapes at once get exactly the values that each shape computes for itself."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import pytest
from tests.engine.builders import node, pod

from wharfinger.api.views import Pod
from wharfinger.engine import Engine, default_profile, rows
from wharfinger.engine.cohort import Cohort
from wharfinger.engine.profile import ProfileSpec
from wharfinger.engine.rows import REFUSED, SHIFT

ZONES = ("a", "b", "c")
IMAGES = [{"names": ["app:v1"], "sizeBytes": 400_000_000}]


def shape(kind: int) -> dict[str, Any]:
    """The needs of one of 40 shapes: sizes from nothing to most of a node, selectors, tolerations."""
    amounts: dict[str, Any] = {"cpu": f"{(kind % 8) * 130}m", "memory": f"{64 + kind * 37}Mi"}
    if kind % 10 == 9:
        amounts = {"requests": {}}
    if kind % 10 == 8:
        amounts = {"requests": {"cpu": "1700m", "memory": "3Gi"}}
    if kind % 4 == 1:
        amounts["nodeSelector"] = {"zone": ZONES[kind % 3]}
    if kind % 4 == 2:
        amounts["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    return amounts | {"labels": {"app": f"app-{kind}"}}


class Cluster:
    """Decides and changes things at random; every value that is cached is compared with what `explain` computes."""

    def __init__(self, seed: int, profiles: list[ProfileSpec]) -> None:
        self.random = random.Random(seed)
        self.engine = Engine(profiles)
        self.placed: list[Pod] = []
        self.asks_for_verdicts = seed % 2 == 0  # from then on, shapes keep the verdicts and scores of row scope
        for number in range(12):
            self.set_node(number)

    def set_node(self, number: int) -> None:
        taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}] if number % 5 == 4 else []
        cpu, memory = self.random.choice((("4", "8Gi"), ("3900m", "7Gi"), ("16", "61Gi"), ("1", "2Gi")))
        labels = {"zone": self.random.choice(ZONES)}
        images = IMAGES if self.random.random() < 0.2 else []
        pods = self.random.choice((3, 110))
        made = node(f"n{number}", cpu=cpu, memory=memory, labels=labels, taints=taints, images=images, pods=pods)
        self.engine.set_node(made)

    def place(self, index: int, kind: int) -> None:
        waiting = pod(f"p{index}", **shape(kind))
        decision = self.engine.schedule(waiting)
        self.check(waiting)
        if decision.node is not None:
            assert self.engine.assume(waiting, decision.node).ok
            self.placed.append(waiting)

    def change(self) -> None:
        what = self.random.random()
        if what < 0.10:
            self.set_node(self.random.randrange(14))
        elif what < 0.13:
            name = f"n{self.random.randrange(14)}"
            row = self.engine.tables.row_of.get(name, -1)
            self.engine.remove_node(name)
            if row >= 0:
                self.engine.tables.changed(rows=[row])  # as a plugin that learns of it late
        elif what < 0.35 and self.placed:
            gone = self.placed.pop(self.random.randrange(len(self.placed)))
            self.engine.remove_pod(*gone.metadata.key)

    def check(self, waiting: Pod) -> None:
        told = self.engine.explain(waiting)
        tables = self.engine.tables
        values = self.engine.profile(waiting).answers_for(waiting).values
        cached = {
            name: (values.value_of(row) + tables.tie_breaks.cells[row]) >> SHIFT
            for name, row in tables.row_of.items()
            if values.value_of(row) != REFUSED
        }
        assert cached == {name: told.total(name) for name in told.scores}
        if self.asks_for_verdicts:
            accepted = {name for name, row in tables.row_of.items() if values.accepted()[row]}
            assert accepted == cached.keys()


def scoring(kind: str, **weights: int) -> ProfileSpec:
    resources = [{"name": name.replace("_", "-"), "weight": weight} for name, weight in weights.items()]
    strategy = {"type": kind, "resources": resources}
    plugins = {"NodeResourcesFit": 3, "NodeResourcesBalancedAllocation": 7}
    return default_profile(weights=plugins, args={"NodeResourcesFit": {"scoringStrategy": strategy}})


PROFILES = {
    "default": (default_profile(), True),
    "weighted": (scoring("LeastAllocated", cpu=5, memory=2), True),
    "a resource that nodes lack": (scoring("LeastAllocated", cpu=5, ephemeral_storage=2), False),
    "another strategy": (scoring("MostAllocated", cpu=1, memory=1), False),
}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("profile", PROFILES)
def test_values_are_those_that_each_shape_computes_for_itself(profile: str, seed: int) -> None:
    with (
        mock.patch.multiple(rows, FEW=1, FEW_MEMOIZED=1),
        mock.patch.multiple(Cohort, BLOCK=1 + seed % 3, LENGTH=48, FALLEN_BEHIND=16, MOST=30, KNOWN=8 * seed),
        mock.patch.object(Cohort, "_evaluate", autospec=True, side_effect=Cohort._evaluate) as evaluated,
        mock.patch.object(Cohort, "_drop_half", autospec=True, side_effect=Cohort._drop_half) as dropped,
    ):
        spec, together = PROFILES[profile]
        cluster = Cluster(seed, [spec])
        for index in range(220):
            cluster.place(index, index % 12 if index < 110 else cluster.random.randrange(40))
            if index > 110:
                cluster.change()
    assert (evaluated.call_count > 20) is together
    assert (dropped.call_count > 0) is together


def test_shapes_that_join_one_after_the_other_are_prepared_for_together() -> None:
    shapes = 40
    with (
        mock.patch.multiple(rows, FEW=1, FEW_MEMOIZED=1),
        mock.patch.object(Cohort, "_prepare", autospec=True, side_effect=Cohort._prepare) as prepared,
    ):
        cluster = Cluster(1, [default_profile()])
        for index in range(2 * shapes):
            cluster.place(index, index % shapes)
    assert 0 < prepared.call_count <= shapes / Cohort.BLOCK


def test_amounts_too_large_for_exact_quotients_are_not_evaluated_together() -> None:
    with (
        mock.patch.multiple(rows, FEW=1, FEW_MEMOIZED=1),
        mock.patch.object(Cohort, "_evaluate", autospec=True) as evaluated,
    ):
        engine = Engine()
        for number in range(4):
            engine.set_node(node(f"n{number}", memory="4Pi"))
        for index in range(100):
            waiting = pod(f"p{index}", cpu=f"{1 + index % 10}m")
            decision = engine.schedule(waiting)
            assert decision.node is not None and engine.assume(waiting, decision.node).ok
    evaluated.assert_not_called()


@pytest.mark.parametrize(("known", "sizes", "once"), [(1024, 1, True), (1024, 40, False), (2, 1, False)])
def test_equal_rows_are_evaluated_once_for_all_shapes_as_long_as_few_differ(known: int, sizes: int, once: bool) -> None:
    """Pods of ten shapes in turn on 40 nodes of so many sizes, one pod on each node."""
    engine, shapes = Engine(), 10
    with mock.patch.multiple(rows, FEW=1, FEW_MEMOIZED=1), mock.patch.object(Cohort, "KNOWN", known):
        for number in range(40):
            engine.set_node(node(f"n{number}", cpu=f"{4000 + number % sizes}m"))
        work = []
        for index in range(40):
            waiting = pod(f"p{index}", cpu=f"{100 + 10 * (index % shapes)}m")
            before = engine.tables.work.rows
            decision = engine.schedule(waiting)
            work.append(engine.tables.work.rows - before)
            assert decision.node is not None and engine.assume(waiting, decision.node).ok
    assert (sum(work[2 * shapes :]) < 150) is once
