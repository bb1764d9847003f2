"""What would let a pod in: of each kind of obstacle the smallest change, verified, and an engine that is as before."""

from typing import Any

import pytest

from wharfinger.api.views import Node, Pod, view
from wharfinger.engine import Engine
from wharfinger.simulate.obstacles import nearest_nodes
from wharfinger.simulate.remedies import PodRemedy, remedies

Spec = dict[str, Any]


def node(name: str, cpu: str = "4", **fields: Any) -> Node:
    labels = {"kubernetes.io/hostname": name, **fields.pop("labels", {})}
    return view(
        {
            "metadata": {"name": name, "labels": labels},
            "spec": fields,
            "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}},
        },
        Node,
    )


def pod(name: str, cpu: str = "2", labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}, **spec.pop("container", {})}]
    metadata = {"name": name, "namespace": "shop", "uid": name, "labels": labels or {}}
    return view({"metadata": metadata, "spec": {"containers": containers, **spec}}, Pod)


def engine(*objects: Node | Pod) -> Engine:
    made = Engine()
    for each in objects:
        if isinstance(each, Node):
            made.set_node(each)
        else:
            made.set_pod(each)
    return made


def found(made: Engine, *pods: Pod) -> dict[str, PodRemedy]:
    return {each.kind: each for each in remedies(made, pods)}


TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
]
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}
TOGETHER = {"podAffinity": APART["podAntiAffinity"]}
SSD = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
        }
    }
}
PORT = {"ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}

CASES: list[tuple[str, list[Node | Pod], Pod, str, str]] = [
    (
        "fewer requests",
        [node("n1"), node("n2"), pod("a", "2500m", nodeName="n1"), pod("b", "3", nodeName="n2")],
        pod("w", "2"),
        "requests",
        "request 1500m cpu instead of 2",
    ),
    ("a toleration", [node("n1", taints=[TAINT])], pod("w"), "toleration", "tolerate dedicated=gpu:NoSchedule"),
    (
        "the node selector",
        [node("n1", labels={"disk": "hdd"})],
        pod("w", nodeSelector={"disk": "ssd"}),
        "selector",
        "drop disk=ssd from its node selector",
    ),
    (
        "a label",
        [node("n1", labels={"disk": "hdd"})],
        pod("w", nodeSelector={"disk": "ssd"}),
        "label",
        "label node n1 with disk=ssd",
    ),
    ("node affinity", [node("n1")], pod("w", affinity=SSD), "selector", "drop its required node affinity"),
    ("a label for affinity", [node("n1")], pod("w", affinity=SSD), "label", "label node n1 with disk=ssd"),
    ("a cordoned node", [node("n1", unschedulable=True)], pod("w"), "uncordon", "uncordon node n1"),
    (
        "a cordoned and tainted node",
        [
            node(
                "n1",
                unschedulable=True,
                taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
            )
        ],
        pod("w"),
        "uncordon",
        "uncordon node n1",
    ),
    (
        "host ports",
        [node("n1"), pod("a", "1", nodeName="n1", container=PORT)],
        pod("w", "1", container=PORT),
        "port",
        "drop its host ports",
    ),
    (
        "anti-affinity",
        [node("n1"), pod("a", "1", {"app": "web"}, nodeName="n1")],
        pod("w", "1", {"app": "web"}, affinity=APART),
        "affinity",
        "drop its required pod anti-affinity",
    ),
    (
        "affinity",
        [node("n1")],
        pod("w", "1", {"app": "db"}, affinity=TOGETHER),
        "affinity",
        "drop its required pod affinity",
    ),
    (
        "topology spread",
        [
            node("n1", labels={"zone": "a"}),
            node("n2", "1", labels={"zone": "b"}),
            pod("a", "1", {"app": "web"}, nodeName="n1"),
        ],
        pod("w", "2", {"app": "web"}, topologySpreadConstraints=SPREAD),
        "spread",
        "set whenUnsatisfiable to ScheduleAnyway in its topology spread over zone",
    ),
    (
        "one node more",
        [node("n1"), node("n2"), pod("a", "4", nodeName="n1"), pod("b", "4", nodeName="n2")],
        pod("w", "3"),
        "node",
        "add one node like n1 (4 cpu, 8Gi memory; there are 2)",
    ),
    (
        "a victim",
        [node("n1"), pod("a", "4", nodeName="n1", priority=7)],
        pod("w"),
        "deletion",
        "delete pod shop/a",
    ),
    (
        "a higher priority",
        [node("n1"), pod("a", "4", nodeName="n1", priority=7)],
        pod("w"),
        "priority",
        "give it a priority above 7, so that it preempts shop/a",
    ),
    (
        "two things at once",
        [node("n1", "1", taints=[TAINT])],
        pod("w"),
        "toleration+requests",
        "tolerate dedicated=gpu:NoSchedule and also request 1 cpu instead of 2",
    ),
    (
        "scheduling gates",
        [node("n1")],
        pod("w", schedulingGates=[{"name": "wait"}]),
        "gate",
        "remove its scheduling gates: wait",
    ),
]


@pytest.mark.parametrize(
    ("objects", "waiting", "kind", "text"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_helps(objects: list[Node | Pod], waiting: Pod, kind: str, text: str) -> None:
    made = engine(*objects)
    before = made.schedule(waiting).message
    helpful = found(made, waiting)
    assert helpful[kind].text == text
    assert made.schedule(waiting).message == before, "the engine is as before"
    tables = made.tables
    assert {name: len(tables.pods_on[row]) for name, row in tables.row_of.items()} == {
        each.metadata.name: sum(isinstance(p, Pod) and p.spec.node_name == each.metadata.name for p in objects)
        for each in objects
        if isinstance(each, Node)
    }


def test_nothing_is_promised_that_does_not_help() -> None:
    made = engine(
        node("n1", labels={"disk": "hdd"}, taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}])
    )
    assert found(made, pod("w")).keys() == {"node"}  # a node that is not ready is no place to go to


def test_a_new_node_has_the_daemons_of_its_group() -> None:
    daemon = pod("d", "3", nodeName="n1")
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    daemon = view(
        {
            "metadata": {"name": "d", "namespace": "shop", "uid": "d", "ownerReferences": [owner]},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
        },
        Pod,
    )
    assert "node" not in found(engine(node("n1"), daemon), pod("w", "2"))


def test_all_waiting_pods_are_counted() -> None:
    made = engine(node("n1"), node("n2"), pod("a", "2", nodeName="n1"))
    waiting = [pod(f"w{index}", "3") for index in range(4)]
    helpful = found(made, *waiting)
    assert (helpful["node"].lets_in, helpful["node"].text) == (
        4,
        "add 3 nodes like n1 (4 cpu, 8Gi memory; there are 2)",
    )
    assert (helpful["requests"].lets_in, helpful["requests"].text) == (4, "request 1330m cpu instead of 3")


def test_the_nearest_node_comes_first_with_everything_it_lacks() -> None:
    made = engine(node("n1", "1"), node("n2", "3", taints=[TAINT]), node("n3", "3"), pod("a", "1", nodeName="n3"))
    first, *others = nearest_nodes(made, pod("w", "2500m"))
    assert (first.name, first.alike) == ("n3", 1)
    assert [(each.resource, each.asked, each.free) for each in first.lacking] == [("cpu", 2500, 2000)]
    assert {each.name for each in others} == {"n1", "n2"}
    (tainted,) = next(each for each in others if each.name == "n2").obstacles
    assert tainted.detail == "dedicated=gpu:NoSchedule"
