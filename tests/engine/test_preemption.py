"""Preemption beyond the recorded cases: eligibility, nominations, budgets, and candidates cached between attempts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.builders import node, pod

from wharfinger.api.views import Pod
from wharfinger.engine import Engine, PreemptionResult
from wharfinger.framework import Plugin, PodOnNode

LEAVING = {
    "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
}


def engine_with(*nodes: Any) -> Engine:
    engine = Engine()
    for each in nodes:
        engine.set_node(each)
    return engine


def attempt(engine: Engine, waiting: Pod) -> PreemptionResult:
    decision = engine.schedule(waiting)
    assert decision.node is None
    return engine.preempt(waiting, decision.diagnosis)


def victims(result: PreemptionResult) -> list[str]:
    return [victim.metadata.name for victim in result.victims]


def budget(name: str, allowed: int, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }


def test_the_least_important_and_the_fewest_are_evicted() -> None:
    engine = engine_with(node("a", cpu="4"))
    for name, cpu, priority in (("old", "1", 5), ("small", "500m", 1), ("large", "2", 1)):
        engine.set_pod(pod(name, "a", cpu=cpu, priority=priority))
    result = attempt(engine, pod("p", cpu="2", priority=10))
    assert (result.node, victims(result)) == ("a", ["large"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"preemptionPolicy": "Never"}, "not eligible due to preemptionPolicy=Never."),
        ({"status": {"nominatedNodeName": "a"}}, "not eligible due to a terminating pod on the nominated node."),
    ],
)
def test_some_pods_may_not_preempt(spec: dict[str, Any], message: str) -> None:
    engine = engine_with(node("a", cpu="2"))
    engine.set_pod(pod("leaving", "a", cpu="2", deleted=True, status=LEAVING))
    result = attempt(engine, pod("p", cpu="2", priority=10, **spec))
    assert (result.eligible, result.message, result.node) == (False, message, None)


def test_a_pod_that_terminates_for_another_reason_does_not_stop_preemption() -> None:
    engine = engine_with(node("a", cpu="2"))
    engine.set_pod(pod("leaving", "a", cpu="2", deleted=True))
    assert attempt(engine, pod("p", cpu="2", priority=10, status={"nominatedNodeName": "a"})).node == "a"


def test_a_budget_is_violated_only_as_a_last_resort() -> None:
    engine = engine_with(node("a", cpu="2"), node("b", cpu="2"))
    engine.set_pod(pod("guarded", "a", cpu="2", labels={"app": "db"}))
    engine.set_pod(pod("free", "b", cpu="2", priority=5))
    engine.apply("PodDisruptionBudget", budget("db", 0, app="db"))
    result = attempt(engine, pod("p", cpu="1", priority=10))
    assert (result.node, victims(result)) == ("b", ["free"])
    assert result.candidates["a"].violations == 1
    engine.apply("PodDisruptionBudget", budget("db", 1, app="db"))
    assert (
        attempt(engine, pod("p", cpu="1", priority=10)).node == "a"
    )  # the pod with the lower priority, now that the budget allows it


def test_cached_candidates_follow_the_rows() -> None:
    engine = engine_with(node("a", cpu="2"), node("b", cpu="2"))
    for name in ("a", "b"):
        engine.set_pod(pod(f"on-{name}", name, cpu="2"))
    seen = set()
    for index in range(2):
        waiting = pod(f"p{index}", cpu="2", priority=10)
        result = attempt(engine, waiting)
        assert result.node is not None
        seen.add(result.node)
        for victim in result.victims:
            engine.remove_pod(victim.metadata.namespace, victim.metadata.name)
        assert engine.assume(waiting, result.node).ok
    assert seen == {"a", "b"}
    assert attempt(engine, pod("late", cpu="2", priority=10)).node is None


def test_nominated_room_is_not_given_twice_and_is_released() -> None:
    engine = engine_with(node("a", cpu="2"))
    engine.set_pod(pod("running", "a", cpu="2"))
    first, second = pod("first", cpu="2", priority=10), pod("second", cpu="2", priority=10)
    assert attempt(engine, first).node == "a"
    engine.set_nominated(first, "a")
    assert attempt(engine, second).node is None
    engine.set_nominated(first, None)
    assert attempt(engine, second).node == "a"


def test_spreading_is_computed_without_the_victims() -> None:
    zone = "topology.kubernetes.io/zone"
    engine = engine_with(node("a", cpu="2", labels={zone: "x"}), node("b", cpu="2", labels={zone: "y"}))
    engine.set_pod(pod("web", "a", cpu="1", labels={"app": "web"}))
    engine.set_pod(pod("other", "b", cpu="2", priority=50))
    constraint = {
        "maxSkew": 1,
        "topologyKey": zone,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    waiting = pod("p", cpu="1", priority=10, labels={"app": "web"}, topologySpreadConstraints=[constraint])
    assert victims(attempt(engine, waiting)) == ["web"]


class Shielded(Plugin):
    name = "Shielded"
    points = frozenset({"postFilter"})

    def may_evict(self, preemptor: Pod, victim: PodOnNode) -> bool:
        return "shield" not in victim.pod.metadata.labels


def test_a_plugin_may_keep_pods_from_being_evicted() -> None:
    from wharfinger.engine import default_profile

    engine = Engine([default_profile(extra=[Shielded])], plugins={"Shielded": Shielded})
    engine.set_node(node("a", cpu="2"))
    engine.set_pod(pod("running", "a", cpu="2", labels={"shield": "yes"}))
    assert attempt(engine, pod("p", cpu="2", priority=10)).node is None
