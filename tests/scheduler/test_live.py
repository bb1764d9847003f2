"""The live scheduler over the store in process, in virtual time: what users see of its decisions."""

from collections.abc import Callable
from typing import Any

import pytest

from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds.builtin import EVENTS, NODES, PODS
from wharfinger.node.annotations import SHUTDOWN_AFTER
from wharfinger.scenario import applying
from wharfinger.scenario.document import ScenarioFault
from wharfinger.simulate.cluster import SimulatedCluster

Document = dict[str, Any]
START = 1767225600.0


def node(name: str, cpu: str = "4", **labels: str) -> Document:
    room = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": room, "capacity": room},
    }


def pod(name: str, cpu: str = "1", priority: int | None = None, **spec: Any) -> Document:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **({"priority": priority} if priority is not None else {}), **spec},
    }


def klass(name: str, value: int) -> Document:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


class Stage:
    """A world with few words."""

    def __init__(self, **configuration: Any) -> None:
        self.world = SimulatedCluster(Configuration(**configuration), start=START)
        self.world.start()
        self.client = self.world.client("", lambda warning: None)

    def do(self, work: Callable[[], Any]) -> None:
        async def run() -> None:
            await work()
            await self.world.settle()

        self.world.loop.complete(run())

    def apply(self, *documents: Document) -> None:
        async def work() -> None:
            for document in documents:
                await applying.apply(self.client, document, self.world.registry)

        self.do(work)

    def delete(self, name: str) -> None:
        self.do(lambda: self.client.delete(PODS, name, "default", grace_period=0))

    def fault(self, **fault: Any) -> None:
        self.world.loop.complete(self.world.fault(ScenarioFault(**fault)))

    def nodes_of(self, *names: str) -> list[str]:
        return [self.pod(name)["spec"].get("nodeName", "") for name in names]

    def pod(self, name: str) -> Document:
        found = self.world.store.peek(PODS, name, "default")
        assert found is not None, name
        return found.document()

    def scheduled(self, name: str) -> Document:
        conditions = self.pod(name)["status"].get("conditions", [])
        return next((each for each in conditions if each["type"] == "PodScheduled"), {})

    def events(self, reason: str) -> list[str]:
        return [event["message"] for event in self.world.objects(EVENTS) if event["reason"] == reason]


@pytest.fixture
def stage() -> Any:
    made = Stage()
    yield made
    made.world.close()


def test_a_pod_is_bound_and_the_events_say_so(stage: Stage) -> None:
    stage.apply(node("n1"), pod("a"))
    assert stage.nodes_of("a") == ["n1"]
    assert stage.scheduled("a")["status"] == "True"
    assert stage.events("Scheduled") == ["Successfully assigned default/a to n1"]
    assert stage.pod("a")["status"]["phase"] == "Running"


def test_what_fits_nowhere_says_why_and_goes_on_when_a_node_comes(stage: Stage) -> None:
    stage.apply(node("n1", "2"), node("n2", "1"), pod("big", "3"))
    condition = stage.scheduled("big")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert stage.world.scheduler is not None
    assert stage.world.scheduler.diagnosis(("default", "big")) == {"Insufficient cpu": 2}
    stage.apply(node("n3", "4"))
    assert stage.nodes_of("big") == ["n3"]


def test_without_any_node_pods_wait_for_the_first(stage: Stage) -> None:
    stage.apply(pod("a"))
    assert stage.scheduled("a")["message"] == "no nodes available to schedule pods"
    stage.apply(node("n1"))
    assert stage.nodes_of("a") == ["n1"]


def test_more_important_pods_go_first(stage: Stage) -> None:
    stage.apply(klass("high", 1000), pod("low", "3"), pod("high", "3", priorityClassName="high"), node("n1"))
    assert stage.nodes_of("low", "high") == ["", "n1"]


def test_gated_pods_wait_until_the_gates_are_taken_away(stage: Stage) -> None:
    stage.apply(node("n1"), pod("a", schedulingGates=[{"name": "hold"}]))
    assert stage.nodes_of("a") == [""]
    stage.do(lambda: stage.client.patch(PODS, "a", {"spec": {"schedulingGates": None}}, "default"))
    assert stage.nodes_of("a") == ["n1"]


def test_pods_of_other_schedulers_are_left_alone_but_counted(stage: Stage) -> None:
    stage.apply(node("n1"), pod("other", "3", schedulerName="someone-else"))
    assert stage.nodes_of("other") == [""]
    stage.apply(pod("bound", "3", nodeName="n1"), pod("mine", "2"))
    assert stage.nodes_of("mine") == [""]


def test_a_failed_binding_gives_the_room_back_and_the_pod_is_tried_again(stage: Stage) -> None:
    stage.fault(bind="fail", count=1)
    stage.apply(node("n1", "1"), pod("a"))
    assert stage.nodes_of("a") == ["n1"]
    assert any("binding rejected" in message for message in stage.events("FailedScheduling"))


def test_a_failed_binding_lets_another_pod_have_the_room(stage: Stage) -> None:
    stage.fault(bind="fail", count=1)
    stage.apply(node("n1", "1"), pod("a"), pod("b"))
    assert sorted(stage.nodes_of("a", "b")) == ["", "n1"]


