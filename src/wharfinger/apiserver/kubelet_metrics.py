"""Resource metrics of real nodes and their pods: what a metrics server reads from kubelets.

The server reads `/metrics/resource` of every real node at an interval. CPU usage is the rate between two readings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from wharfinger.api.errors import ApiError
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.apiserver.kubelet_proxy import KubeletProxy
from wharfinger.client.tasks import OwnedTask
from wharfinger.node.annotations import SIMULATED
from wharfinger.store.store import Store

log = logging.getLogger(__name__)

INTERVAL = 15.0  # seconds between readings; a metrics server's default
_API = "metrics.k8s.io/v1beta1"
_REAL = f'"{SIMULATED}":"false"'.encode()


@dataclass(slots=True)
class UsageCounter:
    """One reading of a node or a container."""

    time: float = 0.0  # of the CPU reading
    cpu_seconds: float = 0.0  # since its start
    memory: int = 0  # bytes of the working set


@dataclass(frozen=True, slots=True)
class MeasuredUsage:
    """Two readings of the same counter, one after the other."""

    before: UsageCounter
    last: UsageCounter

    def followed_by(self, reading: UsageCounter) -> MeasuredUsage:
        """A kubelet repeats a reading until it has a new one. A container that started again counts from zero."""
        if reading.time <= self.last.time:
            return self
        return MeasuredUsage(reading if reading.cpu_seconds < self.last.cpu_seconds else self.last, reading)

    def usage(self) -> dict[str, str] | None:
        """None if there was only one reading."""
        elapsed = self.last.time - self.before.time
        if elapsed <= 0:
            return None
        rate = (self.last.cpu_seconds - self.before.cpu_seconds) / elapsed
        return {"cpu": f"{round(rate * 1e9)}n", "memory": f"{self.last.memory // 1024}Ki"}


ContainerKey = tuple[str, str, str]  # namespace, pod and name; all empty for the node itself
_NODE: ContainerKey = ("", "", "")


def parse_reading(text: str, now: float) -> dict[ContainerKey, UsageCounter]:
    """The metrics of a kubelet. Raises ValueError or KeyError."""
    found: dict[ContainerKey, UsageCounter] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            owner, _, metric = sample.name.partition("_")
            if metric not in ("cpu_usage_seconds_total", "memory_working_set_bytes") or owner == "pod":
                continue
            labels = sample.labels
            key = _NODE if owner == "node" else (labels["namespace"], labels["pod"], labels["container"])
            counter = found.setdefault(key, UsageCounter())
            if metric.endswith("_bytes"):
                counter.memory = int(sample.value)
            else:
                counter.cpu_seconds = sample.value
                counter.time = float(sample.timestamp) if sample.timestamp is not None else now
    return found


class KubeletMetrics(OwnedTask):
    """What was measured last on each real node."""

    task_name = "kubelet metrics"

    def __init__(self, store: Store, kubelets: KubeletProxy, now: Callable[[], float]) -> None:
        self._store = store
        self._kubelets = kubelets
        self._now = now
        self._measured: dict[str, dict[ContainerKey, MeasuredUsage]] = {}  # by node

    async def _run(self) -> None:
        while True:
            # Only nodes that a kubelet registered have the mark; most nodes may be simulated, and are not decoded.
            real = [stored.document() for stored in self._store.scan(NODES) if _REAL in stored.data]
            for name in self._measured.keys() - {node["metadata"]["name"] for node in real}:
                del self._measured[name]
            await asyncio.gather(*(self._read(node) for node in real))
            await asyncio.sleep(INTERVAL)

    async def _read(self, node: Document) -> None:
        name = node["metadata"]["name"]
        try:
            self.take(name, await self._kubelets.fetch(node, "/metrics/resource"))
        except (ApiError, ValueError, KeyError) as error:
            log.debug("no metrics of node %s: %s", name, error)
            self._measured.pop(name, None)  # old ones would be taken for current ones

    def take(self, node: str, text: str) -> None:
        """Takes the metrics that a kubelet returned."""
        known = self._measured.get(node) or {}
        self._measured[node] = {
            key: known[key].followed_by(reading) if key in known else MeasuredUsage(reading, reading)
            for key, reading in parse_reading(text, self._now()).items()
        }

    def nodes(self, namespace: str = "") -> Iterator[Document]:
        """NodeMetrics of the nodes that were read twice."""
        for name, measured in self._measured.items():
            stored, own = self._store.peek(NODES, name), measured.get(_NODE)
            if stored is not None and own is not None and (usage := own.usage()) is not None:
                yield {**_shown("NodeMetrics", stored.document(), own), "usage": usage}

    def pods(self, namespace: str) -> Iterator[Document]:
        """PodMetrics of the pods all of whose containers were read twice."""
        for measured in self._measured.values():
            by_pod: dict[ObjectKey, dict[str, MeasuredUsage]] = {}
            for (of, pod, container), each in measured.items():
                if pod and namespace in ("", of):
                    by_pod.setdefault((of, pod), {})[container] = each
            for (of, pod), containers in by_pod.items():
                usages = [{"name": name, "usage": each.usage()} for name, each in containers.items()]
                stored = self._store.peek(PODS, pod, of)
                if stored is not None and all(one["usage"] is not None for one in usages):
                    first = next(iter(containers.values()))
                    yield {**_shown("PodMetrics", stored.document(), first), "containers": usages}


def _shown(kind: str, document: Document, measured: MeasuredUsage) -> Document:
    metadata, stamp = document["metadata"], format_time(measured.last.time)
    shown = {key: metadata[key] for key in ("name", "namespace", "labels") if metadata.get(key)}
    return {
        "apiVersion": _API,
        "kind": kind,
        "metadata": {**shown, "creationTimestamp": stamp},
        "timestamp": stamp,
        "window": f"{measured.last.time - measured.before.time:.3f}s",
    }
