"""The Node documents that `wharf nodes` creates. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from wharfinger.api.registry import Document
from wharfinger.node.annotations import SAMPLE, SIMULATED


class NodeSample(msgspec.Struct, frozen=True):
    """What all nodes of a sample have in common."""

    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    zones: Sequence[str] = ("zone-a", "zone-b", "zone-c")
    region: str = "local"
    prefix: str = "node"
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    resources: Mapping[str, str] = msgspec.field(default_factory=dict)  # additional capacity, such as devices
    taints: Sequence[Document] = ()


def sample_node(sample: NodeSample, index: int) -> Document:
    """The node with this index, counted from 0; zones are assigned round-robin."""
    name = f"{sample.prefix}-{index + 1}"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": sample.region,
        SIMULATED: "true",
        SAMPLE: sample.prefix,
        **({"topology.kubernetes.io/zone": sample.zones[index % len(sample.zones)]} if sample.zones else {}),
        **sample.labels,
    }
    capacity = {
        "cpu": sample.cpu,
        "memory": sample.memory,
        "pods": str(sample.pods),
        "ephemeral-storage": "100Gi",
        **sample.resources,
    }
    high, low = index >> 8 & 255, index & 255
    document: Document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"podCIDR": f"10.{high}.{low}.0/24", "podCIDRs": [f"10.{high}.{low}.0/24"]},
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "addresses": [
                {"type": "InternalIP", "address": f"172.{16 + (index >> 16 & 15)}.{high}.{low}"},
                {"type": "Hostname", "address": name},
            ],
        },
    }
    if sample.taints:
        document["spec"]["taints"] = [dict(taint) for taint in sample.taints]
    return document


def surplus(sample: NodeSample, count: int, nodes: Iterable[Document]) -> list[str]:
    """Names of nodes created for this sample beyond the first `count`."""
    wanted = {f"{sample.prefix}-{index + 1}" for index in range(count)}
    names = [
        node["metadata"]["name"] for node in nodes if node["metadata"].get("labels", {}).get(SAMPLE) == sample.prefix
    ]
    return [name for name in names if name not in wanted]
