"""The columns of a fleet that lived through many changes give the answers of a fleet made fresh."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.systems.placement.hub import START, add_on, additive, built_in, cluster, decision, exact, placement, score

from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.api.views.base import view
from wharfinger.systems.placement.kinds.views import AddOnPlacementScore, Placement, PlacementDecision
from wharfinger.systems.placement.rules.fleet import Fleet
from wharfinger.systems.placement.rules.pipeline import PlacementResult, schedule
from wharfinger.systems.placement.rules.plan import make_plan


def cel(expression: str) -> Document:
    return {"requiredClusterSelector": {"celSelector": {"celExpressions": [expression]}}}


REGION = {"requiredClusterSelector": {"labelSelector": {"matchLabels": {"region": "a"}}}}
CLAIM = {"requiredClusterSelector": {"claimSelector": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}}
TOLERANT = [{"key": "t", "operator": "Exists", "tolerationSeconds": 100}]
PLACEMENTS: list[Document] = [
    placement(3, "p0", prioritizerPolicy=additive(add_on(2), add_on(-1, "other", "b"))),
    placement(None, "p1", predicates=[REGION, CLAIM], tolerations=TOLERANT),
    placement(2, "p2", prioritizerPolicy=exact(built_in("ResourceAllocatableCPU"), add_on(1, "other", "a"))),
    placement(None, "p3", predicates=[cel('managedCluster.scores("demo").exists(s, s.value > 0)')]),
    placement(4, "p4", predicates=[cel("has(managedCluster.metadata.labels.region)"), CLAIM]),
]


class Twin:
    """The same objects, as an incremental fleet and as plain documents."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.fleet = Fleet()
        self.clusters: dict[str, Document] = {}
        self.scores: dict[tuple[str, str], Document] = {}
        self.decisions: dict[tuple[str, str], Document] = {}
        self.now = START

    def name(self) -> str:
        return f"c{self.source.randrange(90):02d}"

    def change(self) -> None:
        choice = self.source.random()
        if choice < 0.35:
            self.put_cluster()
        elif choice < 0.45:
            name = self.name()
            self.clusters.pop(name, None)
            self.fleet.remove_cluster(name)
        elif choice < 0.7:
            self.put_score()
        elif choice < 0.75 and self.scores:
            key = self.source.choice(sorted(self.scores))
            del self.scores[key]
            self.fleet.remove_score(*key)
        elif choice < 0.9:
            self.put_decision()
        else:
            self.now += self.source.choice([1, 30, 200])

    def put_cluster(self) -> None:
        labels = {"region": self.source.choice("ab")} if self.source.random() < 0.7 else {}
        parts: dict[str, Any] = {}
        if self.source.random() < 0.4:
            effect = self.source.choice(["NoSelect", "NoSelectIfNew", "PreferNoSelect"])
            added = format_time(self.now - self.source.randrange(150))
            parts["taints"] = [{"key": "t", "effect": effect, "timeAdded": added}]
        if self.source.random() < 0.6:
            amount = {"cpu": f"{self.source.randrange(1, 9000)}m"}
            parts |= {"allocatable": amount, "capacity": amount}
        if self.source.random() < 0.5:
            parts["claims"] = {"k": "v"}
        document = cluster(self.name(), labels, **parts)
        self.clusters[document["metadata"]["name"]] = document
        self.fleet.put_cluster(document)

    def put_score(self) -> None:
        resource = self.source.choice(["demo", "other"])
        until = format_time(self.now + self.source.randrange(-50, 300)) if self.source.random() < 0.5 else None
        values = {name: self.source.randrange(-100, 101) for name in ("a", "b")}
        document = score(self.name(), resource, until, **values)
        self.scores[document["metadata"]["namespace"], resource] = document
        self.fleet.put_score(view(document, AddOnPlacementScore))

    def put_decision(self) -> None:
        names = sorted({self.name() for _ in range(self.source.randrange(4))})
        document = decision(names, f"p{self.source.randrange(8)}", self.source.choice(["ns1", "elsewhere"]))
        key = (document["metadata"]["namespace"], document["metadata"]["name"])
        self.decisions[key] = document
        self.fleet.put_decision(view(document, PlacementDecision))

    def fresh(self) -> Fleet:
        fleet = Fleet()
        for document in self.clusters.values():
            fleet.put_cluster(document)
        for document in self.scores.values():
            fleet.put_score(view(document, AddOnPlacementScore))
        for document in self.decisions.values():
            fleet.put_decision(view(document, PlacementDecision))
        return fleet


def told(fleet: Fleet, result: PlacementResult) -> Any:
    totals = {fleet.names[row]: total for row, total in result.total_of().items()}
    filtered = {stage: sorted(fleet.names[row] for row in rows) for stage, rows in result.filtered.items()}
    return [fleet.names[row] for row in result.selected], totals, filtered, result.code, result.next_change


@pytest.mark.parametrize("seed", range(4))
def test_incremental_equals_fresh(seed: int) -> None:
    twin = Twin(random.Random(seed))
    plans = [make_plan(view(document, Placement)) for document in PLACEMENTS]
    for step in range(400):
        twin.change()
        if step % 5:
            continue
        fresh = twin.fresh()
        for plan in twin.source.sample(plans, 3):
            ours = told(twin.fleet, schedule(twin.fleet, plan, twin.fleet.present, twin.now))
            assert ours == told(fresh, schedule(fresh, plan, fresh.present, twin.now)), (step, plan.name)
