"""Resource metrics, served by the API server itself where Kubernetes has a metrics server behind an APIService."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wharfinger.api.kinds.metrics import NODE_METRICS, POD_METRICS
from wharfinger.api.registry import Document, Resource
from wharfinger.node.metrics import SimulatedMetrics
from wharfinger.store.store import Store


def provide_metrics(store: Store, now: Callable[[], float], *, everything: bool = False) -> None:
    """Makes a store answer for nodes and pods in `metrics.k8s.io`; see `SimulatedMetrics`."""

    def scan(resource: Resource, namespace: str) -> Iterator[Document]:
        return (stored.document() for stored in store.scan(resource, namespace))

    metrics = SimulatedMetrics(scan, now, everything=everything)
    store.computed[NODE_METRICS.group, NODE_METRICS.plural] = metrics.nodes
    store.computed[POD_METRICS.group, POD_METRICS.plural] = metrics.pods
