"""Resource metrics of simulated nodes and pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from wharfinger.api.kinds.builtin import NODES
from wharfinger.api.registry import Document, Resource
from wharfinger.node.metrics import SimulatedMetrics


def node(name: str = "one", **annotations: str) -> Document:
    marked = {f"wharfinger.dev/{key}": value for key, value in {"simulated": "true", **annotations}.items()}
    return {"metadata": {"name": name, "annotations": marked}, "status": {"capacity": {"cpu": "8", "memory": "16Gi"}}}


def pod(usage: str = "", *, where: str = "one", phase: str = "Running", **spec: Any) -> Document:
    containers = [
        {"name": "main", "resources": {"requests": {"cpu": "200m", "memory": "1Gi"}}},
        {"name": "side", "resources": {}},
    ]
    running = {"state": {"running": {}}}
    return {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "labels": {"a": "b"},
            "annotations": {"wharfinger.dev/usage": usage} if usage else {},
        },
        "spec": {"nodeName": where, "containers": containers, **spec},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": container["name"], **running} for container in containers],
        },
    }


def metrics(nodes: list[Document], pods: list[Document], *, everything: bool = False) -> SimulatedMetrics:
    def scan(resource: Resource, namespace: str) -> Iterable[Document]:
        return nodes if resource == NODES else pods

    return SimulatedMetrics(scan, lambda: 1_800_000_000.0, everything=everything)


def usage(document: Document) -> dict[str, dict[str, str]]:
    [found] = metrics([node()], [document]).pods("")
    return {each["name"]: each["usage"] for each in found["containers"]}


@pytest.mark.parametrize(
    ("stated", "main", "side"),
    [
        ("", ("200m", "1Gi"), ("0", "0")),
        ("cpu=1", ("1", "1Gi"), ("1", "0")),
        ("cpu=150%,memory=50%", ("300m", "512Mi"), ("0", "0")),
        ("main/cpu=1, side/memory=64Mi", ("1", "1Gi"), ("0", "64Mi")),
        ("cpu=10m,main/cpu=12.5%", ("25m", "1Gi"), ("10m", "0")),
        ("cpu=much,memory,disk=1,=,%", ("200m", "1Gi"), ("0", "0")),
    ],
)
def test_a_container_uses_its_requests_unless_stated(stated: str, main: tuple[str, str], side: tuple[str, str]) -> None:
    found = usage(pod(stated))
    assert found == {
        "main": {"cpu": main[0], "memory": main[1]},
        "side": {"cpu": side[0], "memory": side[1]},
    }


def test_requests_of_the_pod_count_once() -> None:
    document = pod(resources={"requests": {"cpu": "1", "memory": "2Gi"}})
    document["spec"]["containers"][0]["resources"] = {}
    assert usage(document) == {"main": {"cpu": "1", "memory": "2Gi"}, "side": {"cpu": "0", "memory": "0"}}


def test_only_running_pods_on_simulated_nodes_have_metrics() -> None:
    assert not list(metrics([node()], [pod(phase="Succeeded")]).pods(""))
    assert not list(metrics([node()], [pod(where="other")]).pods(""))
    assert not list(metrics([node(simulated="false")], [pod()]).pods(""))
    assert not list(metrics([node(down="true")], [pod()]).nodes())
    assert list(metrics([node(simulated="false")], [pod()], everything=True).pods(""))


def test_a_node_uses_what_its_pods_use_unless_stated() -> None:
    [found] = metrics([node()], [pod(), pod("cpu=1")]).nodes()
    assert found["usage"] == {"cpu": "2200m", "memory": "2Gi"}
    assert (found["window"], found["timestamp"]) == ("15s", "2027-01-15T08:00:00Z")
    [found] = metrics([node(usage="cpu=50%")], [pod()]).nodes()
    assert found["usage"] == {"cpu": "4", "memory": "1Gi"}
