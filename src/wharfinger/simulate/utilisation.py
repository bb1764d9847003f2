"""How full a cluster is, by node pool and zone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from wharfinger.api.registry import Document
from wharfinger.api.resources import add_amounts, in_units, nano, requests
from wharfinger.api.views import Node, Pod

ZONE = "topology.kubernetes.io/zone"
POOLS = (  # labels that name the pool of a node; the first one that a node has counts
    "wharfinger.dev/node-group",
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "node.cluster.x-k8s.io/pool",
    "pool",
)


class PoolUse(msgspec.Struct):
    """What the pods on the nodes of one pool and zone request of what the nodes have, in the units of the scheduler."""

    pool: str
    zone: str
    nodes: int = 0
    pods: int = 0
    requested: dict[str, int] = msgspec.field(default_factory=dict)
    allocatable: dict[str, int] = msgspec.field(default_factory=dict)

    def share(self, resource: str) -> float | None:
        """The requested part of a resource; None if no node has it."""
        total = self.allocatable.get(resource, 0)
        return self.requested.get(resource, 0) / total if total else None

    def document(self) -> Document:
        return {
            "pool": self.pool,
            "zone": self.zone,
            "nodes": self.nodes,
            "pods": self.pods,
            "requestedShare": {
                name: round(share, 4)
                for name in sorted(self.allocatable)
                if name != "pods" and (share := self.share(name)) is not None
            },
        }


def utilisation(nodes: Iterable[Node], pods: Iterable[Pod]) -> list[PoolUse]:
    """By pool and zone, in their order; empty texts where a node has no such label."""
    groups: dict[tuple[str, str], PoolUse] = {}
    group_of: dict[str, PoolUse] = {}
    for node in nodes:
        key = (_pool(node.metadata.labels), node.metadata.labels.get(ZONE, ""))
        group = group_of[node.metadata.name] = groups.setdefault(key, PoolUse(*key))
        group.nodes += 1
        add_amounts(group.allocatable, in_units(nano(node.status.allocatable)))
    for pod in pods:
        found = group_of.get(pod.spec.node_name)
        if found is not None and not pod.terminal:
            found.pods += 1
            add_amounts(found.requested, requests(pod))
    return [groups[key] for key in sorted(groups)]


def _pool(labels: Mapping[str, str]) -> str:
    return next((labels[name] for name in POOLS if labels.get(name)), "")
