"""Resource metrics, served by the API server itself where Kubernetes has a metrics server behind an APIService."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from wharfinger.api.kinds.metrics import NODE_METRICS, POD_METRICS
from wharfinger.api.registry import Document, Resource
from wharfinger.node.metrics import SimulatedMetrics
from wharfinger.store.store import Store

if TYPE_CHECKING:
    from wharfinger.apiserver.kubelet_metrics import KubeletMetrics


def provide_metrics(
    store: Store, now: Callable[[], float], *, everything: bool = False, real: KubeletMetrics | None = None
) -> None:
    """Makes a store answer for nodes and pods in `metrics.k8s.io`; see `SimulatedMetrics`. `real` adds real nodes."""

    def scan(resource: Resource, namespace: str) -> Iterator[Document]:
        return (stored.document() for stored in store.scan(resource, namespace))

    metrics = SimulatedMetrics(scan, now, everything=everything)
    nodes, pods = (NODE_METRICS.group, NODE_METRICS.plural), (POD_METRICS.group, POD_METRICS.plural)
    if real is None:
        store.computed |= {nodes: metrics.nodes, pods: metrics.pods}
        return
    store.computed[nodes] = lambda namespace: chain(metrics.nodes(namespace), real.nodes(namespace))
    store.computed[pods] = lambda namespace: chain(metrics.pods(namespace), real.pods(namespace))
