"""What a new node would be: its objects under a name that is still to be given, its price and its start-up time."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from wharfinger.api.registry import Document
from wharfinger.capacity.prices import PriceRow

HOSTNAME = "kubernetes.io/hostname"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
INVENTORY = "NodeComputeResources"  # the devices of a node, where Node status cannot hold them
_INSTANCE_TYPES = (INSTANCE_TYPE, "beta.kubernetes.io/instance-type")
_ZONES = (ZONE, "failure-domain.beta.kubernetes.io/zone")
_CAPACITY_TYPES = {
    "karpenter.sh/capacity-type": {"spot": "spot", "on-demand": "on-demand", "reserved": "reserved"},
    "eks.amazonaws.com/capacityType": {"SPOT": "spot", "ON_DEMAND": "on-demand", "CAPACITY_BLOCK": "reserved"},
    "cloud.google.com/gke-spot": {"true": "spot"},
    "cloud.google.com/gke-preemptible": {"true": "spot"},
    "kubernetes.azure.com/scalesetpriority": {"spot": "spot", "regular": "on-demand"},
    "cluster.x-k8s.io/interruptible": {"": "spot", "true": "spot"},
}
CAPACITY_TYPE_LABEL = "karpenter.sh/capacity-type"
_PASSING_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "node.cluster.x-k8s.io/",
    "karpenter.sh/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)
"""Taints that a node has while it starts, fails or leaves, so not those of a new one."""


@dataclass(frozen=True, slots=True)
class NodeModel:
    """One instance type of a group in one zone. `documents` are the Node and the objects beside it."""

    group: str
    instance_type: str
    zone: str
    capacity_type: str
    documents: tuple[Document, ...]
    price: float = 1.0  # per hour
    startup: float = 0.0  # seconds

    @property
    def title(self) -> str:
        return " ".join(part for part in (self.instance_type, self.zone, self.capacity_type) if part)

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.group, self.instance_type, self.zone, self.capacity_type

    def named(self, name: str) -> list[Document]:
        """The objects of a new node, the Node first."""
        return [_named(each, name) for each in self.documents]

    def priced(self, row: PriceRow) -> NodeModel:
        return replace(self, price=row.price, startup=row.startup or 0.0)


def instance_type_of(labels: Mapping[str, str]) -> str:
    return next((labels[label] for label in _INSTANCE_TYPES if label in labels), "")


def zone_of(labels: Mapping[str, str]) -> str:
    return next((labels[label] for label in _ZONES if label in labels), "")


def capacity_type_of(labels: Mapping[str, str]) -> str:
    for label, words in _CAPACITY_TYPES.items():
        if label in labels and labels[label] in words:
            return words[labels[label]]
    return ""


def model_of(group: str, documents: Iterable[Document]) -> NodeModel:
    """The model of nodes that are like a new one."""
    found = tuple(documents)
    labels = found[0]["metadata"].get("labels") or {}
    return NodeModel(group, instance_type_of(labels), zone_of(labels), capacity_type_of(labels), found)


def like_node(group: str, node: Document, beside: Iterable[Document]) -> NodeModel:
    """The model of nodes like an existing one. `beside` are its ResourceSlices, its inventory of devices and its
    CSINode."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    kept: Document = {name: copy.deepcopy(status[name]) for name in ("capacity", "allocatable") if name in status}
    if status.get("computeResources"):
        kept["computeResources"] = [_all_healthy(each) for each in status["computeResources"]]
    taints = [dict(taint) for taint in spec.get("taints") or () if not is_passing_taint(taint.get("key", ""))]
    for taint in taints:
        taint.pop("timeAdded", None)
    made: Document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": metadata["name"], "labels": dict(metadata.get("labels") or {})},
        "spec": {"taints": taints} if taints else {},
        "status": kept,
    }
    return model_of(group, [made, *(_stripped(each) for each in beside)])


def resized(model: NodeModel, instance_type: str, size: Mapping[str, str]) -> NodeModel:
    """The same with another instance type. Devices that are not amounts are those of the other type, so not kept."""
    node = copy.deepcopy(model.documents[0])
    node["metadata"]["labels"] = {
        **{name: text for name, text in node["metadata"]["labels"].items() if name not in _INSTANCE_TYPES},
        INSTANCE_TYPE: instance_type,
    }
    room = {"pods": "110", **size}
    node["status"] = {"capacity": dict(room), "allocatable": dict(room)}
    return replace(model, instance_type=instance_type, documents=(node,))


def is_passing_taint(key: str) -> bool:
    return key.startswith(_PASSING_TAINTS)


def _all_healthy(resource: Document) -> Document:
    return {name: copy.deepcopy(value) for name, value in resource.items() if name != "allocatableDevices"}


def _stripped(document: Document) -> Document:
    made: Document = {
        name: copy.deepcopy(document[name]) for name in ("apiVersion", "kind", "spec") if name in document
    }
    if document["kind"] == INVENTORY and isinstance(made.get("spec"), dict):
        listed = made["spec"].get("computeResources") or ()
        made["spec"]["computeResources"] = [_all_healthy(each) for each in listed]
    made["metadata"] = {"name": document["metadata"]["name"]}
    return made


def _named(document: Document, name: str) -> Document:
    made = copy.deepcopy(document)
    old, kind = made["metadata"]["name"], made["kind"]
    made["metadata"]["name"] = name
    if kind == "Node":
        made["metadata"]["labels"] = {**(made["metadata"].get("labels") or {}), HOSTNAME: name}
    elif kind == "ResourceSlice":
        made["metadata"]["name"] = f"{name}-{old}"
        pool = made["spec"].setdefault("pool", {})
        pool["name"] = f"{name}-{pool.get('name') or ''}".rstrip("-")
        made["spec"]["nodeName"] = name
    return made
