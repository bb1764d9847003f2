"""Node groups: which nodes belong together, what nodes each group can add, and how many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.api.node_groups import GROUP_LABEL, NodeGroup
from wharfinger.api.quantity import parse_nano
from wharfinger.api.registry import Document
from wharfinger.capacity.models import (
    INVENTORY,
    NodeModel,
    capacity_type_of,
    instance_type_of,
    like_node,
    model_of,
    resized,
    zone_of,
)
from wharfinger.capacity.prices import PriceTable

_LABELS = (
    (GROUP_LABEL, "NodeGroup"),
    ("karpenter.sh/nodepool", "Karpenter"),
    ("eks.amazonaws.com/nodegroup", "EKS"),
    ("alpha.eksctl.io/nodegroup-name", "eksctl"),
    ("cloud.google.com/gke-nodepool", "GKE"),
    ("kubernetes.azure.com/agentpool", "AKS"),
    ("agentpool", "AKS"),
    ("cluster.x-k8s.io/deployment-name", "Cluster API"),
    ("topology.cluster.x-k8s.io/deployment-name", "Cluster API"),
    ("cluster.x-k8s.io/pool-name", "Cluster API"),
    ("cluster.x-k8s.io/set-name", "Cluster API"),
    ("kops.k8s.io/instancegroup", "kOps"),
    ("doks.digitalocean.com/node-pool", "DigitalOcean"),
)
"""Labels that name the group of a node, and whose they are. The first that a node has counts."""

_OWNER = "cluster.x-k8s.io/owner-name"  # annotation by Cluster API: the MachineSet or MachinePool of a node
UNGROUPED = "(no group)"


@dataclass(slots=True)
class CapacityGroup:
    name: str
    source: str  # where it is known from, such as `EKS`
    nodes: list[str] = field(default_factory=list)  # registered
    models: list[NodeModel] = field(default_factory=list)
    max_size: int | None = None
    target_size: int | None = None  # nodes already requested, including those not registered yet
    limits: dict[str, int] = field(default_factory=dict)  # of all its nodes together, in nano units
    weight: int = 0  # groups of larger weight come first
    silent: list[str] = field(default_factory=list)  # new nodes that have not published their devices yet
    document: NodeGroup | None = None  # if a NodeGroup describes it

    @property
    def coming(self) -> int:
        """Nodes that were requested and are not registered yet."""
        return max((self.target_size or 0) - len(self.nodes), 0)

    @property
    def room(self) -> int | None:
        """How many nodes can still be added; None if nothing limits it."""
        return None if self.max_size is None else max(self.max_size - len(self.nodes) - self.coming, 0)


def group_of(node: Document, owners: Sequence[str] = ()) -> tuple[str, str]:
    """The name of a node's group and whose it is; empty if it belongs to none. `owners` are the names of known
    MachineDeployments and the like."""
    metadata = node["metadata"]
    labels = metadata.get("labels") or {}
    for label, source in _LABELS:
        if labels.get(label):
            return labels[label], source
    owner = (metadata.get("annotations") or {}).get(_OWNER, "")
    if owner:
        # A MachineSet is called after its MachineDeployment, with a hash.
        of = [name for name in owners if owner == name or owner.rpartition("-")[0] == name]
        return max(of, key=len, default=owner), "Cluster API"
    return "", ""


class KnownNodes:
    """The nodes of a cluster and the objects beside them."""

    def __init__(self, objects: Iterable[Document]) -> None:
        self.nodes: dict[str, Document] = {}
        self._beside: dict[str, list[Document]] = {}
        for each in objects:
            kind, name = each.get("kind"), each["metadata"]["name"]
            if kind == "Node":
                self.nodes[name] = each
            elif kind in ("CSINode", INVENTORY):
                self._beside.setdefault(name, []).append(each)
            elif kind == "ResourceSlice" and (owner := (each.get("spec") or {}).get("nodeName")):
                self._beside.setdefault(owner, []).append(each)

    def beside(self, node: str) -> list[Document]:
        return self._beside.get(node, [])

    def size_of(self, instance_type: str) -> Mapping[str, str]:
        """The allocatable of a node of this type, wherever it is."""
        for name in sorted(self.nodes):
            node = self.nodes[name]
            if instance_type and instance_type_of(node["metadata"].get("labels") or {}) == instance_type:
                return {key: str(value) for key, value in (node["status"].get("allocatable") or {}).items()}
        return {}


def found_groups(known: KnownNodes, described: Sequence[CapacityGroup]) -> list[CapacityGroup]:
    """The groups that files describe, then those that labels of nodes name, with their nodes and with models like
    these."""
    groups = {group.name: group for group in described}
    owners = [group.name for group in described if group.source == "Cluster API"]
    for name in sorted(known.nodes):
        group_name, source = group_of(known.nodes[name], owners)
        if not group_name:
            continue
        group = groups.setdefault(group_name, CapacityGroup(group_name, source))
        group.nodes.append(name)
    for group in groups.values():
        _add_models_like_nodes(group, known)
    return sorted(groups.values(), key=lambda group: -group.weight)


def _add_models_like_nodes(group: CapacityGroup, known: KnownNodes) -> None:
    if group.document is not None:
        return  # its template says what a new node has
    described = group.models
    like: dict[tuple[str, str, str, str], NodeModel] = {}
    for name in sorted(group.nodes, key=lambda name: (not _is_ready(known.nodes[name]), name)):
        node = known.nodes[name]
        labels = node["metadata"].get("labels") or {}
        key = (group.name, instance_type_of(labels), zone_of(labels), capacity_type_of(labels))
        if key not in like and (node.get("status") or {}).get("allocatable"):
            like[key] = like_node(group.name, node, known.beside(name))
    for model in described:  # what exists is known better than what was described
        like.setdefault(model.key, model)
    group.models = list(like.values())


def _is_ready(node: Document) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return not any(each.get("type") == "Ready" and each.get("status") != "True" for each in conditions)


def from_node_group(
    document: NodeGroup, known: KnownNodes, prices: PriceTable | None
) -> tuple[CapacityGroup, list[str]]:
    """The group of a NodeGroup document, and why some of its instance types have no model."""
    spec, notes = document.spec, list[str]()
    group = CapacityGroup(
        document.name, "NodeGroup", max_size=spec.max_size, target_size=spec.target_size, document=document
    )
    plain = model_of(document.name, document.documents("template"))
    if not spec.instance_types:
        group.models.append(plain)
    for name in spec.instance_types:
        row = None if prices is None else prices.find(name, document.name, plain.zone, plain.capacity_type)
        size = (row.size if row is not None else {}) or known.size_of(name)
        if size:
            group.models.append(resized(plain, name, {**_texts(spec.template.capacity), **size}))
        else:
            notes.append(f"group {document.name}: the size of {name} is not known, so it is left out")
    return group, notes


def _texts(quantities: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in quantities.items()}


def priced(groups: Iterable[CapacityGroup], known: KnownNodes, prices: PriceTable | None) -> list[str]:
    """Gives models their prices and adds the types that the table has for a group. Returns what was left out and why."""
    notes = []
    for group in groups:
        if prices is None:
            continue
        _add_types_of_table(group, known, prices)
        kept = []
        for model in group.models:
            row = prices.find(model.instance_type, group.name, model.zone, model.capacity_type)
            if row is None:
                what = model.title or "its nodes"
                notes.append(f"group {group.name}: {prices.name} has no price for {what}, so no such node is added")
            else:
                kept.append(model.priced(row))
        group.models = kept
    return notes


def _add_types_of_table(group: CapacityGroup, known: KnownNodes, prices: PriceTable) -> None:
    """Rows that name the group add instance types to it, in its zones."""
    present = {model.instance_type for model in group.models}
    by_zone = {(model.zone, model.capacity_type): model for model in group.models}
    for row in prices.rows:
        if row.group != group.name or not row.instance_type or row.instance_type in present:
            continue
        size = row.size or known.size_of(row.instance_type)
        if not size:
            continue
        for (zone, capacity_type), model in by_zone.items():
            if row.zone in ("", zone) and row.capacity_type in ("", capacity_type):
                group.models.append(resized(model, row.instance_type, size))


def within_limits(group: CapacityGroup, chosen: Sequence[NodeModel], used: Mapping[str, int]) -> bool:
    """Whether the group may have these new nodes; `used` is what its nodes have, in nano units."""
    if group.room is not None and len(chosen) > group.room:
        return False
    for name, most in group.limits.items():
        total = used.get(name, 0) + sum(amount_of(model.documents[0], name) for model in chosen)
        if total > most:
            return False
    return True


def amount_of(node: Document, resource: str) -> int:
    """The capacity of a node in nano units; `nodes` counts it as one."""
    if resource == "nodes":
        return parse_nano(1)
    status = node.get("status") or {}
    quantity = (status.get("capacity") or status.get("allocatable") or {}).get(resource)
    return 0 if quantity is None else parse_nano(quantity)


def used_of(group: CapacityGroup, known: KnownNodes) -> dict[str, int]:
    coming = [model.documents[0] for model in group.models[:1]] * group.coming
    nodes = [*(known.nodes[name] for name in group.nodes), *coming]
    return {name: sum(amount_of(node, name) for node in nodes) for name in group.limits}


def node_prices(
    nodes: Iterable[Document], groups: Sequence[CapacityGroup], prices: PriceTable
) -> tuple[dict[str, float], list[str]]:
    """What each node costs per hour, and the names of those that the table has no price for."""
    group_of = {name: group.name for group in groups for name in group.nodes}
    found, unpriced = dict[str, float](), list[str]()
    for node in nodes:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        where = (group_of.get(name, ""), zone_of(labels), capacity_type_of(labels))
        row = prices.find(instance_type_of(labels), *where)
        if row is None:
            unpriced.append(name)
        found[name] = 0.0 if row is None else row.price
    return found, unpriced


def priced_nodes(objects: Iterable[Document], prices: PriceTable) -> dict[str, float]:
    """What each of the nodes among the objects costs per hour."""
    known = KnownNodes(each for each in objects if each.get("kind") == "Node")
    return node_prices(known.nodes.values(), found_groups(known, ()), prices)[0]
