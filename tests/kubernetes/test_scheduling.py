"""Our scheduler and simulated nodes beside the real controller manager: pods of real controllers are bound and run, and
what cannot be placed says why in the words Kubernetes users know."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import pytest
from tests.kubernetes.cluster import Cluster, free_port, reachable
from tests.kubernetes.manifests import condition, deployment, namespace, pod

SPACE = "scheduling"
NODES = ("--count", "3", "--cpu", "2", "--memory", "4Gi", "--prefix", "plain", "--label", "pool=plain")
PLAIN = {"nodeSelector": {"pool": "plain"}}


@pytest.fixture(scope="module", autouse=True)
def running(cluster: Cluster) -> Iterator[None]:
    cluster.apply(namespace(SPACE))
    started = [cluster.wharf("nodes", *NODES)]
    cluster.until(lambda: len(ready_nodes(cluster)) == 3, "three nodes are ready and without taints")
    # Started now, it never sees pods that are newer than its nodes, which may still have had their first taint.
    started.append(cluster.wharf("scheduler", "--no-leader-elect"))
    yield
    for process in started:
        assert cluster.end(process) == 0
    cluster.kubectl("delete", "nodes", "-l", "pool=plain")


def ready_nodes(cluster: Cluster) -> list[str]:
    return [
        node["metadata"]["name"]
        for node in cluster.items("/api/v1/nodes?labelSelector=pool%3Dplain")
        if condition(node, "Ready").get("status") == "True" and not node["spec"].get("taints")
    ]


def pods(cluster: Cluster, app: str) -> list[dict]:
    return cluster.items(f"/api/v1/namespaces/{SPACE}/pods?labelSelector=app%3D{app}")


def test_our_definitions_are_established(cluster: Cluster) -> None:
    found = cluster.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert {"reservations.scheduling.koordinator.sh", "resourcepolicies.scheduling.sigs.x-k8s.io"} <= {
        item["metadata"]["name"] for item in found
    }
    for item in found:
        assert condition(item, "Established").get("status") == "True", item["metadata"]["name"]
        assert condition(item, "NonStructuralSchema") == {}, item["metadata"]["name"]


def test_pods_of_a_real_deployment_are_bound_and_run(cluster: Cluster) -> None:
    cluster.apply(deployment("web", SPACE, 6, **PLAIN))
    cluster.kubectl("rollout", "status", "deployment/web", "-n", SPACE, "--timeout=90s")
    found = pods(cluster, "web")
    assert len(found) == 6
    per_node = [sum(item["spec"]["nodeName"] == node for item in found) for node in ready_nodes(cluster)]
    assert sorted(per_node) == [2, 2, 2]  # equal nodes share equal pods
    assert all(condition(item, "PodScheduled")["status"] == "True" for item in found)
    events = cluster.kubectl(
        "get", "events", "-n", SPACE, "-o", "jsonpath={range .items[*]}{.reason}: {.message}{'\\n'}{end}"
    )
    assert f"Scheduled: Successfully assigned {SPACE}/{found[0]['metadata']['name']} to" in events


def test_what_does_not_fit_says_why_and_goes_when_there_is_room(cluster: Cluster) -> None:
    cluster.apply(pod("large", SPACE, cpu="3", **PLAIN))

    def large() -> dict:
        return cluster.get(f"/api/v1/namespaces/{SPACE}/pods/large")

    cluster.until(lambda: condition(large(), "PodScheduled").get("message"), "the pod's condition says why")
    told = condition(large(), "PodScheduled")
    wanted = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    assert (told["status"], told["reason"]) == ("False", "Unschedulable")
    assert told["message"] == wanted
    cluster.until(lambda: wanted in cluster.kubectl("describe", "pod", "large", "-n", SPACE), "an event says so too")
    cluster.kubectl(
        "patch", "node", ready_nodes(cluster)[0], "--subresource=status", "-p", '{"status":{"allocatable":{"cpu":"8"}}}'
    )
    cluster.until(lambda: large()["spec"].get("nodeName"), "the pod is bound once a node has room")


def test_foreign_pods_are_left_alone(cluster: Cluster) -> None:
    cluster.apply(pod("stock", SPACE, scheduler="default-scheduler"), pod("ours", SPACE))
    cluster.until(
        lambda: cluster.get(f"/api/v1/namespaces/{SPACE}/pods/ours")["spec"].get("nodeName"), "our pod is bound"
    )
    assert not cluster.get(f"/api/v1/namespaces/{SPACE}/pods/stock")["spec"].get("nodeName")


def test_beside_the_stock_scheduler_we_keep_to_our_nodes_and_tell_of_foreign_pods(cluster: Cluster) -> None:
    ours, *_ = ready_nodes(cluster)
    cluster.kubectl("label", "node", ours, "side=ours")
    port = free_port()
    options = ("--scheduler-names", "beside", "--node-selector", "side=ours", "--metrics-port", str(port))
    started = [
        cluster.wharf("scheduler", "--no-leader-elect", *options, name="scheduler-beside"),
        cluster.start_kube_scheduler({}),
    ]
    cluster.until(lambda: reachable(f"http://127.0.0.1:{port}/readyz"), "our scheduler is ready")
    cluster.apply(
        *(pod(f"beside-{number}", SPACE, scheduler="beside") for number in range(3)),
        pod("elsewhere", SPACE, scheduler="beside", nodeSelector={"side": "theirs"}),
        pod("theirs", SPACE, scheduler="default-scheduler", nodeSelector={"side": "ours"}),
    )

    def found(name: str) -> dict:
        return cluster.get(f"/api/v1/namespaces/{SPACE}/pods/{name}")

    for name in ("beside-0", "beside-1", "beside-2", "theirs"):
        cluster.until(lambda name=name: found(name)["spec"].get("nodeName") == ours, f"{name} is on our node")
    cluster.until(lambda: condition(found("elsewhere"), "PodScheduled").get("message"), "the other pod says why not")
    assert "0/1 nodes are available" in condition(found("elsewhere"), "PodScheduled")["message"]

    def told() -> bool:
        events = cluster.kubectl("get", "events", "-n", SPACE, "-o", "jsonpath={.items[*].reason}").split()
        metrics = fetched(f"http://127.0.0.1:{port}/metrics")
        return "ForeignPod" in events and re.search(r"^wharfinger_foreign_pods_total [1-9]", metrics, re.M) is not None

    cluster.until(told, "an event and a metric tell of the foreign pod")
    assert found("theirs")["status"].get("phase") in ("Pending", "Running")  # and it is left alone
    for process in started:
        cluster.end(process)
    cluster.kubectl("label", "node", ours, "side-")


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def test_what_is_not_supported_stays_pending_and_says_what(cluster: Cluster) -> None:
    restarting = pod("restarting", SPACE)
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    restarting["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    wanted = {
        "restarting": "restarts of all containers (restartPolicyRules with RestartAllContainers)",
    }
    cluster.apply(restarting, pod("after", SPACE))

    def found(name: str) -> dict:
        return cluster.get(f"/api/v1/namespaces/{SPACE}/pods/{name}")

    cluster.until(lambda: found("after")["spec"].get("nodeName"), "other pods are bound")
    for name, text in wanted.items():
        cluster.until(lambda name=name: condition(found(name), "PodScheduled").get("message"), f"{name} says why")
        assert f"not supported by this scheduler: {text}" in condition(found(name), "PodScheduled")["message"]
        assert not found(name)["spec"].get("nodeName")
