"""Feasibility across clusters: what fits on the members of a fleet, as their agents count it, decides placements."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.systems.placement.hub import Hub, binding, cluster, placement
from tests.systems.placement.members import node

from wharfinger.api.errors import Invalid, ServiceUnavailable
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NAMESPACES, NODES, POD_TEMPLATES, PODS
from wharfinger.api.node_groups import BadNodeGroup, NodeGroup, read_group
from wharfinger.api.registry import Document
from wharfinger.api.requests import ApiRequest
from wharfinger.api.views import Node
from wharfinger.api.views.base import view
from wharfinger.client.local import LocalClient
from wharfinger.engine import Engine
from wharfinger.scheduler import profiles
from wharfinger.store import Store
from wharfinger.systems.placement.kinds.names import ADDON_PLACEMENT_SCORES, MANAGED_CLUSTERS, PLACEMENTS
from wharfinger.systems.placement.rules.capacity import (
    ANSWER,
    QUESTION,
    CapacityAnswer,
    CapacityQuestion,
    question_name,
    read_question,
    schedulable_part,
    template_key,
)
from wharfinger.systems.placement.rules.fitting import answer_question, example_pod
from wharfinger.systems.placement.scores.capacity import CapacityAgent, CapacityTiming, SteadyCount

GPU = "nvidia.com/gpu"
CAPACITY = "wharfinger.dev/capacity"
NAME = "capacity.ns1.trainer"


def pod_spec(gpus: int = 1, cpu: str = "1") -> Document:
    resources = {"requests": {"cpu": cpu}, "limits": {GPU: str(gpus)}}
    secret = [{"name": "PASSWORD", "value": "s3cret"}]
    return {"containers": [{"name": "c", "image": "x", "command": ["train"], "env": secret, "resources": resources}]}


def template(name: str = "trainer", gpus: int = 1) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "namespace": "ns1"},
        "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec(gpus)},
    }


def needing(replicas: int = 12, name: str = "p", number: int | None = None, **more: Any) -> Document:
    need = {"podTemplate": "trainer", "replicas": replicas, **more}
    return placement(number, name=name, annotations={CAPACITY: json.dumps(need)})


def gpu_node(name: str, gpus: int, **labels: str) -> Document:
    made = node(name, "64", "256Gi")
    for part in ("capacity", "allocatable"):
        made["status"][part] = {**made["status"][part], GPU: str(gpus), "pods": "110"}
    made["metadata"]["labels"] = labels
    return made


def group(gpus: int, max_size: int, name: str = "gpu-pool") -> NodeGroup:
    capacity = {"cpu": "64", "memory": "256Gi", GPU: str(gpus)}
    return read_group(
        {
            "apiVersion": "wharfinger.dev/v1alpha1",
            "kind": "NodeGroup",
            "metadata": {"name": name},
            "spec": {"maxSize": max_size, "template": {"capacity": capacity}},
        }
    )


class GpuMember:
    """A member cluster with one GPU node, and its capacity agent."""

    def __init__(self, hub: Hub, name: str, gpus: int, *groups: NodeGroup) -> None:
        self.hub = hub
        self.client = LocalClient(Store(hub.registry, now=hub.clock.now))
        self._run(self.client.create(NAMESPACES, {"metadata": {"name": "ns1"}}))
        self.set_node(gpu_node("n1", gpus))
        timing = CapacityTiming(interval=10, settle=30, valid_for=300)
        self.agent = CapacityAgent(name, self.client, hub.client, hub.registry, groups, timing, hub.clock)
        self.task: asyncio.Task[None] | None = None

    def _run(self, work: Any) -> Any:
        return self.hub.run(work)

    def set_node(self, made: Document) -> None:
        name = made["metadata"]["name"]
        self._run(self.client.create(NODES, made))
        self._run(self.client.patch(NODES, name, {"status": made["status"]}, subresource="status"))

    def add_pod(self, name: str, gpus: int) -> None:
        spec = {**pod_spec(gpus), "nodeName": "n1"}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns1"}, "spec": spec}
        self._run(self.client.create(PODS, document, "ns1"))

    def remove_pod(self, name: str) -> None:
        self._run(self.client.delete(PODS, name, "ns1", grace_period=0))

    def start(self) -> GpuMember:
        self.task = self.hub.loop.create_task(self.agent.run())
        self.hub.settle()
        return self

    def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        self.hub.settle()


def fleet(hub: Hub) -> None:
    hub.apply(binding(), cluster("lisbon"), cluster("porto"), template())


def answer(hub: Hub, name: str) -> tuple[int, int, int]:
    found = json.loads(hub.get(ADDON_PLACEMENT_SCORES, NAME, name)["metadata"]["annotations"][ANSWER])
    return found["now"], found["afterScaleUp"], found["replicas"]


def test_clusters_are_selected_by_what_fits_on_them() -> None:
    with Hub() as hub:
        fleet(hub)
        hub.apply(needing(12))
        assert hub.selected() == []  # nobody has answered
        lisbon = GpuMember(hub, "lisbon", 3).start()
        GpuMember(hub, "porto", 16).start()
        assert answer(hub, "lisbon") == (3, 3, 12)
        assert answer(hub, "porto") == (12, 12, 12)
        assert hub.selected() == ["porto"]
        status = hub.get(ADDON_PLACEMENT_SCORES, NAME, "lisbon")["status"]
        assert {each["name"]: each["value"] for each in status["scores"]} == {
            "fitsNow": 3,
            "fitsAfterScaleUp": 3,
            "share": 25,
        }
        (fits,) = [each for each in status["conditions"] if each["type"] == "wharfinger.dev/Fits"]
        assert (fits["status"], fits["reason"]) == ("False", "DoesNotFit")
        assert fits["message"] == f"3 of 12 fit (Insufficient {GPU})"
        story = hub.scheduling.explain(("ns1", "p"))
        assert story is not None
        told = {each.name: (each.plugin, each.reason, each.capacity) for each in story.clusters}
        assert told["lisbon"] == ("Capacity", f"3 of 12 fit (Insufficient {GPU})", f"3 of 12 fit (Insufficient {GPU})")
        assert told["porto"] == ("", "", "12 of 12 fit")
        lisbon.set_node(gpu_node("n2", 9))
        hub.advance(60)
        assert hub.selected() == ["lisbon", "porto"]


def test_each_placement_has_its_own_minimum_and_may_count_on_scale_up() -> None:
    with Hub() as hub:
        fleet(hub)
        hub.apply(
            needing(12),
            needing(12, "some", minPerCluster=3),
            needing(12, "later", count="AfterScaleUp"),
            needing(2, "few"),
        )
        GpuMember(hub, "lisbon", 3, group(4, 2)).start()
        GpuMember(hub, "porto", 1, group(4, 10)).start()
        assert answer(hub, "lisbon") == (3, 11, 12)
        assert answer(hub, "porto") == (1, 12, 12)
        assert hub.selected() == []
        assert hub.selected("some") == ["lisbon"]
        assert hub.selected("later") == ["porto"]
        assert hub.selected("few") == ["lisbon"]
        question = read_question(hub.get(ADDON_PLACEMENT_SCORES, NAME, "porto")["metadata"]["annotations"])
        assert question is not None and question.replicas == 12  # one question for all of them


def test_what_the_hub_tells_agents_is_no_more_than_they_need() -> None:
    with Hub() as hub:
        fleet(hub)
        hub.apply(needing())
        text = hub.get(ADDON_PLACEMENT_SCORES, NAME, "lisbon")["metadata"]["annotations"][QUESTION]
        assert "s3cret" not in text and "train" not in json.loads(text)["template"]["spec"]["containers"][0]
        assert "command" not in text
        assert GPU in text


def test_questions_follow_placements_templates_and_clusters() -> None:
    with Hub() as hub:
        fleet(hub)

        def asked() -> list[str]:
            return [name for name in ("lisbon", "porto", "faro") if hub.find(ADDON_PLACEMENT_SCORES, NAME, name)]

        assert asked() == []
        hub.apply(needing())
        assert asked() == ["lisbon", "porto"]
        hub.apply(cluster("faro"))
        assert asked() == ["lisbon", "porto", "faro"]
        hub.delete(ADDON_PLACEMENT_SCORES, NAME, "faro")
        assert asked() == ["lisbon", "porto", "faro"]  # put back
        hub.patch(ADDON_PLACEMENT_SCORES, NAME, {"metadata": {"annotations": {QUESTION: "{}"}}}, "faro")
        assert read_question(hub.get(ADDON_PLACEMENT_SCORES, NAME, "faro")["metadata"]["annotations"]) is not None
        hub.patch(POD_TEMPLATES, "trainer", {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}, "ns1")
        question = read_question(hub.get(ADDON_PLACEMENT_SCORES, NAME, "faro")["metadata"]["annotations"])
        assert question is not None and question.template["spec"]["nodeSelector"] == {"zone": "a"}
        hub.patch(MANAGED_CLUSTERS, "faro", {"metadata": {"finalizers": ["x/y"]}})
        hub.delete(MANAGED_CLUSTERS, "faro")
        assert asked() == ["lisbon", "porto"]
        hub.patch(PLACEMENTS, "p", {"metadata": {"annotations": {CAPACITY: None}}}, "ns1")
        assert asked() == []
        hub.apply(needing())
        assert asked() == ["lisbon", "porto"]
        hub.stop()
        hub.run(hub.client.delete(PLACEMENTS, "p", "ns1"))
        hub.start()
        hub.advance(60)
        assert asked() == []  # left over from before the restart
        hub.apply(needing())
        hub.delete(POD_TEMPLATES, "trainer", "ns1")
        assert asked() == []
        assert any("PodTemplate trainer" in event["message"] for event in hub.events("PodTemplateNotFound"))


def test_only_clusters_that_a_placement_can_select_are_asked() -> None:
    with Hub() as hub:
        hub.apply(
            binding(name="default"),
            cluster("lisbon"),
            cluster("porto", {"cluster.open-cluster-management.io/clusterset": "other"}),
            template(),
            needing(),
        )
        assert hub.find(ADDON_PLACEMENT_SCORES, NAME, "lisbon") is not None
        assert hub.find(ADDON_PLACEMENT_SCORES, NAME, "porto") is None


@pytest.mark.parametrize(("when", "kept"), [("Keep", ["porto"]), ("Remove", [])])
def test_a_workload_does_not_drive_itself_away(when: str, kept: list[str]) -> None:
    with Hub() as hub:
        fleet(hub)
        hub.apply(needing(12, whenSelected=when))
        porto = GpuMember(hub, "porto", 16).start()
        assert hub.selected() == ["porto"]
        for number in range(12):
            porto.add_pod(f"trainer-{number}", 1)  # the workload arrives
        hub.advance(15)
        assert answer(hub, "porto") == (4, 4, 12)
        assert hub.selected() == kept


def test_answers_expire_with_their_agent_and_come_back() -> None:
    with Hub() as hub:
        fleet(hub)
        hub.apply(needing(12, whenSelected="Remove"))
        porto = GpuMember(hub, "porto", 16).start()
        hub.advance(1000)
        assert hub.selected() == ["porto"]  # renewed
        porto.stop()
        hub.advance(301)
        assert hub.selected() == []
        story = hub.scheduling.explain(("ns1", "p"))
        assert story is not None
        assert {each.name: each.reason for each in story.clusters}["porto"] == "the answer of its agent has expired"
        porto.start()
        hub.advance(1)
        assert hub.selected() == ["porto"]


class FlakyClient(LocalClient):
    """Its server can be down. Watches are short, so that they notice."""

    down = False

    async def send(self, request: ApiRequest[Any]) -> Any:
        if self.down:
            raise ServiceUnavailable("connection refused")
        return await super().send(request)

    async def stream(self, request: ApiRequest[Any]) -> AsyncIterator[Any]:
        if self.down:
            raise ServiceUnavailable("connection refused")
        async for event in super().stream(replace(request, timeout=5)):
            yield event


def test_an_answer_is_not_renewed_while_the_member_cannot_be_followed() -> None:
    with Hub() as hub:
        fleet(hub)
        hub.apply(needing(12, whenSelected="Remove"))
        porto = GpuMember(hub, "porto", 16)
        flaky = FlakyClient(porto.client.store)
        porto.agent.member = flaky
        porto.start()
        hub.advance(600)
        assert hub.selected() == ["porto"]
        flaky.down = True
        hub.advance(350)
        assert hub.selected() == []
        flaky.down = False
        hub.advance(120)
        assert hub.selected() == ["porto"]


def test_an_answer_to_an_earlier_question_does_not_count() -> None:
    with Hub() as hub:
        fleet(hub)
        hub.apply(needing(4))
        porto = GpuMember(hub, "porto", 8).start()
        hub.advance(20)
        assert hub.selected() == ["porto"]
        porto.stop()
        hub.apply(needing(12), needing(4, "new"))
        assert hub.selected("new") == []  # how many of 12 fit is not known
        porto.start()
        assert answer(hub, "porto") == (8, 8, 12)
        assert hub.selected("new") == ["porto"]


def test_traffic_is_bounded_and_only_changes_are_written() -> None:
    with Hub() as hub:
        fleet(hub)
        hub.apply(needing(12))
        porto = GpuMember(hub, "porto", 16).start()
        hub.advance(100)
        before = porto.agent.writes
        for number in range(200):  # pods come and go without changing the answer
            porto.add_pod(f"small-{number}", 1)
            hub.advance(0.5)
            porto.remove_pod(f"small-{number}")
            hub.advance(0.5)
        assert porto.agent.writes - before <= 2  # renewals
        for number in range(60):  # the answer changes all the time
            porto.add_pod(f"big-{number}", 4 + number % 8)
            hub.advance(2)
            porto.remove_pod(f"big-{number}")
            hub.advance(2)
        rounds = 240 / porto.agent.timing.interval
        assert porto.agent.writes - before <= 2 * rounds + 2
        low = answer(hub, "porto")[0]
        assert low < 12
        hub.advance(60)
        assert answer(hub, "porto") == (12, 12, 12)


def test_numbers_fall_at_once_and_rise_when_they_have_held() -> None:
    count = SteadyCount(30)
    told = [(0, 12, 12), (1, 3, 3), (2, 12, 3), (20, 8, 3), (31, 9, 3), (32, 9, 8), (61, 9, 8), (62, 9, 9), (63, 2, 2)]
    assert [count.update(number, moment) for moment, number, _ in told] == [expected for _, _, expected in told]
    count.update(9, 70)
    assert count.due == 100
    count.update(2, 80)
    assert count.due == float("inf")


def engine_of(*nodes: Document) -> Engine:
    engine = Engine(profiles.load({}).profiles)
    for each in nodes:
        engine.set_node(view(each, Node))
    return engine


def ask(engine: Engine, replicas: int, spec: Document, *groups: NodeGroup, sizes: Any = None) -> CapacityAnswer:
    question = CapacityQuestion(namespace="ns1", replicas=replicas, template={"spec": spec})
    return answer_question(engine, question, example_pod(question, registry()), groups, sizes)


def test_counting_uses_the_whole_engine_and_leaves_it_as_it_was() -> None:
    engine = engine_of(*(gpu_node(f"n{number}", 8, zone="ab"[number % 2]) for number in range(4)))
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "labelSelector": {}}]}
    for _ in range(2):
        assert ask(engine, 100, pod_spec(3)).now == 8
        assert ask(engine, 100, {**pod_spec(), "nodeSelector": {"zone": "a"}}).now == 16
        assert ask(engine, 100, {**pod_spec(), "nodeSelector": {"zone": "c"}}).reason == (
            "node(s) didn't match Pod's node affinity/selector"
        )
        assert ask(engine, 5, {**pod_spec(), "affinity": {"podAntiAffinity": apart}}).now == 2
        assert ask(engine, 5, {**pod_spec(), "schedulingGates": [{"name": "x"}]}).now == 0
        assert ask(engine, 5, pod_spec()).now == 5
    assert not engine.tables.pods
    assert ask(engine_of(), 5, pod_spec()).text == "0 of 5 fit (no nodes)"


def test_scale_up_is_limited_by_the_size_of_groups_and_by_what_they_offer() -> None:
    engine = engine_of(gpu_node("n1", 3))
    assert ask(engine, 12, pod_spec(), group(4, 10)).after_scale_up == 12
    found = ask(engine, 12, pod_spec(), group(4, 3), sizes={"gpu-pool": 2})
    assert (found.now, found.after_scale_up, found.verdict) == (3, 7, "DoesNotFit")
    assert found.text == f"3 of 12 fit (Insufficient {GPU}), 7 after scale-up (Insufficient {GPU})"
    assert ask(engine, 12, pod_spec(), group(4, 2), group(8, 2, "other")).after_scale_up == 12
    never = ask(engine, 2, pod_spec(16), group(8, 100))
    assert (never.now, never.after_scale_up, never.verdict) == (0, 0, "DoesNotFit")
    full = ask(engine, 12, pod_spec(), group(4, 2), sizes={"gpu-pool": 2})
    assert full.after_scale_up == 3
    assert set(engine.tables.row_of) == {"n1"}


@pytest.mark.parametrize(
    ("need", "words"),
    [
        ({}, "podTemplate"),
        ({"podTemplate": "x", "replicas": 0}, ">= 1"),
        ({"podTemplate": "x", "replicas": 3, "minPerCluster": 4}, "at most replicas"),
        ({"podTemplate": "x", "count": "Soon"}, "Soon"),
        ({"podTemplate": "x", "other": 1}, "other"),
    ],
)
def test_a_bad_need_is_refused(need: Document, words: str) -> None:
    with Hub() as hub:
        hub.namespace("ns1")
        with pytest.raises(Invalid, match=words):
            hub.apply(placement(annotations={CAPACITY: json.dumps(need)}))


def test_bad_groups_and_templates_are_refused() -> None:
    with pytest.raises(BadNodeGroup, match="kind"):
        read_group({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"}, "spec": {"template": {}}})
    with pytest.raises(BadNodeGroup, match="spec"):
        read_group({"apiVersion": "wharfinger.dev/v1alpha1", "kind": "NodeGroup", "metadata": {"name": "x"}})
    broken = CapacityQuestion(namespace="ns1", replicas=1, template={"spec": {"containers": 3}})
    with pytest.raises(ValueError, match="not that of a pod"):
        example_pod(broken, registry())


def test_names_lead_back_to_their_template() -> None:
    assert template_key(question_name("ns1", "a.b-c")) == ("ns1", "a.b-c")
    assert template_key("resource-usage") is None
    assert schedulable_part({}) == {"metadata": {}, "spec": {}}
