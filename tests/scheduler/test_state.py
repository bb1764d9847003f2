"""The scheduling state, driven by events alone: which instructions follow from which history."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.engine.builders import node, pod
from tests.scheduler.driver import Driver, Objects

from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.engine import Engine
from wharfinger.framework.events import NODE, Action, ClusterEvent
from wharfinger.scheduler.instructions import (
    Bind,
    ClearNomination,
    Count,
    Evict,
    Forget,
    PatchPodStatus,
    RecordEvent,
    Wake,
)
from wharfinger.scheduler.pods import PodItems
from wharfinger.scheduler.queue import FLUSH_AFTER
from wharfinger.scheduler.schedulable import SchedulableKinds, SchedulerContext
from wharfinger.scheduler.state import SchedulingState


def test_a_pod_that_fits_is_assumed_bound_and_reported() -> None:
    driver = Driver(node("n1"))
    driver.pod(pod("a", cpu="3"), pod("b", cpu="3"))
    assert driver.taken(Wake) and [count.metric for count in driver.taken(Count)] == ["pod_added"] * 2
    assert driver.schedule() == ["a scheduled", "b unschedulable"], "b finds the room of a taken before a is bound"
    binding = driver.one(Bind)
    assert (binding.item.pod.metadata.name, binding.node, binding.preparations) == ("a", "n1", [])
    driver.taken(RecordEvent)
    driver.bound(binding)
    event = driver.one(RecordEvent)
    assert (event.type, event.reason) == ("Normal", "Scheduled")
    assert event.message == "Successfully assigned default/a to n1"
    assert driver.one(Forget).key == ("default", "a")


def test_a_pod_that_fits_nowhere_is_reported_and_retried_when_a_node_comes() -> None:
    driver = Driver(node("n1", cpu="1"))
    driver.pod(pod("a", cpu="2"))
    assert driver.schedule() == ["a unschedulable"]
    patch, event = driver.one(PatchPodStatus), driver.one(RecordEvent)
    assert (patch.reason, patch.nominated_node) == ("Unschedulable", None)
    assert patch.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert (event.type, event.reason, event.message) == ("Warning", "FailedScheduling", patch.message)
    assert driver.state.diagnosis(("default", "a")) == {"Insufficient cpu": 1}
    assert driver.schedule() == [], "nothing changed"
    driver.now = 1.0
    driver.node(node("n2"))
    assert driver.schedule() == ["a scheduled"]
    assert driver.one(Bind).node == "n2"
    assert driver.state.diagnosis(("default", "a")) == {}


def test_without_any_node_a_pod_waits_for_the_first() -> None:
    driver = Driver()
    driver.pod(pod("a"))
    assert driver.schedule() == ["a unschedulable"]
    assert driver.one(PatchPodStatus).message == "no nodes available to schedule pods"
    driver.now = 1.0
    driver.node(node("n1"))
    assert driver.schedule() == ["a scheduled"]


def test_a_failed_bind_frees_the_room_at_once_and_is_retried_after_its_back_off() -> None:
    driver = Driver(node("n1"))
    driver.pod(pod("a", cpu="3"), pod("b", cpu="3"))
    driver.schedule()
    binding = driver.one(Bind)
    driver.taken(PatchPodStatus)
    driver.now = 2.0
    driver.bind_failed(binding)
    patch = driver.one(PatchPodStatus)
    assert (patch.pod.metadata.name, patch.reason, patch.message) == ("a", "SchedulerError", "binding rejected: no")
    assert driver.schedule() == ["b scheduled"], "a backs off"
    driver.now = 3.0
    assert driver.schedule() == ["a unschedulable"]


def test_an_update_while_a_pod_is_being_bound_does_not_queue_it_again() -> None:
    driver = Driver(node("n1"))
    driver.pod(pod("a"))
    driver.schedule()
    driver.pod(pod("a", labels={"new": "label"}))
    assert driver.schedule() == []
    driver.bind_failed(driver.one(Bind))
    driver.now = 1.0
    assert driver.schedule() == ["a scheduled"]
    assert driver.one(Bind).item.pod.metadata.labels == {"new": "label"}, "the newest is bound"


def test_a_pod_that_is_gone_is_not_retried_and_its_successor_is_queued() -> None:
    driver = Driver(node("n1"))
    first = pod("a")
    driver.pod(first)
    driver.schedule()
    binding = driver.one(Bind)
    driver.delete(first)
    driver.pod(_again(first))
    assert driver.schedule() == [], "the name is busy"
    driver.bind_failed(binding, gone=True)
    assert driver.schedule() == ["a scheduled"]
    assert driver.one(Bind).item.pod.metadata.uid == "another"
    assert len(driver.engine.tables.pods) == 1


_PORT = {"containers": [{"name": "c", "image": "i", "ports": [{"hostPort": 80, "containerPort": 80}]}]}


@pytest.mark.parametrize("refused", [{"cpu": "3"}, _PORT], ids=["room", "port"])
@pytest.mark.parametrize("leaving", ["deleted", "terminating", "bound elsewhere", "failed"])
def test_what_a_pod_gives_back_while_it_is_being_bound_wakes_the_others_at_once(
    leaving: str, refused: dict[str, Any]
) -> None:
    driver = Driver(node("n1"), node("n2", cpu="1", unschedulable=True))
    first, second = pod("a", **refused), pod("b", **refused)
    driver.pod(first)
    driver.schedule()
    binding = driver.one(Bind)
    driver.pod(second)
    assert driver.schedule() == ["b unschedulable"]
    driver.now = 2.0
    if leaving == "deleted":
        driver.delete(first)
    elif leaving == "terminating":
        driver.pod(pod("a", deleted=True, **refused))
    elif leaving == "bound elsewhere":
        driver.run_on(pod("a", "n2", **refused))
    else:
        driver.bind_failed(binding)
    assert driver.schedule() == ["b scheduled"], "no later than its back-off"
    if leaving != "failed":
        driver.bind_failed(binding, gone=leaving == "deleted")
        driver.now = 60.0
        assert driver.schedule() == [], "there is nothing left to bind"


def test_a_preemptor_that_is_being_bound_counts_once() -> None:
    driver, eviction = preempting()
    driver.delete(pod("low", "n1"))
    driver.evicted(eviction)
    assert driver.schedule() == ["high scheduled"]
    assert not driver.engine.tables.nominated
    driver.pod(pod("beside", cpu="1"))
    assert driver.schedule() == ["beside scheduled"], "one CPU is left beside the preemptor"


@pytest.mark.parametrize("leaving", ["deleted", "terminating", "nominated elsewhere", "bound elsewhere"])
def test_room_that_is_no_longer_nominated_wakes_those_that_waited_for_it(leaving: str) -> None:
    driver, eviction = preempting()
    driver.evicted(eviction)
    driver.node(node("n2", cpu="2"))
    driver.pod(pod("low too", cpu="3"))
    driver.delete(pod("low", "n1"))
    driver.now = 1.0
    waiting = next(item for item in driver.state.queue if item.pod.metadata.name == "high")
    driver.state.queue.remove(waiting.key)  # keeps its nomination, but is not tried
    assert driver.schedule() == ["low too unschedulable"]
    driver.now = 3.0
    if leaving == "deleted":
        driver.delete(waiting.pod)
    elif leaving == "terminating":
        driver.pod(pod("high", cpu="3", priority=10, deleted=True))
    elif leaving == "nominated elsewhere":
        gates = [{"name": "hold"}]
        driver.pod(pod("high", cpu="3", priority=10, schedulingGates=gates, status={"nominatedNodeName": "n1"}))
        driver.pod(pod("high", cpu="3", priority=10, schedulingGates=gates, status={"nominatedNodeName": "n2"}))
    else:
        driver.run_on(pod("high", "n2", cpu="3", priority=10))
    assert "low too scheduled" in driver.schedule()


def test_events_during_an_eviction_are_not_lost() -> None:
    driver, eviction = preempting()
    driver.now = 2.0
    driver.node(node("n2"))
    assert driver.schedule() == [], "its victims are being evicted"
    driver.evicted(eviction)
    assert driver.schedule() == ["high scheduled"]


def test_while_victims_terminate_the_message_stays_that_of_the_attempt() -> None:
    driver, eviction = preempting()
    message = driver.one(PatchPodStatus).message
    assert message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    driver.evicted(eviction)
    driver.now = 60.0
    assert driver.schedule() == [] and not driver.taken(PatchPodStatus)
    driver.delete(pod("low", "n1"))
    assert driver.schedule() == ["high scheduled"]


@pytest.mark.parametrize("kubernetes", KubernetesVersion)
def test_before_1_37_a_change_of_taints_retries_who_waits_for_a_new_node(kubernetes: KubernetesVersion) -> None:
    driver = Driver(node("n1", cpu="1"), node("n2", cpu="1"), engine=Engine(kubernetes=kubernetes))
    driver.pod(pod("a", cpu="2"))
    driver.schedule()
    driver.taken(PatchPodStatus)
    driver.now = 2.0
    tainted = node("n2", cpu="1", taints=[{"key": "k", "effect": "NoSchedule"}])
    driver.engine.set_node(tainted)
    driver.state.happened(ClusterEvent(NODE, Action.UPDATE_NODE_TAINT, node("n2", cpu="1"), tainted), driver.now)
    if kubernetes >= KubernetesVersion.V1_37:
        assert driver.schedule() == []
        return
    assert driver.schedule() == ["a unschedulable"]
    assert "1 node(s) had untolerated taint(s)" in driver.one(PatchPodStatus).message


def test_what_another_scheduler_bound_meanwhile_stays() -> None:
    driver = Driver(node("n1"))
    driver.pod(pod("a"))
    driver.schedule()
    binding = driver.one(Bind)
    driver.run_on(pod("a", "n1"))
    driver.bind_failed(binding)
    assert driver.schedule() == [] and len(driver.engine.tables.pods) == 1
    assert not driver.taken(PatchPodStatus)


def preempting() -> tuple[Driver, Evict]:
    driver = Driver(node("n1"))
    driver.run_on(pod("low", "n1", cpu="3"))
    driver.pod(pod("high", cpu="3", priority=10))
    assert driver.schedule() == ["high unschedulable"]
    return driver, driver.one(Evict)


def test_preemption_evicts_and_keeps_the_pod_back_until_that_is_done() -> None:
    driver, eviction = preempting()
    assert [victim.metadata.name for victim in eviction.victims] == ["low"] and eviction.node == "n1"
    assert driver.one(PatchPodStatus).nominated_node == "n1"
    assert "preemption" in [count.metric for count in driver.taken(Count)]
    driver.now = 1.0
    driver.node(node("n2", cpu="1"))
    driver.pod(pod("high", cpu="3", priority=10, labels={"a": "b"}))
    assert driver.schedule() == [], "it is not retried before its victims are evicted"
    driver.delete(pod("low", "n1"))
    driver.evicted(eviction)
    assert driver.schedule() == ["high scheduled"], "at once, though the event of the victim has passed"
    assert driver.one(Bind).node == "n1"


def test_a_failed_eviction_gives_the_nomination_up() -> None:
    driver, eviction = preempting()
    assert driver.engine.tables.nominated
    driver.evicted(eviction, done=False)
    assert not driver.engine.tables.nominated
    assert driver.schedule() == [], "it backs off"
    driver.now = 1.0
    assert driver.schedule() == ["high unschedulable"]
    assert driver.one(Evict).victims


def test_room_that_is_reserved_needs_no_nomination() -> None:
    driver, eviction = preempting()
    driver.state.room_reserved(eviction)
    assert not driver.engine.tables.nominated


def test_a_pod_that_replaced_the_preemptor_meanwhile_is_queued() -> None:
    driver, eviction = preempting()
    driver.delete(eviction.item.pod)
    driver.pod(_again(eviction.item.pod))
    assert driver.schedule() == []
    driver.delete(pod("low", "n1"))
    driver.evicted(eviction)
    assert driver.schedule() == ["high scheduled"]


def test_a_more_important_preemptor_takes_the_nomination_of_another() -> None:
    driver, eviction = preempting()
    driver.evicted(eviction)
    assert driver.schedule() == [], "its victim is still there"
    driver.pod(pod("higher", cpu="3", priority=20))
    assert driver.schedule()[0] == "higher unschedulable"
    assert driver.taken(ClearNomination)[0].pod.metadata.name == "high"
    assert driver.taken(Evict)[0].item.pod.metadata.name == "higher"


def test_terminating_pods_and_those_of_other_schedulers_are_left_alone() -> None:
    driver = Driver(node("n1"))
    driver.pod(pod("leaving", deleted=True), pod("foreign", schedulerName="other"))
    assert driver.schedule() == []


@pytest.mark.parametrize(("limited", "events"), [(True, 1), (False, 0)])
def test_pods_that_others_bind_to_our_nodes_are_reported_where_nodes_are_divided(limited: bool, events: int) -> None:
    driver = Driver(node("n1"), limited=limited)
    driver.run_on(pod("theirs", "n1", schedulerName="other"))
    driver.run_on(pod("elsewhere", "n2", schedulerName="other"))
    assert [event.reason for event in driver.taken(RecordEvent)] == ["ForeignPod"] * events
    assert [count.metric for count in driver.taken(Count)] == ["foreign_pod"] * events


def test_before_everything_is_known_events_retry_nothing() -> None:
    engine, nobody = Engine(), None
    state = SchedulingState(engine, SchedulableKinds(PodItems(SchedulerContext(nobody, nobody, engine, Objects()))))
    state.pending(None, pod("a"), 0.0)
    state.outbox.take()
    state.happened(ClusterEvent(NODE, Action.ADD, None, node("n1")), 0.0)
    assert state.outbox.take() == []


def test_pods_without_an_event_are_retried_after_a_while() -> None:
    driver = Driver(node("n1", cpu="1"))
    driver.pod(pod("a", cpu="2"))
    driver.schedule()
    driver.now = FLUSH_AFTER
    driver.state.flush(driver.now)
    assert driver.schedule() == ["a unschedulable"]


def test_a_decision_that_breaks_is_an_error_of_that_pod_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(node("n1"))
    schedule = driver.engine.schedule

    def broken(wanted: Any) -> Any:
        if wanted.metadata.name == "a":
            raise ValueError("broken")
        return schedule(wanted)

    monkeypatch.setattr(driver.engine, "schedule", broken)
    driver.pod(pod("a"), pod("b"))
    assert driver.schedule() == ["a error", "b scheduled"]
    assert driver.one(PatchPodStatus).message == "ValueError: broken"


def _again(first: Any) -> Any:
    """Another pod of the same name."""
    made = pod(first.metadata.name, priority=first.spec.priority)
    return replace(made, metadata=replace(made.metadata, uid="another"))


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "delete", "schedule", "bind", "fail", "evict", "node", "wait"]), st.integers(0, 5)
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(ACTIONS)
def test_no_history_overcommits_a_node_or_loses_a_pod(actions: list[tuple[str, int]]) -> None:
    driver = Driver(node("n0", cpu="2"))
    bindings: list[Bind] = []
    evictions: list[Evict] = []
    for action, number in actions:
        name = f"p{number}"
        known = driver.pods.get(name, "default")
        if action == "add" and known is None:
            driver.pod(pod(name, cpu="1", priority=number))
        elif action == "delete" and known is not None:
            driver.delete(known)
        elif action == "schedule":
            driver.schedule()
        elif action in ("bind", "fail") and bindings:
            binding = bindings.pop(number % len(bindings))
            if driver.pods.get(*reversed(binding.item.key)) is None:
                driver.bind_failed(binding, gone=True)
            elif action == "bind":
                driver.bound(binding)
            else:
                driver.bind_failed(binding)
        elif action == "evict" and evictions:
            eviction = evictions.pop()
            for victim in eviction.victims:
                if driver.pods.get(victim.metadata.name, "default") is not None:
                    driver.delete(victim)
            driver.evicted(eviction)
        elif action == "node":
            driver.node(node(f"n{number}", cpu="2"))
        driver.now += 1.0
        bindings += driver.taken(Bind)
        evictions += driver.taken(Evict)
        tables = driver.engine.tables
        cpu = tables.resources["cpu"]
        for row in tables.row_of.values():
            assert tables.requested[cpu].cells[row] <= tables.allocatable[cpu].cells[row]
        busy = {binding.item.key for binding in bindings} | {eviction.item.key for eviction in evictions}
        for key, each in driver.pods.by_key.items():
            if not each.spec.node_name:
                assert (key in driver.state.queue) is not (key in busy), "waiting, or busy"
