"""The story of resource policies on a real cluster: static nodes first, spot nodes at the peak, and when it is over the
real ReplicaSet controller takes the pods on spot nodes away first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.manifests import condition, deployment, namespace
from tests.systems.resource_policy.test_kinds import INVALID

SPACE = "units"
COST = "controller.kubernetes.io/pod-deletion-cost"
MARKER = "scheduling.sigs.x-k8s.io/managed-deletion-cost"


def policy(**spec: Any) -> dict[str, Any]:
    units = [
        {"name": pool, "priority": priority, "nodeSelector": {"matchLabels": {"pool": pool}}, **limit}
        for pool, priority, limit in (("static", 10, {"maxCount": 2}), ("spot", 1, {}))
    ]
    return {
        "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
        "kind": "ResourcePolicy",
        "metadata": {"name": "web", "namespace": SPACE},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "units": units, **spec},
    }


@pytest.fixture(scope="module", autouse=True)
def running(cluster: Cluster) -> Iterator[None]:
    cluster.apply(namespace(SPACE))
    started = [
        cluster.wharf("nodes", "--count", "2", "--prefix", pool, "--label", f"pool={pool}", name=f"nodes-{pool}")
        for pool in ("static", "spot")
    ]
    started.append(cluster.wharf("controllers", "--controllers", "resourcepolicy"))
    cluster.until(lambda: len(ready_nodes(cluster)) == 4, "four nodes are ready and without taints")
    started.append(cluster.wharf("scheduler", "--no-leader-elect"))
    yield
    for process in started:
        assert cluster.end(process) == 0
    cluster.kubectl("delete", "nodes", "-l", "pool in (static,spot)")


def ready_nodes(cluster: Cluster) -> list[str]:
    return [
        node["metadata"]["name"]
        for node in cluster.items("/api/v1/nodes?labelSelector=pool%20in%20(static,spot)")
        if condition(node, "Ready").get("status") == "True" and not node["spec"].get("taints")
    ]


def pods(cluster: Cluster) -> list[dict[str, Any]]:
    return cluster.items(f"/api/v1/namespaces/{SPACE}/pods?labelSelector=app%3Dweb")


def placed(cluster: Cluster) -> Counter[tuple[str, str]]:
    """Pods by the pool of their node and their deletion cost, where that is marked as ours."""
    found: Counter[tuple[str, str]] = Counter()
    for each in pods(cluster):
        annotations = each["metadata"].get("annotations") or {}
        cost = annotations.get(COST, "")
        assert annotations.get(MARKER, "") == cost
        found[each["spec"].get("nodeName", "").rpartition("-")[0], cost] += 1
    return found


def counts(cluster: Cluster) -> dict[str, int]:
    found = cluster.get(f"/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/{SPACE}/resourcepolicies/web")
    return {unit["name"]: unit["count"] for unit in (found.get("status") or {}).get("units") or ()}


def test_static_first_then_spot_and_spot_leaves_first(cluster: Cluster) -> None:
    cluster.apply(policy(), deployment("web", SPACE, 5))
    cluster.kubectl("rollout", "status", "deployment/web", "-n", SPACE, "--timeout=90s")
    cluster.until(lambda: placed(cluster) == {("static", "10"): 2, ("spot", "1"): 3}, "two on static, three on spot")
    cluster.until(lambda: counts(cluster) == {"static": 2, "spot": 3}, "the status counts them")
    assert "static 2/2, spot 3" in cluster.kubectl("get", "rsp", "web", "-n", SPACE)
    cluster.kubectl("scale", "deployment/web", "-n", SPACE, "--replicas=3")
    cluster.until(lambda: placed(cluster) == {("static", "10"): 2, ("spot", "1"): 1}, "spot pods left")
    cluster.kubectl("scale", "deployment/web", "-n", SPACE, "--replicas=2")
    cluster.until(lambda: placed(cluster) == {("static", "10"): 2}, "all spot pods left")


def test_costs_go_with_the_policy(cluster: Cluster) -> None:
    cluster.kubectl("delete", "rsp", "web", "-n", SPACE)
    cluster.until(lambda: placed(cluster) == {("static", ""): 2}, "costs of ours are gone and pods stay")


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"units": []}, "spec.units"),
        ({"units": [{"name": "a", "priority": -1}]}, "spec.units[0].priority"),
        ({"units": [{"name": "a", "maxCount": -1}]}, "spec.units[0].maxCount"),
        ({"strategy": "preferred"}, "spec.strategy"),
        ({"whenTryNextUnits": {"policy": "Never"}}, "spec.whenTryNextUnits.policy"),
    ],
)
def test_invalid_fields_are_refused_by_the_definition(cluster: Cluster, spec: dict[str, Any], path: str) -> None:
    answer = cluster.api().ask(
        "POST", f"/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/{SPACE}/resourcepolicies", policy(**spec)
    )
    assert answer.status == 422
    assert path in answer.message


def test_the_api_server_refuses_invalid_policies_without_a_webhook(cluster: Cluster) -> None:
    accepted = []
    for spec, _ in INVALID:
        document = policy() | {"spec": spec}
        document["metadata"] = {"name": "invalid", "namespace": SPACE}
        found = cluster.kubectl("create", "--validate=false", "-f", "-", stdin=json.dumps(document), check=False)
        if "created" in found:
            accepted.append(spec)
    assert not accepted
