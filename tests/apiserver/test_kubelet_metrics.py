"""Resource metrics from what kubelets report."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tests.apiserver.running import pod

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NAMESPACES, NODES, PODS
from wharfinger.apiserver.kubelet_metrics import KubeletMetrics
from wharfinger.store.store import Store


def report(second: int, node: float, *containers: tuple[str, str, float, int]) -> str:
    """What a kubelet returns: pod, container, CPU seconds and bytes of memory."""
    stamp = second * 1000
    lines = [f"node_cpu_usage_seconds_total {node} {stamp}", f"node_memory_working_set_bytes 1.048576e+06 {stamp}"]
    for name, container, cpu, memory in containers:
        labels = f'{{container="{container}",namespace="n",pod="{name}"}}'
        lines.append(f"container_cpu_usage_seconds_total{labels} {cpu} {stamp}")
        lines.append(f"container_memory_working_set_bytes{labels} {memory} {stamp}")
    return "\n".join(lines) + "\n"


def measured(*reports: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The metrics of the nodes and of the pods after these reports of node `real`."""

    async def run() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        store = Store(registry())
        await store.create(NAMESPACES, {"metadata": {"name": "n"}})
        await store.create(NODES, {"metadata": {"name": "real", "labels": {"pool": "a"}}})
        for name in ("p", "q"):
            await store.create(PODS, pod(name, nodeName="real"), "n")
        metrics = KubeletMetrics(store, cast("Any", None), lambda: 0.0)
        for text in reports:
            metrics.take("real", text)
        return list(metrics.nodes()), list(metrics.pods("n"))

    return asyncio.run(run())


def test_usage_is_the_rate_between_two_readings() -> None:
    nodes, pods = measured(
        report(100, 50.0, ("p", "a", 1.0, 2048), ("p", "b", 0.0, 1024)),
        report(110, 65.0, ("p", "a", 1.5, 4096), ("p", "b", 0.25, 1024)),
    )
    (node,) = nodes
    assert node["usage"] == {"cpu": "1500000000n", "memory": "1024Ki"}
    assert (node["window"], node["metadata"]["labels"]) == ("10.000s", {"pool": "a"})
    (found,) = pods
    assert found["metadata"]["name"] == "p" and found["metadata"]["labels"] == {"app": "test"}
    assert found["containers"] == [
        {"name": "a", "usage": {"cpu": "50000000n", "memory": "4Ki"}},
        {"name": "b", "usage": {"cpu": "25000000n", "memory": "1Ki"}},
    ]


def test_one_reading_is_not_enough() -> None:
    assert measured(report(100, 50.0, ("p", "a", 1.0, 2048))) == ([], [])
    _, pods = measured(
        report(100, 1.0, ("p", "a", 1.0, 1024)), report(110, 2.0, ("p", "a", 1.0, 1024), ("p", "b", 1.0, 1024))
    )
    assert pods == []  # the second container of the pod is new


def test_a_reading_that_is_repeated_changes_nothing() -> None:
    readings = (report(100, 1.0, ("p", "a", 1.0, 1024)), report(110, 2.0, ("p", "a", 2.0, 1024)))
    assert measured(*readings, readings[1]) == measured(*readings)


def test_a_container_that_started_again_is_left_out_until_it_is_read_twice() -> None:
    first, again = report(100, 1.0, ("p", "a", 9.0, 1024)), report(110, 2.0, ("p", "a", 0.5, 1024))
    assert measured(first, again)[1] == []
    (found,) = measured(first, again, report(120, 3.0, ("p", "a", 1.5, 1024)))[1]
    assert found["containers"][0]["usage"]["cpu"] == "100000000n"


def test_pods_that_are_gone_are_left_out() -> None:
    _, pods = measured(report(100, 1.0, ("gone", "a", 1.0, 1024)), report(110, 2.0, ("gone", "a", 2.0, 1024)))
    assert pods == []
