"""The lifecycle of simulated pods: single steps, and whole lives with a store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec
import pytest
from tests.controllers.world import World

from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.resources import requests
from wharfinger.api.times import format_time
from wharfinger.api.views import Node, Pod, view
from wharfinger.node.addresses import PodAddresses
from wharfinger.node.annotations import exit_code, seconds
from wharfinger.node.capacity import InsufficientResource, NodeUsage
from wharfinger.node.lifecycle import DONE, PodStep, is_settled, next_step, resize_wanted
from wharfinger.node.samples import NodeSample, sample_node

NOW = 1_800_000_000.0


def pod(name: str = "p", *, annotations: dict[str, str] | None = None, **spec: Any) -> Document:
    prefixed = {f"wharfinger.dev/{key}": value for key, value in (annotations or {}).items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": prefixed},
        "spec": {
            "containers": [{"name": "main", "image": "app:1"}],
            "terminationGracePeriodSeconds": 30,
            **spec,
        },
    }


def running(started: float, *, annotations: dict[str, str] | None = None, restarts: int = 0, **spec: Any) -> Pod:
    document = pod(annotations=annotations, **spec)
    document["status"] = {
        "phase": "Running",
        "startTime": format_time(started),
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "restartCount": restarts,
                "state": {"running": {"startedAt": format_time(started)}},
            }
        ],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": format_time(started)}],
    }
    return view(document, Pod)


def step(item: Pod, now: float = NOW) -> PodStep:
    return next_step(item, bound_at=NOW, startup=2.0, now=now, pod_ip="10.0.0.5", host_ip="172.16.0.1")


def test_a_bound_pod_waits_for_its_startup_and_then_runs() -> None:
    item = view(pod(), Pod)
    assert step(item) == PodStep(wait=2.0)
    started = step(item, NOW + 2).status
    assert started is not None
    assert (started["phase"], started["podIP"], started["hostIP"]) == ("Running", "10.0.0.5", "172.16.0.1")
    assert {c["type"] for c in started["conditions"] if c["status"] == "True"} == {
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    }
    assert step(view(pod(annotations={"start-after": "never"}), Pod), NOW + 9999) == PodStep()


@pytest.mark.parametrize(
    ("policy", "code", "phase", "background"),
    [
        ("Never", "0", "Succeeded", False),
        ("Never", "3", "Failed", False),
        ("OnFailure", "0", "Succeeded", False),
        ("OnFailure", "3", None, True),
        ("Always", "0", None, True),
    ],
)
def test_how_a_run_ends(policy: str, code: str, phase: str | None, background: bool) -> None:
    item = running(NOW, annotations={"run-for": "30s", "exit-code": code}, restartPolicy=policy)
    assert step(item, NOW + 10) == PodStep(wait=20.0, background=background)
    ended = step(item, NOW + 30).status
    assert ended is not None
    assert ended.get("phase") == phase
    assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == int(code)


def test_exit_codes_by_attempt_and_durations() -> None:
    annotations = {"wharfinger.dev/exit-code": "1, 2,0"}
    assert [exit_code(annotations, attempt) for attempt in range(5)] == [1, 2, 0, 0, 0]
    assert exit_code({}, 3) == 0
    assert seconds({"a": "90s"}, "a", 1) == 90
    assert seconds({"a": "nonsense"}, "a", 1) == 1
    assert seconds({"a": "never"}, "a", 1) == float("inf")


@pytest.mark.parametrize(("restarts", "wait"), [(0, 0.0), (1, 10.0), (2, 20.0), (9, 300.0)])
def test_restarts_back_off(restarts: int, wait: float) -> None:
    document = pod(annotations={"run-for": "1s", "exit-code": "1"}, restartPolicy="Always")
    state = {"terminated": {"exitCode": 1, "finishedAt": format_time(NOW)}}
    document["status"] = {
        "phase": "Running",
        "startTime": format_time(NOW - 5),
        "containerStatuses": [{"name": "main", "restartCount": restarts, "state": state}],
    }
    item = view(document, Pod)
    again = step(item, NOW + wait).status
    assert again is not None
    assert again["containerStatuses"][0]["restartCount"] == restarts + 1
    if wait:
        assert step(item, NOW) == PodStep(wait=wait, background=True)


def changed_pods() -> Iterator[Pod]:
    """Running pods, each with something that the kubelet may have to act on, or with two such things."""
    amounts = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    changes: list[Document] = [
        {},
        {"metadata": {"annotations": {"wharfinger.dev/run-for": "30s"}}},
        {"metadata": {"annotations": {"wharfinger.dev/ready-after": "60s"}}},
        {"metadata": {"deletionTimestamp": format_time(NOW), "deletionGracePeriodSeconds": 30}},
        {"spec": {"activeDeadlineSeconds": 100}},
        {"spec": {"readinessGates": [{"conditionType": "g"}]}},
        {"spec": {"containers": [{"name": "main", "image": "i", "resources": amounts}]}},
        {"spec": {"containers": [{"name": "main", "image": "i"}, {"name": "more", "image": "i"}]}},
        {"status": {"phase": "Failed"}},
        {"status": {"phase": "Pending"}},
        {"status": {"startTime": ""}},
        {"status": {"conditions": []}},
        {
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodResizePending", "status": "True"}]
            }
        },
    ]
    states: list[Document] = [
        {"state": {"running": {"startedAt": format_time(NOW + 40)}}},
        {"state": {"running": {}}},
        {"state": {"waiting": {"reason": "ContainerCreating"}}},
        {"state": {"waiting": {"reason": "CrashLoopBackOff"}}},
        {"state": {"terminated": {"exitCode": 1, "finishedAt": format_time(NOW)}}},
        {"ready": False},
        {"containerID": "containerd://1"},
        {"resources": {}},
        {"resources": amounts},
        {"resources": {"requests": amounts["requests"]}},
    ]
    plain: Document = msgspec.to_builtins(running(NOW - 60))
    container = plain["status"]["containerStatuses"][0]
    changes += [{"status": {"containerStatuses": [{**container, **state}]}} for state in states]
    changes.append({"status": {"containerStatuses": []}})
    for first, second in product(changes, repeat=2):
        document = dict(plain)
        for part in ("metadata", "spec", "status"):
            document[part] = {**plain[part], **first.get(part, {}), **second.get(part, {})}
        yield view(document, Pod)


def test_nothing_happens_to_settled_pods() -> None:
    found = 0
    for item in changed_pods():
        if is_settled(item, NOW):
            found += 1
            for later in (0.0, 30.0, 3600.0, 1e9):
                assert step(item, NOW + later) == DONE
            assert not resize_wanted(item)
    assert 10 < found < 200
    assert is_settled(running(NOW - 60), NOW)


def test_readiness_waits_for_time_and_gates() -> None:
    gates = {"readinessGates": [{"conditionType": "example.com/ok"}]}
    late = running(NOW, annotations={"ready-after": "20s"})
    not_ready = step(late, NOW + 5).status
    assert not_ready is not None
    assert {c["type"]: c["status"] for c in not_ready["conditions"]}["Ready"] == "False"
    gated = step(running(NOW, **gates), NOW + 5).status
    assert gated is not None
    states = {c["type"]: (c["status"], c.get("reason")) for c in gated["conditions"]}
    assert states["ContainersReady"][0] == "True"
    assert states["Ready"] == ("False", "ReadinessGatesNotReady")


def test_an_active_deadline_ends_the_pod() -> None:
    item = running(NOW, activeDeadlineSeconds=60)
    assert step(item, NOW + 10) == PodStep(wait=50.0, background=True)
    ended = step(item, NOW + 60).status
    assert ended is not None
    assert (ended["phase"], ended["reason"]) == ("Failed", "DeadlineExceeded")


@pytest.mark.parametrize(
    ("annotations", "grace", "wait"),
    [({}, 30, 0), ({"shutdown-after": "10s"}, 30, 10), ({"shutdown-after": "never"}, 30, 30)],
)
def test_graceful_deletion_waits_for_the_containers(annotations: dict[str, str], grace: int, wait: int) -> None:
    document: Any = pod(annotations=annotations)
    document["metadata"] |= {
        "deletionTimestamp": format_time(NOW + grace),
        "deletionGracePeriodSeconds": grace,
    }
    document["status"] = {"phase": "Running", "containerStatuses": [{"name": "main"}]}
    item = view(document, Pod)
    if wait:
        assert step(item, NOW) == PodStep(wait=float(wait))
    assert step(item, NOW + wait) == PodStep(delete=True)
    document["metadata"]["finalizers"] = ["example.com/hold"]
    held = step(view(document, Pod), NOW + wait)
    assert held.status is not None
    assert held.status["phase"] == "Failed"


def node(**allocatable: str) -> Node:
    return view({"metadata": {"name": "n"}, "status": {"allocatable": {"pods": "2", **allocatable}}}, Node)


def asking(cpu: str, **more: str) -> Pod:
    resources = {"requests": {"cpu": cpu, **more}}
    return view(pod(containers=[{"name": "c", "resources": resources}]), Pod)


def shortage(wanted: Pod, place: Node, others: list[Pod]) -> InsufficientResource | None:
    room = NodeUsage()
    for number, other in enumerate(others):
        room.add(str(number), requests(other))
    return room.insufficient(wanted.metadata.uid, requests(wanted), place)


def test_insufficient_resources_are_reported_with_amounts() -> None:
    assert shortage(asking("1"), node(cpu="2"), [asking("1")]) is None
    short = shortage(asking("1500m"), node(cpu="2"), [asking("1")])
    assert str(short) == "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000"
    full = shortage(asking("0"), node(cpu="2"), [asking("0"), asking("0")])
    assert full is not None
    assert full.resource == "pods"
    assert shortage(asking("1", **{"example.com/gpu": "4"}), node(cpu="2"), []) is None


def test_usage_follows_changed_and_deleted_pods() -> None:
    room = NodeUsage()
    room.add("a", requests(asking("1")))
    room.add("a", requests(asking("2")))
    assert room.insufficient("b", requests(asking("1")), node(cpu="2")) == InsufficientResource("cpu", 1000, 2000, 2000)
    room.remove("a")
    room.remove("a")
    assert room.insufficient("b", requests(asking("1")), node(cpu="2")) is None


def test_addresses_are_reused_after_their_pods_are_deleted() -> None:
    addresses, place = PodAddresses(), view({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.1.2.0/30"}}, Node)
    a, b, c, brought = (
        view({"metadata": {"uid": uid}, "spec": {"nodeName": "n"}, "status": {"podIP": ip}}, Pod)
        for uid, ip in (("a", ""), ("b", ""), ("c", ""), ("d", "10.1.2.2"))
    )
    addresses.observe(brought)
    assert [addresses.allocate(each, place) for each in (a, b, a)] == ["10.1.2.1", "10.1.2.3", "10.1.2.1"]
    assert addresses.allocate(c, place) == "10.1.2.0"  # the range is used up
    addresses.release(brought)
    addresses.release(c)
    assert addresses.allocate(c, place) == "10.1.2.2"


# Against a store


def test_a_pod_that_does_not_fit_is_rejected_by_its_node() -> None:
    with World(nodes=1, sample=NodeSample(cpu="1")) as world:
        resources = {"requests": {"cpu": "800m"}}
        for name in ("a", "b"):
            world.create(
                PODS, pod(name, nodeName="node-1", containers=[{"name": "c", "image": "i", "resources": resources}])
            )
        world.settle()
        states = sorted((p["status"]["phase"], p["status"].get("reason")) for p in world.pods())
        assert states == [("Failed", "OutOfcpu"), ("Running", None)]


def test_a_pod_whose_host_port_is_taken_is_rejected_by_its_node() -> None:
    with World(nodes=1) as world:
        ports = [{"containerPort": 80, "hostPort": 8080}]
        for name in ("a", "b"):
            world.create(PODS, pod(name, nodeName="node-1", containers=[{"name": "c", "image": "i", "ports": ports}]))
        world.settle()
        states = sorted((p["status"]["phase"], p["status"].get("reason")) for p in world.pods())
        assert states == [("Failed", "NodePorts"), ("Running", None)]


def test_pods_continue_after_a_kubelet_restart() -> None:
    with World(nodes=1) as world:
        world.create(PODS, pod(annotations={"run-for": "60s"}, restartPolicy="Never"))
        world.loop.run_to(world.loop.time() + 30)
        world.restart()
        world.settle()
        assert world.get(PODS, "p")["status"]["phase"] == "Succeeded"
        assert world.loop.time() < 65


def test_pods_of_a_failed_node_do_not_change() -> None:
    with World(nodes=1, controllers=["nodelifecycle"]) as world:
        world.create(PODS, pod(annotations={"run-for": "20s"}, restartPolicy="Never"))
        world.loop.run_to(world.loop.time() + 5)
        world.node("node-1", down=True)
        world.advance(100)
        assert world.get(PODS, "p")["status"]["phase"] == "Running"
        world.node("node-1", down=False)
        assert world.get(PODS, "p")["status"]["phase"] == "Succeeded"


def test_addresses_are_unique_and_resizes_are_applied_or_deferred() -> None:
    with World(nodes=1, sample=NodeSample(cpu="2")) as world:
        for name in ("a", "b"):
            resources = {"requests": {"cpu": "500m"}}
            world.create(PODS, pod(name, containers=[{"name": "main", "image": "i", "resources": resources}]))
        world.settle()
        assert len({p["status"]["podIP"] for p in world.pods()}) == 2

        def resize(cpu: str) -> Document:
            change = {"spec": {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}}
            world.patch(PODS, "a", change, subresource="resize")
            return world.get(PODS, "a")["status"]

        granted = resize("1")
        assert granted["containerStatuses"][0]["resources"] == {"requests": {"cpu": "1"}}
        conditions = {c["type"]: c for c in resize("1700m")["conditions"]}
        assert conditions["PodResizePending"]["reason"] == "Deferred"
        conditions = {c["type"]: c for c in resize("5")["conditions"]}
        assert conditions["PodResizePending"]["reason"] == "Infeasible"
        conditions = {c["type"]: c for c in resize("1")["conditions"]}
        assert "PodResizePending" not in conditions


def test_only_labelled_nodes_are_simulated() -> None:
    with World(nodes=0) as world:
        foreign = sample_node(NodeSample(prefix="real"), 0)
        del foreign["metadata"]["labels"]["wharfinger.dev/simulated"]
        world.apply(NODES, foreign)
        assert not (world.get(NODES, "real-1")["status"].get("conditions"))
