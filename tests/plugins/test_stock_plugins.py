"""Rules of the stock plugins that the recorded cases do not cover, with the results of upstream's source code."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.builders import node, pod

from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.views import Node, Pod
from wharfinger.engine import Engine, default_profile
from wharfinger.framework import Action, ClusterEvent

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def engine(nodes: list[Node], pods: list[Pod] = [], **args: dict[str, Any]) -> Engine:  # noqa: B006 - never written
    made = Engine([default_profile(args=args)])
    for each in nodes:
        made.set_node(each)
    for bound in pods:
        made.set_pod(bound)
    return made


def scores(made: Engine, waiting: Pod, plugin: str) -> dict[str, int]:
    """The weighted scores of one plugin, for the feasible nodes."""
    explained = made.explain(waiting)
    return {name: each[plugin] for name, each in explained.scores.items() if plugin in each}


def reasons(made: Engine, waiting: Pod) -> dict[str, str]:
    return {name: status.message for name, status in made.explain(waiting).refused.items()}


def strategy(kind: str, **rest: Any) -> dict[str, Any]:
    return {"NodeResourcesFit": {"scoringStrategy": {"type": kind, **rest}}}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        # 4 cpus and 8 GiB each; half of "busy" is in use, and the pod requests a quarter.
        ({}, {"busy": 25, "idle": 75}),
        (strategy("MostAllocated"), {"busy": 75, "idle": 25}),
        (
            strategy("MostAllocated", resources=[{"name": "cpu", "weight": 3}, {"name": "pods"}]),
            {"busy": 75, "idle": 25},
        ),
        (
            strategy(
                "RequestedToCapacityRatio",
                requestedToCapacityRatio={"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]},
            ),
            {"busy": 75, "idle": 25},
        ),
        (
            strategy(
                "RequestedToCapacityRatio",
                requestedToCapacityRatio={"shape": [{"utilization": 25, "score": 10}, {"utilization": 80, "score": 1}]},
            ),
            {"busy": 19, "idle": 100},  # 100 - 90 * 50 / 55, truncated
        ),
    ],
)
def test_scoring_strategies(args: dict[str, Any], expected: dict[str, int]) -> None:
    made = engine([node("busy"), node("idle")], [pod("r", "busy", cpu="2", memory="4Gi")], **args)
    assert scores(made, pod("p", cpu="1", memory="2Gi"), "NodeResourcesFit") == expected


def test_extended_resources_are_scored_only_if_requested() -> None:
    args = strategy("LeastAllocated", resources=[{"name": "cpu"}, {"name": "example.com/gpu", "weight": 4}])
    made = engine([node("a", resources={"example.com/gpu": "4"}), node("b")], **args)
    assert scores(made, pod("p", cpu="1"), "NodeResourcesFit") == {"a": 75, "b": 75}
    with_gpu = pod("p", requests={"cpu": "1", "example.com/gpu": "2"})
    assert scores(made, with_gpu, "NodeResourcesFit") == {"a": (75 + 4 * 50) // 5}
    assert reasons(made, with_gpu) == {"b": "Insufficient example.com/gpu"}


def test_ignored_resources_are_not_checked() -> None:
    made = engine(
        [node("a")],
        NodeResourcesFit={"ignoredResources": ["example.com/fpga"], "ignoredResourceGroups": ["nic.example.com"]},
    )
    ignored = {"example.com/fpga": "1", "nic.example.com/vf": "2"}
    assert made.schedule(pod("p", requests=ignored)).node == "a"
    assert made.schedule(pod("p", requests={**ignored, "example.com/gpu": "1"})).node is None


def test_balance_over_three_resources() -> None:
    made = engine(
        [node("a", resources={"ephemeral-storage": "100Gi"})],
        NodeResourcesBalancedAllocation={
            "resources": [{"name": "cpu"}, {"name": "memory"}, {"name": "ephemeral-storage"}]
        },
    )
    waiting = pod("p", requests={"cpu": "2", "memory": "2Gi", "ephemeral-storage": "25Gi"})
    # Fractions 0.5, 0.25, 0.25: standard deviation 0.1178; 88 after, 100 before, so 50 + (50 - 12) / 2.
    assert scores(made, waiting, "NodeResourcesBalancedAllocation") == {"a": 69}


def test_hugepages_are_a_resource_like_any_other() -> None:
    made = engine([node("a", resources={"hugepages-2Mi": "4Mi"}), node("b")])
    waiting = pod("p", requests={"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi"})
    assert reasons(made, waiting) == {"b": "Insufficient hugepages-2Mi"}


def test_added_affinity_is_enforced_and_preferred() -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]}
    preferred = [
        {"weight": 4, "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["x"]}]}},
        {"weight": 1, "preference": {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["2"]}]}},
    ]
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    made = engine(
        [node("a", labels={"pool": "x"}), node("b", labels={"pool": "y", "gen": "3"}), node("c")],
        NodeAffinity={"addedAffinity": affinity},
    )
    assert reasons(made, pod("p")) == {"c": "node(s) didn't match scheduler-enforced node affinity"}
    assert scores(made, pod("p"), "NodeAffinity") == {"a": 200, "b": 50}


def term(app: str, **rest: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST, **rest}


def required(side: str, **rest: Any) -> dict[str, Any]:
    return {side: {"requiredDuringSchedulingIgnoredDuringExecution": [term("web", **rest)]}}


@pytest.mark.parametrize(
    ("selector", "refused", "kubernetes"),
    [
        ({"matchLabels": {"team": "a"}}, {"a"}, REFERENCE),
        ({"matchLabels": {"team": "b"}}, set(), REFERENCE),
        ({}, {"a"}, REFERENCE),  # every namespace
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, set(), REFERENCE),
        # 1.36 also matches it against empty labels, which it matches: every namespace.
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, {"a"}, KubernetesVersion.V1_36),
    ],
)
def test_namespace_selectors_of_the_incoming_pod(
    selector: dict[str, Any], refused: set[str], kubernetes: KubernetesVersion
) -> None:
    made = Engine(kubernetes=kubernetes)
    for each in (node("a"), node("b")):
        made.set_node(each)
    made.set_pod(pod("r", "a", namespace="one", labels={"app": "web"}))
    made.apply("Namespace", {"metadata": {"name": "one", "labels": {"team": "a"}}})
    waiting = pod("p", namespace="two", affinity=required("podAntiAffinity", namespaceSelector=selector))
    assert set(reasons(made, waiting)) == refused


@pytest.mark.parametrize(
    ("selector", "refused"),
    [
        ({"matchLabels": {"team": "b"}}, {"a"}),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["b"]}]}, set()),
    ],
)
def test_namespace_selectors_of_running_pods(selector: dict[str, Any], refused: set[str]) -> None:
    affinity = required("podAntiAffinity", namespaceSelector=selector)
    made = engine([node("a"), node("b")], [pod("r", "a", namespace="one", affinity=affinity)])
    made.apply("Namespace", {"metadata": {"name": "two", "labels": {"team": "b"}}})
    assert set(reasons(made, pod("p", namespace="two", labels={"app": "web"}))) == refused


def test_the_first_pod_with_affinity_to_itself_is_accepted() -> None:
    made = engine([node("a"), node("b")])
    waiting = pod("p", labels={"app": "web"}, affinity=required("podAffinity"))
    assert made.schedule(waiting).node is not None
    assert made.schedule(pod("q", labels={"app": "db"}, affinity=required("podAffinity"))).node is None
    made.set_pod(pod("r", "b", labels={"app": "web"}))
    assert made.schedule(waiting).node == "b"


def test_existing_preferences_can_be_ignored() -> None:
    preferred = {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 9, "podAffinityTerm": term("web")}]
        }
    }
    running = [pod("r", "a", affinity=preferred)]
    waiting = pod("p", labels={"app": "web"})
    assert scores(engine([node("a"), node("b")], running), waiting, "InterPodAffinity") == {"a": 200, "b": 0}
    ignoring = engine([node("a"), node("b")], running, InterPodAffinity={"ignorePreferredTermsOfExistingPods": True})
    assert scores(ignoring, waiting, "InterPodAffinity") == {}


def test_an_invalid_term_refuses_the_pod_as_a_whole() -> None:
    bad = {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}, "topologyKey": HOST}
    rule = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [bad]}}
    message = engine([node("a")]).schedule(pod("p", affinity=rule)).message
    assert message.startswith("0/1 nodes are available: parsing pod: ")


def constraint(key: str = ZONE, action: str = "DoNotSchedule", **rest: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": selector, **rest}


def spread(*constraints: dict[str, Any], **rest: Any) -> Pod:
    labels = {"app": "web", **rest.pop("labels", {})}
    return pod("p", labels=labels, topologySpreadConstraints=list(constraints), **rest)


def zones(*names: str) -> list[Node]:
    return [node(f"{name}{index}", labels={ZONE: name}) for index, name in enumerate(names)]


def test_too_few_domains_make_the_global_minimum_zero() -> None:
    made = engine(zones("x", "y"), [pod(name, on, labels={"app": "web"}) for name, on in (("r", "x0"), ("s", "y1"))])
    assert made.schedule(spread(constraint())).node is not None
    assert made.schedule(spread(constraint(minDomains=3))).node is None
    made.set_node(node("z2", labels={ZONE: "z"}))
    assert made.schedule(spread(constraint(minDomains=3))).node == "z2"


@pytest.mark.parametrize(
    ("policies", "feasible"),
    [
        ({}, {"y1"}),  # the tainted node's zone counts as an empty domain, so "x" has one pod too many
        ({"nodeTaintsPolicy": "Honor"}, {"x0", "y1"}),
        ({"nodeAffinityPolicy": "Ignore"}, {"y1"}),
    ],
)
def test_inclusion_policies(policies: dict[str, Any], feasible: set[str]) -> None:
    made = engine(
        [
            node("x0", labels={ZONE: "x", "disk": "ssd"}),
            node("y1", labels={ZONE: "y", "disk": "ssd"}),
            node("t2", labels={ZONE: "t", "disk": "ssd"}, taints=[{"key": "k", "effect": "NoExecute"}]),
            node("n3", labels={ZONE: "n"}),
        ],
        [
            pod("r", "x0", labels={"app": "web"}),
            pod("s", "y1", labels={"app": "web"}),
            pod("t", "n3", labels={"app": "web"}),
        ]
        if policies.get("nodeTaintsPolicy")
        else [pod("r", "x0", labels={"app": "web"})],
    )
    waiting = spread(constraint(**policies), nodeSelector={"disk": "ssd"})
    assert set(made.explain(waiting).scores) == feasible


def test_match_label_keys_split_revisions() -> None:
    made = engine(zones("x", "y"), [pod("r", "x0", labels={"app": "web", "rev": "1"})])
    only_own = constraint(matchLabelKeys=["rev", "absent"])
    assert set(made.explain(spread(only_own, labels={"rev": "2"})).scores) == {"x0", "y1"}
    assert set(made.explain(spread(only_own, labels={"rev": "1"})).scores) == {"y1"}


@pytest.mark.parametrize(
    ("kind", "selector"),
    [
        ("ReplicaSet", {"matchLabels": {"app": "web"}}),
        ("StatefulSet", {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}),
        ("ReplicationController", {"app": "web"}),
    ],
)
def test_default_constraints_come_from_the_workload(kind: str, selector: dict[str, Any]) -> None:
    made = engine([node("a"), node("b")], [pod("r", "a", labels={"app": "web"})])
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    owner = {"apiVersion": version, "kind": kind, "name": "w"}
    waiting = pod("p", labels={"app": "web"}, owner=owner)
    assert scores(made, waiting, "PodTopologySpread") == {}
    workload = {"metadata": {"name": "w", "namespace": "default"}, "spec": {"selector": selector}}
    made.apply(kind, workload)
    assert scores(made, waiting, "PodTopologySpread") == {"a": 132, "b": 200}  # 3 of log(4) + 2, against 2
    assert made.schedule(waiting).node == "b"
    made.apply(kind, workload, deleted=True)
    assert scores(made, waiting, "PodTopologySpread") == {}


def test_default_constraints_can_be_configured_and_be_hard() -> None:
    given = {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule"}
    made = engine(
        [node("a"), node("b")],
        [pod("r", "a", labels={"app": "web"})],
        PodTopologySpread={"defaultingType": "List", "defaultConstraints": [given]},
    )
    made.apply("Service", {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "web"}}})
    assert set(reasons(made, pod("p", labels={"app": "web"}))) == {"a"}
    assert reasons(made, pod("p", labels={"app": "db"})) == {}


def port(number: int, ip: str = "", protocol: str = "TCP") -> dict[str, Any]:
    ports = [{"hostPort": number, "hostIP": ip, "protocol": protocol}]
    return {"containers": [{"name": "c", "image": "i", "ports": ports}]}


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (port(80), False),
        (port(81), True),
        (port(80, protocol="UDP"), True),
        (port(80, "10.0.0.1"), False),
        (port(80, "10.0.0.2"), True),
        (port(80, "0.0.0.0"), False),
        ({"initContainers": [{"name": "i", "ports": [{"hostPort": 80}], "restartPolicy": "Always"}]}, False),
        ({"initContainers": [{"name": "i", "ports": [{"hostPort": 80}]}]}, True),
    ],
)
def test_host_ports_conflict_by_address_and_protocol(wanted: dict[str, Any], fits: bool) -> None:
    made = engine([node("a")], [pod("r", "a", **port(80, "10.0.0.1"))])
    assert (made.schedule(pod("p", **wanted)).node == "a") is fits


@pytest.mark.parametrize("operator", ["Lt", "Gt"])
def test_comparing_tolerations_tolerate_nothing(operator: str) -> None:
    made = engine([node("a", taints=[{"key": "load", "value": "5", "effect": "NoSchedule"}])])
    toleration = {"key": "load", "operator": operator, "value": "5", "effect": "NoSchedule"}
    assert made.schedule(pod("p", tolerations=[toleration])).node is None
    assert made.schedule(pod("p", tolerations=[{"key": "load", "value": "5"}])).node == "a"


def test_images_count_by_size_and_spread() -> None:
    images = [{"names": ["app:v1", "app@sha256:1"], "sizeBytes": 1000 * 1024 * 1024}]
    made = engine([node("a", images=images), node("b", images=images), node("c"), node("d")])
    # Two of four nodes have the image, so half its size counts: (500 - 23) of (1000 - 23) MiB.
    assert scores(made, pod("p"), "ImageLocality") == {"a": 48, "b": 48, "c": 0, "d": 0}
    made.remove_node("b")
    assert scores(made, pod("p"), "ImageLocality") == {"a": 31, "c": 0, "d": 0}


WEB = {"app": "web"}
SPREAD = {"labels": WEB, "topologySpreadConstraints": [constraint()]}


@pytest.mark.parametrize(
    ("plugin", "spec", "action", "old", "new", "wakes"),
    [
        ("NodeUnschedulable", {}, Action.UPDATE_NODE_TAINT, node("a", unschedulable=True), node("a"), True),
        ("NodeUnschedulable", {}, Action.ADD, None, node("a", unschedulable=True), False),
        ("NodeName", {"nodeName": "a"}, Action.ADD, None, node("a"), True),
        ("NodeName", {"nodeName": "a"}, Action.UPDATE_NODE_LABEL, node("a"), node("a"), False),
        ("TaintToleration", {}, Action.ADD, None, node("a"), True),
        ("TaintToleration", {}, Action.ADD, None, node("a", taints=[{"key": "k", "effect": "NoSchedule"}]), False),
        ("NodeAffinity", {"nodeSelector": {"disk": "ssd"}}, Action.ADD, None, node("a"), False),
        (
            "NodeAffinity",
            {"nodeSelector": {"disk": "ssd"}},
            Action.UPDATE_NODE_LABEL,
            node("a"),
            node("a", labels={"disk": "ssd"}),
            True,
        ),
        ("NodePorts", port(80), Action.DELETE, pod("r", "a", **port(80)), None, True),
        ("NodePorts", port(80), Action.DELETE, pod("r", "a", **port(81)), None, False),
        ("NodePorts", port(80), Action.DELETE, pod("r", **port(80)), None, False),
        ("InterPodAffinity", {"affinity": required("podAffinity")}, Action.ADD, None, pod("r", "a", labels=WEB), True),
        ("InterPodAffinity", {"affinity": required("podAffinity")}, Action.ADD, None, pod("r", labels=WEB), False),
        (
            "InterPodAffinity",
            {"affinity": required("podAntiAffinity")},
            Action.DELETE,
            pod("r", "a", labels=WEB),
            None,
            True,
        ),
        (
            "InterPodAffinity",
            {"labels": WEB},
            Action.DELETE,
            pod("r", "a", affinity=required("podAntiAffinity")),
            None,
            True,
        ),
        ("InterPodAffinity", {"affinity": required("podAntiAffinity")}, Action.ADD, None, node("b"), True),
        ("PodTopologySpread", SPREAD, Action.DELETE, pod("r", "a", labels=WEB), None, True),
        ("PodTopologySpread", SPREAD, Action.DELETE, pod("r", "a", labels=WEB, namespace="other"), None, False),
        ("PodTopologySpread", SPREAD, Action.ADD, None, node("b", labels={ZONE: "z"}), True),
        ("PodTopologySpread", SPREAD, Action.ADD, None, node("b"), False),
        (
            "NodeResourcesFit",
            {},
            Action.UPDATE_POD_SCALE_DOWN,
            pod("r", "a", cpu="2"),
            pod("r", "a", cpu="1"),
            True,
        ),
        (
            "NodeResourcesFit",
            {"requests": {"memory": "1Gi"}},
            Action.UPDATE_POD_SCALE_DOWN,
            pod("r", "a", cpu="2"),
            pod("r", "a", cpu="1"),
            False,
        ),
    ],
)
def test_queueing_hints(plugin: str, spec: dict[str, Any], action: Action, old: Any, new: Any, wakes: bool) -> None:
    kind = "Node" if isinstance(new or old, Node) else "Pod"
    made = engine([node("a")])
    assert made.wakes(pod("p", **spec), [plugin], ClusterEvent(kind, action, old, new)) is wakes
