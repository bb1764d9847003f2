"""Deletion costs: the table of who owns one, and that the controller writes no more than it must."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.controllers.world import World

from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds.builtin import EVENTS, NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.controllers.scale_in import DELETION_COST
from wharfinger.systems.resource_policy.controllers.cache import PolicyCache
from wharfinger.systems.resource_policy.kinds.names import RESOURCE_POLICIES
from wharfinger.systems.resource_policy.rules.costs import MARKER, POLICY, change
from wharfinger.systems.resource_policy.settings import ResourcePolicySettings

OURS = {DELETION_COST: "5", MARKER: "5", POLICY: "p"}


@pytest.mark.parametrize(
    ("before", "wanted", "after", "kept"),
    [
        ({}, 5, OURS, False),
        ({"other": "x"}, -1, {"other": "x", DELETION_COST: "-1", MARKER: "-1", POLICY: "p"}, False),
        ({MARKER: "3", POLICY: "old"}, 5, OURS, False),
        (OURS, 5, OURS, False),
        (OURS, 7, {DELETION_COST: "7", MARKER: "7", POLICY: "p"}, False),
        ({**OURS, POLICY: "old"}, 5, OURS, False),
        ({DELETION_COST: "5"}, 5, {DELETION_COST: "5"}, True),
        ({DELETION_COST: "9", POLICY: "p"}, 5, {DELETION_COST: "9"}, True),
        ({**OURS, DELETION_COST: "50"}, 5, {DELETION_COST: "50"}, True),
        ({}, None, {}, False),
        (OURS, None, {}, False),
        ({DELETION_COST: "5"}, None, {DELETION_COST: "5"}, False),
        ({**OURS, DELETION_COST: "50"}, None, {DELETION_COST: "50"}, False),
        ({MARKER: "3", POLICY: "old"}, None, {}, False),
        ({POLICY: "old"}, None, {}, False),
    ],
)
def test_whose_cost_it_is(before: dict[str, str], wanted: int | None, after: dict[str, str], kept: bool) -> None:
    found = change(before, wanted, "p")
    assert found.kept == kept
    assert all(before.get(key) != value for key, value in found.annotations.items()), "nothing is written that is so"
    merged = {**before, **found.annotations}
    assert {key: value for key, value in merged.items() if value is not None} == after


def policy(*units: Document, name: str = "p", **spec: Any) -> Document:
    return {
        "apiVersion": RESOURCE_POLICIES.api_version,
        "kind": "ResourcePolicy",
        "metadata": {"name": name},
        "spec": {"units": list(units), **spec},
    }


def unit(name: str, priority: int, limit: int | None = None, pool: str = "") -> Document:
    found = {"name": name, "priority": priority, "nodeSelector": {"matchLabels": {"pool": pool or name}}}
    return found if limit is None else {**found, "maxCount": limit}


def pod(name: str, node: str, labels: dict[str, str] | None = None, **annotations: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {"app": "web"}, "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "app"}]},
    }


class Stage(World):
    """Nodes n0, n1 in pool a, n2 in pool b, with the controller of resource policies only."""

    def __init__(self) -> None:
        super().__init__(nodes=0, controllers=("resourcepolicy",))
        for index, pool in enumerate("aab"):
            name = f"n{index}"
            room = {"cpu": "100", "memory": "100Gi", "pods": "500"}
            self.create(
                NODES,
                {
                    "metadata": {"name": name, "labels": {"pool": pool}},
                    "status": {"allocatable": room, "capacity": room},
                },
            )
        self.settle()

    def cost(self, name: str) -> str | None:
        annotations: dict[str, str] = self.get(PODS, name)["metadata"].get("annotations") or {}
        assert (MARKER in annotations) == (POLICY in annotations)
        return annotations.get(DELETION_COST)

    def versions(self) -> dict[str, str]:
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in self.list(PODS)}

    def counts(self, name: str = "p") -> dict[str, int]:
        return {each["name"]: each["count"] for each in self.get(RESOURCE_POLICIES, name)["status"]["units"]}

    def conditions(self, name: str = "p") -> dict[str, str]:
        found = self.get(RESOURCE_POLICIES, name)["status"]["conditions"]
        return {each["type"]: each["status"] for each in found}


def test_a_changed_priority_is_written_once_on_each_pod_and_on_no_other() -> None:
    with Stage() as stage:
        stage.apply(RESOURCE_POLICIES, policy(unit("a", 5), unit("b", 4)))
        for index in range(4):
            stage.create(PODS, pod(f"p{index}", f"n{index % 3}"))
        stage.advance(60)
        before = stage.versions()
        sent: list[str] = []
        patch = stage.client.patch

        async def noting(resource: Any, name: str, *args: Any, **options: Any) -> Document:
            if resource == PODS:
                sent.append(name)
            return await patch(resource, name, *args, **options)

        stage.client.patch = noting  # type: ignore[method-assign]  # to see what is written
        stage.patch(RESOURCE_POLICIES, "p", {"spec": {"units": [unit("a", 1), unit("b", 4)]}})
        assert sorted(sent) == ["p0", "p1", "p3"]
        assert stage.versions()["p2"] == before["p2"]
        assert [stage.cost(f"p{index}") for index in range(4)] == ["1", "1", "4", "1"]
        sent.clear()
        stage.patch(RESOURCE_POLICIES, "p", {"metadata": {"labels": {"any": "thing"}}})
        stage.restart()
        stage.advance(600)
        assert sent == []


def test_pods_that_wait_or_leave_get_no_cost() -> None:
    with Stage() as stage:
        stage.apply(RESOURCE_POLICIES, policy(unit("a", 5), unit("b", 4)))
        leaving = pod("leaving", "n0")
        leaving["metadata"]["finalizers"] = ["example.com/hold"]
        stage.create(PODS, leaving)
        stage.delete(PODS, "leaving", grace_period=0)
        assert stage.cost("leaving") in (None, "5")
        before = stage.versions()["leaving"]
        stage.patch(RESOURCE_POLICIES, "p", {"spec": {"units": [unit("a", 7), unit("b", 4)]}})
        assert stage.versions()["leaving"] == before


def test_one_event_for_a_cost_that_stays() -> None:
    with Stage() as stage:
        stage.apply(PODS, pod("p0", "n0", **{DELETION_COST: "7"}))
        stage.apply(RESOURCE_POLICIES, policy(unit("a", 5), unit("b", 4)))
        for priority in (6, 7, 8):
            stage.patch(RESOURCE_POLICIES, "p", {"spec": {"units": [unit("a", priority), unit("b", 4)]}})
        events = [each for each in stage.list(EVENTS) if each["reason"] == "DeletionCostKept"]
        assert [(each["count"], each["involvedObject"]["name"]) for each in events] == [(1, "p0")]
        assert stage.cost("p0") == "7"


def test_costs_follow_the_units_that_have_room() -> None:
    """In a node of two units, the oldest pods hold the preferred one; when one of them goes the next moves up."""
    with Stage() as stage:
        stage.apply(RESOURCE_POLICIES, policy(unit("a", 9, 1), unit("b", 5), unit("again", 1, pool="a")))
        for index in range(3):
            stage.apply(PODS, pod(f"p{index}", "n0"))
            stage.advance(2)
        assert [stage.cost(f"p{index}") for index in range(3)] == ["9", "1", "1"]
        assert stage.counts() == {"a": 1, "b": 0, "again": 2}
        assert stage.get(RESOURCE_POLICIES, "p")["status"]["summary"] == "a 1/1, b 0, again 2"
        assert stage.conditions() == {"Valid": "True", "Overlapping": "True", "Conflicting": "False"}
        stage.delete(PODS, "p0", grace_period=0)
        assert [stage.cost(f"p{index}") for index in (1, 2)] == ["9", "1"]
        stage.patch(NODES, "n0", {"metadata": {"labels": {"pool": "b"}}})
        assert [stage.cost(f"p{index}") for index in (1, 2)] == ["5", "5"]
        stage.patch(NODES, "n1", {"metadata": {"labels": {"pool": "b"}}})
        stage.advance(2)
        assert stage.counts() == {"a": 0, "b": 2, "again": 0}
        assert stage.conditions()["Overlapping"] == "False"


def test_a_policy_that_cannot_be_read_is_ignored_and_said_to_be() -> None:
    world = PolicyCache()
    bad = {**policy(unit("a", -1)), "metadata": {"name": "p", "namespace": "default"}}
    world.set_policy(None, bad)
    assert world.policies == {}
    assert world.faults["default", "p"].startswith("spec.units[0].priority: Invalid value: -1")
    good = {**policy(unit("a", 1)), "metadata": {"name": "p", "namespace": "default"}}
    world.set_policy(bad, good)
    assert world.faults == {}
    assert list(world.policies["default"]) == ["p"]


def test_costs_can_be_switched_off() -> None:
    with Stage() as stage:
        stage.apply(RESOURCE_POLICIES, policy(unit("a", 5), unit("b", 4)))
        stage.apply(PODS, pod("p0", "n0"))
        stage.apply(PODS, pod("p1", "n0", **{DELETION_COST: "7"}))
        assert stage.cost("p0") == "5"
        stage.configuration = Configuration().having(ResourcePolicySettings(deletion_cost=False))
        stage.restart()
        assert stage.cost("p0") is None
        assert stage.cost("p1") == "7"
        assert stage.counts() == {"a": 2, "b": 0}


def test_without_the_scheduling_plugin_there_are_no_costs() -> None:
    with Stage() as stage:
        stage.apply(RESOURCE_POLICIES, policy(unit("a", 5), unit("b", 4)))
        stage.apply(PODS, pod("p0", "n0"))
        assert stage.cost("p0") == "5"
        plugins = {"multiPoint": {"disabled": [{"name": "resourcepolicy"}]}}
        stage.configuration = Configuration(scheduler={"profiles": [{"plugins": plugins}]})
        stage.restart()
        assert stage.cost("p0") is None
        assert stage.counts() == {"a": 1, "b": 0}


def test_metrics_show_the_usage_of_each_unit_by_group() -> None:
    with Stage() as stage:
        stage.apply(RESOURCE_POLICIES, policy(unit("a", 5, 1), unit("b", 4), matchLabelKeys=["team"]))
        stage.apply(PODS, pod("p0", "n0", {"team": "x"}))
        stage.apply(PODS, pod("p1", "n0", {"team": "y"}))
        stage.advance(5)

        def measured() -> dict[tuple[str, str], float]:
            return {
                (sample.labels["unit"], sample.labels["group"]): sample.value
                for family in stage.metrics.collect()
                if family.name == "wharfinger_resource_policy_unit_pods"
                for sample in family.samples
            }

        used = {("a", "team=x"): 1, ("b", "team=x"): 0, ("a", "team=y"): 1, ("b", "team=y"): 0}
        assert measured() == used
        found = stage.get(RESOURCE_POLICIES, "p")["status"]
        assert found["summary"] == "a 2 (2 groups, max 1 each), b 0 (0 groups)"
        assert found["units"][0] == {
            "name": "a",
            "count": 2,
            "max": "1",
            "groups": [{"labels": {"team": "x"}, "count": 1}, {"labels": {"team": "y"}, "count": 1}],
        }
        stage.delete(PODS, "p1", grace_period=0)
        stage.advance(5)
        assert measured() == {key: value for key, value in used.items() if key[1] == "team=x"}
        stage.delete(RESOURCE_POLICIES, "p")
        stage.advance(5)
        assert measured() == {}


def test_status_is_written_for_a_burst_not_for_every_pod() -> None:
    with Stage() as stage:
        stage.apply(RESOURCE_POLICIES, policy(unit("a", 5), unit("b", 4)))
        stage.advance(5)
        generation = int(stage.get(RESOURCE_POLICIES, "p")["metadata"]["resourceVersion"])
        writes: list[str] = []
        patch = stage.client.patch

        async def noting(resource: Any, name: str, *args: Any, **options: Any) -> Document:
            if resource == RESOURCE_POLICIES:
                writes.append(name)
            return await patch(resource, name, *args, **options)

        stage.client.patch = noting  # type: ignore[method-assign]  # to see what is written
        for index in range(30):
            stage.create(PODS, pod(f"p{index}", f"n{index % 3}"))
        stage.settle()
        assert stage.counts() == {"a": 20, "b": 10}
        assert len(writes) == 1
        assert int(stage.get(RESOURCE_POLICIES, "p")["metadata"]["resourceVersion"]) > generation


@pytest.mark.parametrize("seed", range(8))
def test_any_history_leaves_the_costs_a_fresh_start_would_give(seed: int) -> None:
    source = random.Random(seed)

    def some_policy(name: str) -> Document:
        limits: list[int | None] = [None, 1, 2, 3]
        units = [unit(f"u{i}", source.randint(0, 3), source.choice(limits), source.choice("abc")) for i in range(3)]
        selector = source.choice([{}, {"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "db"}}])
        keys = source.sample(["k", "l"], source.randint(0, 2))
        strategy = source.choice(["required", "prefer"])
        return policy(*units, name=name, podSelector=selector, matchLabelKeys=keys, strategy=strategy)

    with Stage() as stage:
        for step in range(25):
            match source.choice(["pod", "pod", "pod", "gone", "policy", "no policy", "node", "label"]):
                case "pod":
                    labels = {"app": source.choice(["web", "db"])}
                    labels |= {key: source.choice("xy") for key in "kl" if source.random() < 0.7}
                    own = {DELETION_COST: "77"} if source.random() < 0.1 else {}
                    stage.create(PODS, pod(f"p{step}", f"n{source.randint(0, 2)}", labels, **own))
                case "gone":
                    for each in stage.list(PODS)[:1]:
                        stage.delete(PODS, each["metadata"]["name"], grace_period=0)
                case "policy":
                    name = source.choice("pq")
                    if stage.exists(RESOURCE_POLICIES, name):
                        stage.patch(RESOURCE_POLICIES, name, {"spec": some_policy(name)["spec"]})
                    else:
                        stage.create(RESOURCE_POLICIES, some_policy(name))
                case "no policy":
                    name = source.choice("pq")
                    if stage.exists(RESOURCE_POLICIES, name):
                        stage.delete(RESOURCE_POLICIES, name)
                case "node":
                    labels = {"pool": source.choice("abc")}
                    stage.patch(NODES, f"n{source.randint(0, 2)}", {"metadata": {"labels": labels}})
                case "label":
                    for each in stage.list(PODS)[:1]:
                        labels = {"app": source.choice(["web", "db"]), "k": source.choice("xy")}
                        stage.patch(PODS, each["metadata"]["name"], {"metadata": {"labels": labels}})
            if source.random() < 0.3:
                stage.settle()
        stage.advance(120)

        def seen() -> tuple[dict[str, Any], dict[str, Any]]:
            pods = {each["metadata"]["name"]: each["metadata"].get("annotations") for each in stage.list(PODS)}
            policies = {each["metadata"]["name"]: each["status"] for each in stage.list(RESOURCE_POLICIES)}
            return pods, policies

        before = seen()
        stage.restart()
        stage.advance(120)
        assert seen() == before
        for each in stage.list(RESOURCE_POLICIES):
            stage.delete(RESOURCE_POLICIES, each["metadata"]["name"])
        stage.advance(120)
        for annotations in seen()[0].values():
            assert set(annotations or {}) <= {DELETION_COST}
            assert (annotations or {}).get(DELETION_COST) in (None, "77")