def test_slow_bindings_are_counted_at_once(stage: Stage) -> None:
    stage.fault(bind="slow", count=4, delay=30.0)
    stage.apply(node("n1", "2"), *(pod(f"p{i}") for i in range(4)))
    assert sorted(stage.nodes_of("p0", "p1", "p2", "p3")) == ["", "", "n1", "n1"]


def test_a_restart_in_the_middle_of_binding_loses_nothing_and_binds_nothing_twice(stage: Stage) -> None:
    async def work() -> None:
        await stage.world.fault(ScenarioFault(bind="slow", count=3, delay=30.0))
        for document in (node("n1", "2"), *(pod(f"p{i}") for i in range(3))):
            await applying.apply(stage.client, document, stage.world.registry)
        await stage.world.loop.still()
        await stage.world.fault(ScenarioFault(restart="scheduler"))

    stage.do(work)
    assert sorted(stage.nodes_of("p0", "p1", "p2")) == ["", "n1", "n1"]


def test_preemption_evicts_the_less_important_and_takes_their_place(stage: Stage) -> None:
    stage.apply(klass("high", 1000), node("n1", "2"), pod("low", "2"))
    assert stage.nodes_of("low") == ["n1"]
    stage.apply(pod("high", "2", priorityClassName="high"))
    assert stage.nodes_of("high") == ["n1"]
    assert stage.world.store.peek(PODS, "low", "default") is None
    assert len(stage.events("Preempted")) == 1


def lingering(name: str) -> Document:
    """A pod that takes its time to end."""
    document = pod(name, "2", terminationGracePeriodSeconds=600)
    document["metadata"]["annotations"] = {SHUTDOWN_AFTER: "300s"}
    return document


def test_a_more_important_preemptor_takes_the_nomination_of_a_lesser_one_away(stage: Stage) -> None:
    stage.apply(klass("mid", 100), klass("high", 1000), node("n1", "4"), lingering("a"), lingering("b"))
    seen: list[str | None] = []

    async def work() -> None:
        for document in (pod("mid", "2", priorityClassName="mid"), pod("high", "4", priorityClassName="high")):
            await applying.apply(stage.client, document, stage.world.registry)
            await stage.world.loop.still()
            seen.append(stage.pod("mid")["status"].get("nominatedNodeName"))
        seen.append(stage.pod("high")["status"].get("nominatedNodeName"))

    stage.do(work)
    assert seen == ["n1", None, "n1"]
    assert stage.nodes_of("high", "mid") == ["n1", ""]


def test_a_nomination_ends_when_evictions_help_nowhere_any_more(stage: Stage) -> None:
    stage.apply(klass("high", 1000), node("n1", "2"), lingering("low"))
    seen: list[str | None] = []

    async def work() -> None:
        await applying.apply(stage.client, pod("high", "2", priorityClassName="high"), stage.world.registry)
        await stage.world.loop.still()
        seen.append(stage.pod("high")["status"].get("nominatedNodeName"))
        await stage.client.delete(NODES, "n1")
        await applying.apply(stage.client, node("n2", "1"), stage.world.registry)

    stage.do(work)
    assert seen == ["n1"]
    assert "nominatedNodeName" not in stage.pod("high")["status"]


def test_nothing_is_preempted_when_the_policy_says_never(stage: Stage) -> None:
    stage.apply(
        klass("high", 1000) | {"preemptionPolicy": "Never"},
        node("n1", "2"),
        pod("low", "2"),
        pod("high", "2", priorityClassName="high"),
    )
    assert stage.nodes_of("high") in ([""], ["n1"])
    stage.apply(pod("higher", "2", priorityClassName="high"))
    assert stage.nodes_of("higher") == [""]
    assert not stage.events("Preempted")


def test_room_that_a_finished_pod_leaves_is_used(stage: Stage) -> None:
    stage.apply(node("n1", "1"), pod("a"), pod("b"))
    waiting = "a" if stage.nodes_of("a") == [""] else "b"
    stage.delete("b" if waiting == "a" else "a")
    assert stage.nodes_of(waiting) == ["n1"]


def test_a_node_that_loses_its_taint_is_used(stage: Stage) -> None:
    tainted = node("n1")
    tainted["spec"] = {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
    stage.apply(tainted, pod("a"))
    assert "untolerated taint" in stage.scheduled("a")["message"]
    stage.do(lambda: stage.client.patch(NODES, "n1", {"spec": {"taints": None}}))
    assert stage.nodes_of("a") == ["n1"]


def test_a_pod_deleted_while_it_is_being_bound_gives_its_room_back(stage: Stage) -> None:
    async def work() -> None:
        await stage.world.fault(ScenarioFault(bind="slow", count=1, delay=5.0))
        for document in (node("n1", "1"), pod("a")):
            await applying.apply(stage.client, document, stage.world.registry)
        await stage.world.loop.still()
        await stage.client.delete(PODS, "a", "default", grace_period=0)
        await applying.apply(stage.client, pod("b"), stage.world.registry)

    stage.do(work)
    assert stage.nodes_of("b") == ["n1"]
