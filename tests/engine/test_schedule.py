"""Decisions: the chosen node, the message if there is none, and the effect of pods that are assumed or bound."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.engine.builders import node, pod

from wharfinger.api.views import Pod
from wharfinger.engine import Engine, UnknownProfile, default_profile
from wharfinger.framework import Action, ClusterEvent


def engine_with(*nodes: Any, seed: int = 0) -> Engine:
    engine = Engine(seed=seed)
    for each in nodes:
        engine.set_node(each)
    return engine


def place(engine: Engine, waiting: Pod) -> str | None:
    decision = engine.schedule(waiting)
    if decision.node is not None:
        assert engine.assume(waiting, decision.node).ok
    return decision.node


def test_the_emptier_node_is_chosen() -> None:
    engine = engine_with(node("a"), node("b"))
    engine.set_pod(pod("running", "a", cpu="2"))
    assert place(engine, pod("new")) == "b"


def test_equal_nodes_take_turns_whatever_the_seed() -> None:
    for seed in (0, 1, 2):
        engine = engine_with(*(node(f"n{index}") for index in range(5)), seed=seed)
        # Pods without requests leave the scores of all nodes equal after rounding.
        first = [place(engine, pod(f"p{index}", requests={})) for index in range(20)]
        assert set(Counter(first).values()) == {4}


def test_the_same_seed_gives_the_same_decisions() -> None:
    def order(seed: int) -> list[str | None]:
        engine = engine_with(*(node(f"n{index}") for index in range(20)), seed=seed)
        return [place(engine, pod(f"p{index}")) for index in range(20)]

    assert order(7) == order(7)
    assert order(7) != order(8)


def test_the_message_counts_reasons_as_kubernetes_does() -> None:
    engine = engine_with(
        node("small", cpu="1"),
        node("smaller", cpu="1", memory="1Gi"),
        node("tainted", taints=[{"key": "k", "effect": "NoSchedule"}]),
        node("closed", unschedulable=True),
        node("full", cpu="4"),
    )
    engine.set_pod(pod("running", "full", cpu="3"))
    decision = engine.schedule(pod("big", cpu="2", memory="2Gi"))
    assert decision.node is None
    assert decision.message == (
        "0/5 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint(s), "
        "1 node(s) were unschedulable, 3 Insufficient cpu."
    )
    assert decision.diagnosis is not None
    assert decision.diagnosis.plugins == {"NodeResourcesFit", "TaintToleration", "NodeUnschedulable"}
    assert decision.diagnosis.status("full").code.value == "Unschedulable"
    assert decision.diagnosis.status("small").code.value == "UnschedulableAndUnresolvable"


def test_preemption_adds_its_part_to_the_message() -> None:
    engine = engine_with(node("a", cpu="1"), node("b", cpu="4"))
    engine.set_pod(pod("running", "b", cpu="3", priority=100))
    waiting = pod("big", cpu="2", priority=10)
    decision = engine.schedule(waiting)
    assert decision.diagnosis is not None
    result = engine.preempt(waiting, decision.diagnosis)
    assert result.node is None
    assert decision.message == (
        "0/2 nodes are available: 2 Insufficient cpu. "
        "preemption: 0/2 nodes are available: "
        "1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    )


def test_without_nodes_the_decision_is_an_error() -> None:
    assert Engine().schedule(pod("p")).message == "no nodes available to schedule pods"


def test_a_refusal_of_the_pod_as_a_whole_is_the_message() -> None:
    engine = engine_with(node("a"), node("b"))
    terms = [
        {
            "matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["a"]},
                {"key": "metadata.name", "operator": "In", "values": ["b"]},
            ]
        }
    ]
    rule = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    decision = engine.schedule(pod("p", affinity=rule))
    assert decision.message == "0/2 nodes are available: pod affinity terms conflict."
    assert decision.diagnosis is not None and decision.diagnosis.plugins == {"NodeAffinity"}
    # As in the stock scheduler, where DynamicResources then does not find the state of its PreFilter.
    assert engine.preempt(pod("p", affinity=rule), decision.diagnosis).node is None
    assert decision.message == "0/2 nodes are available: pod affinity terms conflict. not found"


def test_nodes_that_affinity_leaves_out_are_counted_as_such() -> None:
    engine = engine_with(node("a", cpu="1"), node("b"), node("c"))
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
    rule = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert place(engine, pod("fits", affinity=rule)) == "a"
    decision = engine.schedule(pod("big", cpu="3", affinity=rule))
    assert decision.message == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_invalid_preferences_matter_only_if_several_nodes_are_feasible() -> None:
    below = {"key": "rank", "operator": "Lt", "values": ["-10"]}  # no label has such a value
    preferred = [{"weight": 1, "preference": {"matchExpressions": [below]}}]
    rule = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    engine = engine_with(node("a"))
    assert engine.schedule(pod("p", affinity=rule)).node == "a"
    engine.set_node(node("b"))
    decision = engine.schedule(pod("p", affinity=rule))
    assert decision.node is None
    start = 'running PreScore plugin "NodeAffinity": [0].matchExpressions[0].values[0]: a valid label'
    assert decision.error.startswith(start)


def test_huge_amounts_do_not_overflow() -> None:
    engine = engine_with(node("a", memory="8Ei", cpu="64", pods=500))
    for number in range(300):
        engine.set_pod(pod(f"p{number}", "a", memory="9223372036854775807"))
    decision = engine.schedule(pod("q", memory="1Gi"))
    assert decision.message == "0/1 nodes are available: 1 Insufficient memory."


def test_a_failed_bind_releases_the_room() -> None:
    engine = engine_with(node("a", cpu="1"))
    first = pod("first", cpu="1")
    assert place(engine, first) == "a"
    assert engine.schedule(pod("second", cpu="1")).node is None
    engine.forget(first)
    assert engine.schedule(pod("second", cpu="1")).node == "a"


def test_confirming_a_bind_counts_the_pod_once() -> None:
    engine = engine_with(node("a", cpu="1"))
    assert place(engine, pod("p", cpu="400m")) == "a"
    engine.set_pod(pod("p", "a", cpu="400m"))
    assert engine.schedule(pod("q", cpu="600m")).node == "a"
    engine.forget(pod("p", cpu="400m"))  # no longer assumed, so there is nothing to undo
    assert engine.schedule(pod("q", cpu="700m")).node is None


def test_a_terminated_pod_takes_no_room() -> None:
    engine = engine_with(node("a", cpu="1"))
    engine.set_pod(pod("p", "a", cpu="1"))
    engine.set_pod(pod("p", "a", cpu="1", status={"phase": "Succeeded"}))
    assert engine.schedule(pod("q", cpu="1")).node == "a"


def test_pods_seen_before_their_node_are_counted_when_it_is_added() -> None:
    engine = engine_with(node("other", unschedulable=True))
    engine.set_pod(pod("early", "late", cpu="3"))
    engine.set_node(node("late"))
    assert engine.schedule(pod("q", cpu="2")).node is None
    engine.remove_node("late")
    engine.remove_pod("default", "early")
    engine.set_node(node("late"))
    assert engine.schedule(pod("q", cpu="2")).node == "late"


def test_nominated_room_is_not_given_to_pods_of_lower_priority() -> None:
    engine = engine_with(node("a", cpu="2"))
    preemptor = pod("preemptor", cpu="2", priority=100)
    engine.set_nominated(preemptor, "a")
    assert engine.schedule(pod("lesser", cpu="1", priority=5)).node is None
    assert engine.schedule(pod("greater", cpu="1", priority=200)).node == "a"
    assert engine.schedule(preemptor).node == "a"  # its own nomination does not count against it
    engine.set_nominated(preemptor, None)
    assert engine.schedule(pod("lesser", cpu="1", priority=5)).node == "a"


def test_affinity_is_not_met_by_a_pod_that_is_only_nominated() -> None:
    zone = {"topology.kubernetes.io/zone": "z"}
    engine = engine_with(node("a", labels=zone), node("b"))
    engine.set_pod(pod("db", "b", labels={"app": "db"}))
    engine.set_nominated(pod("web", labels={"app": "web"}, priority=9), "a")
    terms = [{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "topology.kubernetes.io/zone"}]
    rule = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert engine.schedule(pod("follower", affinity=rule)).node is None


def test_a_nominated_node_is_taken_when_it_fits() -> None:
    engine = engine_with(node("a"), node("b"))
    engine.set_pod(pod("running", "b", cpu="2"))
    assert engine.schedule(pod("p", status={"nominatedNodeName": "b"})).node == "b"
    assert engine.schedule(pod("p", cpu="3", status={"nominatedNodeName": "b"})).node == "a"


def test_profiles_are_chosen_by_scheduler_name() -> None:
    packing = default_profile(
        "packing",
        args={"NodeResourcesFit": {"scoringStrategy": {"type": "MostAllocated"}}},
        weights={"NodeResourcesFit": 50},
    )
    engine = Engine([default_profile(), packing])
    for each in (node("busy"), node("idle")):
        engine.set_node(each)
    engine.set_pod(pod("running", "busy", cpu="2", memory="4Gi"))
    assert engine.schedule(pod("p")).node == "idle"
    assert engine.schedule(pod("p", schedulerName="packing")).node == "busy"
    assert engine.schedule(pod("p"), profile="packing").node == "busy"
    with pytest.raises(UnknownProfile, match="profile not found"):
        engine.schedule(pod("p", schedulerName="nobody"))


def test_gates_keep_a_pod_out_of_the_queue() -> None:
    status = engine_with(node("a")).pre_enqueue(pod("p", schedulingGates=[{"name": "one"}, {"name": "two"}]))
    assert (status.plugin, status.message) == ("SchedulingGates", "waiting for scheduling gates: [one two]")


def test_a_pod_resized_in_place_counts_with_the_larger_of_spec_and_status() -> None:
    engine = engine_with(node("a", cpu="2"))
    using = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}]}
    engine.set_pod(pod("shrinking", "a", cpu="200m", status=using))
    assert engine.schedule(pod("p", cpu="1")).node is None
    engine.set_pod(pod("shrinking", "a", cpu="200m"))
    assert engine.schedule(pod("p", cpu="1")).node == "a"


def test_only_events_that_can_help_wake_a_pod() -> None:
    engine = engine_with(node("a", cpu="1"))
    waiting = pod("p", cpu="2")

    def wakes(action: Action, old: Any, new: Any, kind: str = "Node") -> bool:
        return engine.wakes(waiting, ["NodeResourcesFit"], ClusterEvent(kind, action, old, new))

    assert wakes(Action.ADD, None, node("b", cpu="4"))
    assert not wakes(Action.ADD, None, node("b", cpu="1"))
    assert wakes(Action.UPDATE_NODE_ALLOCATABLE, node("a", cpu="1"), node("a", cpu="4"))
    assert not wakes(Action.UPDATE_NODE_LABEL, node("a", cpu="1"), node("a", cpu="4"))
    assert wakes(Action.DELETE, pod("q", "a"), None, "Pod")
    assert not wakes(Action.DELETE, pod("q"), None, "Pod")
