"""Node lifecycle, taint eviction and pod garbage collection when nodes fail, recover or are deleted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.world import World, workload

from wharfinger.api.kinds.builtin import EVENTS, NODES, PODS, REPLICA_SETS
from wharfinger.api.taints import tolerates
from wharfinger.api.times import format_time
from wharfinger.api.views.nodes import Taint
from wharfinger.api.views.pods import Toleration
from wharfinger.controllers.taint_eviction import evicted_at


def taints(world: World, node: str) -> list[tuple[str, str]]:
    found = world.get(NODES, node)["spec"].get("taints") or []
    return sorted((taint["key"].rpartition("/")[2], taint["effect"]) for taint in found)


def ready(world: World, node: str) -> str:
    conditions = world.get(NODES, node)["status"]["conditions"]
    return str(next(c["status"] for c in conditions if c["type"] == "Ready"))


def tolerating(seconds: int | None) -> dict[str, Any]:
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", **limit}
            for what in ("not-ready", "unreachable")
        ],
    }


def test_a_failed_node_is_tainted_and_its_pods_are_evicted_until_it_recovers() -> None:
    with World(nodes=2) as world:
        document = workload(REPLICA_SETS, "web", replicas=4)
        document["spec"]["template"]["spec"] |= tolerating(300)
        world.apply(REPLICA_SETS, document)
        there = {pod["metadata"]["name"] for pod in world.pods() if pod["spec"]["nodeName"] == "node-1"}
        assert len(there) == 2
        world.node("node-1", down=True)
        assert ready(world, "node-1") == "Unknown"
        assert taints(world, "node-1") == [("unreachable", "NoExecute"), ("unreachable", "NoSchedule")]
        assert world.get(REPLICA_SETS, "web")["status"]["readyReplicas"] == 2
        assert {p["metadata"]["name"] for p in world.pods() if p["spec"]["nodeName"] == "node-1"} == there
        world.advance(310)
        assert world.get(REPLICA_SETS, "web")["status"]["readyReplicas"] == 4
        stuck = [pod for pod in world.pods() if pod["spec"]["nodeName"] == "node-1"]
        assert all(pod["metadata"].get("deletionTimestamp") for pod in stuck)
        assert len(stuck) == 2  # nobody is there to finish their deletion
        world.node("node-1", down=False)
        assert (ready(world, "node-1"), taints(world, "node-1")) == ("True", [])
        assert [pod for pod in world.pods() if pod["spec"]["nodeName"] == "node-1"] == []


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_node_monitoring_is_independent_of_wall_clock_changes(jump: float) -> None:
    with World(nodes=2, heartbeats=True) as world:
        world.apply(REPLICA_SETS, workload(REPLICA_SETS, "web", replicas=2))
        world.advance(200)
        world.set_clock(jump)
        for node in ("node-1", "node-2"):
            world.patch(NODES, node, {"metadata": {"annotations": {"looked": "at"}}})
        world.patch(REPLICA_SETS, "web", {"spec": {"replicas": 4}})
        world.advance(30)
        assert [ready(world, "node-1"), ready(world, "node-2")] == ["True", "True"]
        assert world.get(REPLICA_SETS, "web")["status"]["readyReplicas"] == 4
        world.patch(NODES, "node-1", {"metadata": {"annotations": {"wharfinger.dev/down": "true"}}})
        world.advance(100)
        assert [ready(world, "node-1"), ready(world, "node-2")] == ["Unknown", "True"]


def test_a_cancelled_eviction_is_reported() -> None:
    with World(nodes=1) as world:
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}], **tolerating(300)}}
        world.apply(PODS, pod)
        world.node("node-1", down=True)
        world.advance(100)
        world.node("node-1", down=False)
        world.advance(1)
        told = [event["message"] for event in world.list(EVENTS) if event["reason"] == "TaintManagerEviction"]
        assert told == ["Cancelling deletion of Pod default/p"]
        assert "taints" not in world.get(NODES, "node-1")["spec"]


def test_nodes_are_registered_and_get_the_deprecated_labels() -> None:
    with World(nodes=0, heartbeats=True) as world:
        world.apply(NODES, {"metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}}})
        assert world.get(NODES, "n")["metadata"]["labels"]["beta.kubernetes.io/os"] == "linux"
        world.delete(NODES, "n")
        world.advance(1)
        told = [event["message"] for event in world.list(EVENTS) if event["involvedObject"]["kind"] == "Node"]
        assert told == [
            "Node n event: Registered Node n in Controller",
            "Node n event: Removing Node n from Controller",
        ]


def test_a_node_that_comes_back_in_time_keeps_its_pods() -> None:
    with World(nodes=2) as world:
        document = workload(REPLICA_SETS, "web", replicas=2)
        document["spec"]["template"]["spec"] |= tolerating(300)
        world.apply(REPLICA_SETS, document)
        before = {pod["metadata"]["uid"] for pod in world.pods()}
        world.node("node-2", down=True)
        world.advance(100)
        world.node("node-2", down=False)
        world.advance(600)
        assert {pod["metadata"]["uid"] for pod in world.pods()} == before
        assert world.get(REPLICA_SETS, "web")["status"]["readyReplicas"] == 2


def test_the_eviction_deadline_survives_a_restart() -> None:
    with World(nodes=1) as world:
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], **tolerating(300)}}
        world.apply(PODS, pod)
        world.node("node-1", down=True)
        world.advance(200)
        world.restart()
        assert not world.get(PODS, "p")["metadata"].get("deletionTimestamp")
        world.advance(110)
        gone = world.get(PODS, "p")
        assert gone["metadata"]["deletionTimestamp"]
        target = next(c for c in gone["status"]["conditions"] if c["type"] == "DisruptionTarget")
        assert target["reason"] == "DeletionByTaintManager"


def test_a_taint_without_time_counts_from_when_it_was_first_seen() -> None:
    with World(nodes=1) as world:
        toleration = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        spec = {"containers": [{"name": "c", "image": "i"}], "tolerations": [toleration]}
        world.apply(PODS, {"metadata": {"name": "p"}, "spec": spec})
        world.patch(NODES, "node-1", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})
        world.advance(50)
        world.patch(NODES, "node-1", {"metadata": {"labels": {"touched": "yes"}}})
        assert world.exists(PODS, "p")
        world.advance(15)
        assert not world.exists(PODS, "p")


def test_finished_pods_leave_a_tainted_node_too() -> None:
    with World(nodes=1) as world:
        done = {"name": "p", "annotations": {"wharfinger.dev/run-for": "1s"}}
        spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        world.apply(PODS, {"metadata": done, "spec": spec})
        world.advance(5)
        assert world.get(PODS, "p")["status"]["phase"] == "Succeeded"
        world.patch(NODES, "node-1", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})
        world.advance(1)
        assert not world.exists(PODS, "p")


def test_pods_of_a_deleted_node_are_deleted_after_the_quarantine() -> None:
    with World(nodes=2) as world:
        world.apply(REPLICA_SETS, workload(REPLICA_SETS, "web", replicas=2))
        world.delete(NODES, "node-2")
        assert {pod["spec"]["nodeName"] for pod in world.pods()} == {"node-1"}
        assert world.get(REPLICA_SETS, "web")["status"]["readyReplicas"] == 2


def test_a_new_node_that_the_server_tainted_becomes_schedulable() -> None:
    with World(nodes=0) as world:
        from wharfinger.node.samples import NodeSample, sample_node

        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        world.apply(NODES, sample_node(NodeSample(taints=[taint]), 0))
        assert (ready(world, "node-1"), taints(world, "node-1")) == ("True", [])
        world.patch(NODES, "node-1", {"spec": {"unschedulable": True}})
        assert taints(world, "node-1") == [("unschedulable", "NoSchedule")]


NOW = 1_000_000.0


def no_execute(key: str, value: str = "", ago: float = 10) -> Taint:
    return Taint(key=key, value=value, effect="NoExecute", time_added=format_time(NOW - ago))


CASES = [
    ("an untolerated taint evicts at once", [], [no_execute("a")], NOW),
    ("another effect does not count", [], [Taint(key="a", effect="NoSchedule")], None),
    ("a toleration without a limit holds for ever", [Toleration(key="a", operator="Exists")], [no_execute("a")], None),
    (
        "a limit counts from when the taint came",
        [Toleration(key="a", operator="Exists", toleration_seconds=30)],
        [no_execute("a")],
        NOW + 20,
    ),
    (
        "the shortest limit of all that match",
        [
            Toleration(operator="Exists", toleration_seconds=300),
            Toleration(key="a", operator="Exists", toleration_seconds=30),
        ],
        [no_execute("a")],
        NOW + 20,
    ),
    (
        "one untolerated taint is enough",
        [Toleration(key="a", operator="Exists")],
        [no_execute("a"), no_execute("b")],
        NOW,
    ),
    (
        "a negative limit is none at all",
        [Toleration(key="a", operator="Exists", toleration_seconds=-5)],
        [no_execute("a")],
        NOW - 10,
    ),
]


@pytest.mark.parametrize(("tolerations", "node_taints", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_eviction_deadline(tolerations: list[Toleration], node_taints: list[Taint], expected: float | None) -> None:
    assert evicted_at(tolerations, node_taints, NOW) == expected


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="a", value="x"), True),
        (Toleration(key="a", value="y"), False),
        (Toleration(key="a", operator="Exists"), True),
        (Toleration(key="b", operator="Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(key="a", operator="Exists", effect="NoSchedule"), False),
    ],
)
def test_tolerations(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, no_execute("a", "x")) is expected
