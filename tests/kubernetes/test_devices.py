"""Device classes on a real cluster: aliases, nodes whose devices stand in objects of their own, records on Bindings, and
unqualified names with and without the webhook that rewrites them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.kubernetes.cluster import ROOT, Cluster, free_port
from tests.kubernetes.components import asked
from tests.kubernetes.manifests import condition, namespace, pod

SPACE = "devices"
GPU = "example.com/gpu"
SIGS = "/apis/scheduling.sigs.x-k8s.io/v1alpha1"
ALIAS = "resourceclass.scheduling.sigs.x-k8s.io/gold"
RECORD = "scheduling.sigs.x-k8s.io/allocated-compute-resources"
CLASS = {
    "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
    "kind": "ResourceClass",
    "metadata": {"name": "gold"},
    "spec": {
        "resourceName": GPU,
        "resourceSelector": [{"matchExpressions": [{"key": "memory", "operator": "Gt", "values": ["15G"]}]}],
    },
}


def wanting(name: str, resource: str, amount: int) -> dict[str, Any]:
    made = pod(name, SPACE, nodeSelector={"pool": "devices"})
    made["spec"]["containers"][0]["resources"] = {"limits": {resource: str(amount)}}
    return made


@pytest.fixture(scope="module", autouse=True)
def running(cluster: Cluster) -> Iterator[None]:
    cluster.apply(namespace(SPACE), CLASS)
    started = [
        cluster.wharf("nodes", "--count", "1", "--prefix", "dev", "--label", "pool=devices", name="nodes-devices"),
        cluster.wharf("scheduler", "--no-leader-elect"),
        cluster.wharf("controllers", "--controllers", "resourceclass"),
    ]
    cluster.until(lambda: ready(cluster), "the node is ready and without taints")
    yield
    for process in started:
        assert cluster.end(process) == 0
    cluster.kubectl("delete", "nodes", "-l", "pool=devices")


def ready(cluster: Cluster) -> list[str]:
    return [
        node["metadata"]["name"]
        for node in cluster.items("/api/v1/nodes?labelSelector=pool%3Ddevices")
        if condition(node, "Ready").get("status") == "True" and not node["spec"].get("taints")
    ]


@pytest.fixture(scope="module")
def published(cluster: Cluster, running: None) -> Iterator[str]:
    """The node with a device agent and the sample plugin beside it."""
    node = ready(cluster)[0]
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # paths of sockets must be short
        agent = cluster.wharf("device-agent", "--node", node, "--plugin-dir", folder)
        example = ROOT / "examples" / "device-plugin"
        command = [sys.executable, example / "plugin.py", "--devices", example / "devices.json", "--plugin-dir", folder]
        with Path(folder, "plugin.log").open("wb") as log:
            plugin = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
            )
        try:
            cluster.until(lambda: len(resources(cluster, node)) == 2, "the agent publishes two ComputeResources")
            yield node
        finally:
            plugin.kill()
            plugin.wait()
            assert cluster.end(agent) == 0


def resources(cluster: Cluster, node: str) -> list[dict[str, Any]]:
    found = cluster.items(f"{SIGS}/nodecomputeresources")
    return next((each["spec"]["computeResources"] for each in found if each["metadata"]["name"] == node), [])


def stored(cluster: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.get(f"/api/v1/namespaces/{SPACE}/pods/{name}")
    return found


def test_the_api_server_drops_compute_resources_of_nodes(cluster: Cluster, published: str) -> None:
    status = {"status": {"computeResources": [{"name": "x", "resourceName": GPU, "devices": ["a"]}]}}
    cluster.kubectl("patch", "node", published, "--subresource=status", "--type=merge", "-p", json.dumps(status))
    assert "computeResources" not in cluster.get(f"/api/v1/nodes/{published}")["status"]


def test_an_alias_gets_the_devices_of_its_class(cluster: Cluster, published: str) -> None:
    cluster.apply(wanting("by-alias", ALIAS, 2))
    cluster.until(lambda: stored(cluster, "by-alias")["spec"].get("nodeName") == published, "the pod is bound")
    bound = stored(cluster, "by-alias")
    (fine,) = [each for each in resources(cluster, published) if each["properties"]["gpuType"] == "p100"]
    record = json.loads(bound["metadata"]["annotations"][RECORD])
    assert record == {"main": {ALIAS: [{"computeResourceName": fine["name"], "count": 2}]}}
    given = "wharfinger.dev/allocated-devices"
    cluster.until(
        lambda: stored(cluster, "by-alias")["metadata"]["annotations"].get(given), "the devices are allocated"
    )
    ids = json.loads(stored(cluster, "by-alias")["metadata"]["annotations"][given])
    assert ids == {"main": {fine["name"]: ["gpu-2", "gpu-3"]}}
    cluster.apply(wanting("one-more", ALIAS, 1), wanting("raw", GPU, 2))
    cluster.until(lambda: stored(cluster, "raw")["spec"].get("nodeName"), "the raw name goes on working")
    waiting = condition(stored(cluster, "one-more"), "PodScheduled")
    assert f"Insufficient {ALIAS}" in waiting.get("message", "")


def test_the_status_of_the_class_counts_devices(cluster: Cluster, published: str) -> None:
    def devices() -> Any:
        return (cluster.get(f"{SIGS}/resourceclasses/gold").get("status") or {}).get("devices")

    cluster.until(lambda: devices() == 2, "the class counts two devices")
    shown = cluster.run_wharf("classes", "gold", cluster=True)
    assert "gpuType=p100" in shown


@contextmanager
def webhook(cluster: Cluster, folder: Path, **settings: bool) -> Iterator[None]:
    """With these settings of resource classes, and asked by the API server."""
    config = folder / "config.yaml"
    config.write_text(json.dumps({"resourceClass": settings, "schedulingPolicy": {"mode": "audit"}}))
    address = f"127.0.0.1:{free_port()}"
    way = ("--url", f"https://{address}", "--bind", address, "--namespace", "default")
    process = cluster.wharf("webhook", *way, "--config", str(config))
    try:
        cluster.until(lambda: asked(cluster), "the API server asks the webhook")
        yield
    finally:
        cluster.kubectl("delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all")
        cluster.end(process)


def test_unqualified_names_are_refused_or_rewritten(cluster: Cluster, tmp_path: Path) -> None:
    refused = cluster.kubectl("apply", "-f", "-", stdin=json.dumps(wanting("plain", "gold", 1)), check=False)
    assert "must be a standard resource" in refused
    with webhook(cluster, tmp_path, rewriteNames=True):
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(wanting("plain", "gold", 1)))
        assert stored(cluster, "plain")["spec"]["containers"][0]["resources"]["limits"] == {ALIAS: "1"}
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gold", "namespace": SPACE},
            "spec": {"hard": {"gold": "1"}},
        }
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(quota))
        path = f"/api/v1/namespaces/{SPACE}/resourcequotas/gold"
        assert cluster.get(path)["spec"]["hard"] == {f"requests.{ALIAS}": "1"}
        cluster.until(lambda: (cluster.get(path).get("status") or {}).get("used"), "the quota is counted")
        over = cluster.kubectl("apply", "-f", "-", stdin=json.dumps(wanting("over", "gold", 5)), check=False)
        assert "exceeded quota" in over
        for wrong in ({**CLASS, "metadata": {"name": "other"}, "spec": {**CLASS["spec"], "alias": ALIAS}},):  # type: ignore[dict-item]  # a document
            assert "Duplicate value" in cluster.kubectl("apply", "-f", "-", stdin=json.dumps(wrong), check=False)
    cluster.kubectl("delete", "resourcequota", "gold", "-n", SPACE)


def test_an_overlay_asks_for_raw_devices_which_count_once(cluster: Cluster, tmp_path: Path) -> None:
    """A kubelet with a device plugin knows raw names only; the node here has two devices as such a plugin tells them."""
    raw, alias = "example.com/fpga", "resourceclass.scheduling.sigs.x-k8s.io/fpga"
    made = {**CLASS, "metadata": {"name": "fpga"}, "spec": {"resourceName": raw}}
    amounts = json.dumps({"status": {part: {raw: "2"} for part in ("capacity", "allocatable")}})
    node = ready(cluster)[0]
    cluster.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", amounts)
    with webhook(cluster, tmp_path, overlay=True):
        cluster.apply(made)

        def stands() -> dict[str, Any]:
            """Applied until the webhook has heard of the class."""
            cluster.kubectl("delete", "pod", "overlaid", "-n", SPACE, "--ignore-not-found", "--grace-period=0")
            cluster.apply(wanting("overlaid", alias, 2))
            found: dict[str, Any] = stored(cluster, "overlaid")["spec"]["containers"][0]["resources"]["limits"]
            return found

        cluster.until(lambda: stands() == {alias: "2", raw: "2"}, "the raw request stands beside the class")
        cluster.until(lambda: stored(cluster, "overlaid")["spec"].get("nodeName") == node, "the pod is bound")
        cluster.apply(wanting("one-too-many", raw, 1))
        cluster.until(
            lambda: f"Insufficient {raw}" in str(condition(stored(cluster, "one-too-many"), "PodScheduled")),
            "both devices are taken",
        )
