"""Node groups that files of other projects describe: NodePools of Karpenter, MachineDeployments of Cluster API, and the
configuration and status of cluster-autoscaler. These kinds are not served here; their objects are read from files, or
from a cluster that has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from wharfinger.api.numbers import parse_uint64
from wharfinger.api.quantity import parse_nano
from wharfinger.api.registry import Document, Resource
from wharfinger.api.wording import object_name
from wharfinger.capacity.foreign_faults import CAPACITY, SIZE, foreign_faults
from wharfinger.capacity.groups import CapacityGroup, KnownNodes
from wharfinger.capacity.models import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE,
    ZONE,
    NodeModel,
    instance_type_of,
    model_of,
    zone_of,
)
from wharfinger.capacity.prices import PriceTable

KARPENTER, CLUSTER_API = "karpenter.sh", "cluster.x-k8s.io"
FOREIGN_KINDS = (
    Resource(KARPENTER, "v1", "nodepools", "NodePool", False),
    Resource(CLUSTER_API, "v1beta1", "machinedeployments", "MachineDeployment", True),
    Resource(CLUSTER_API, "v1beta1", "machinesets", "MachineSet", True),
    Resource(CLUSTER_API, "v1beta1", "machinepools", "MachinePool", True),
)
_STATUS = ("kube-system", "cluster-autoscaler-status")  # a ConfigMap of cluster-autoscaler
_AWS = "karpenter.k8s.aws/instance-"
_AWS_TYPE = re.compile(r"(?P<category>[a-z]+?)(?P<generation>[0-9]+)[a-z0-9-]*\.(?P<size>[a-z0-9-]+)")
_NODES = re.compile(r"^--nodes=([0-9]+):([0-9]+):(.+)$")


class BadForeignObject(ValueError):
    """An object of another project is not what its kind should be."""


def is_foreign(document: Document) -> bool:
    """Whether the document is of a kind that is read here and served by others."""
    group = str(document.get("apiVersion", "")).partition("/")[0]
    return any(group == each.group and document.get("kind") == each.kind for each in FOREIGN_KINDS)


def described_groups(
    documents: Iterable[Document], known: KnownNodes, prices: PriceTable | None
) -> list[CapacityGroup]:
    """The groups of NodePools, MachineDeployments, and MachineSets and MachinePools that nobody controls. Raises
    BadForeignObject."""
    found = []
    for document in documents:
        if not is_foreign(document):
            continue
        if faults := foreign_faults(document):
            raise BadForeignObject(f"{object_name(document)} cannot be read: {'; '.join(map(str, faults))}")
        if document["kind"] == "NodePool":
            found.append(_node_pool(document, known, prices))
        elif not any(each.get("controller") for each in document["metadata"].get("ownerReferences") or ()):
            found.append(_machines(document))
    return found


# -- Karpenter


def _node_pool(document: Document, known: KnownNodes, prices: PriceTable | None) -> CapacityGroup:
    name, spec = document["metadata"]["name"], document.get("spec") or {}
    limits = {key: parse_nano(value) for key, value in (spec.get("limits") or {}).items()}
    group = CapacityGroup(name, "Karpenter", limits=limits, weight=int(spec.get("weight") or 0))
    if spec.get("replicas") is not None:
        group.target_size = int(spec["replicas"])
    template = spec.get("template") or {}
    inner = template.get("spec") or {}
    requirements = [each for each in inner.get("requirements") or () if isinstance(each, dict)]
    zones = _wanted(requirements, ZONE) or _zones_of(name, known) or [""]
    capacity_types = _wanted(requirements, CAPACITY_TYPE_LABEL) or ["on-demand"]
    for instance_type, size in _types(requirements, name, known, prices):
        for zone in zones:
            for capacity_type in capacity_types:
                labels = {
                    **((template.get("metadata") or {}).get("labels") or {}),
                    **_single_values(requirements),
                    "karpenter.sh/nodepool": name,
                    CAPACITY_TYPE_LABEL: capacity_type,
                    INSTANCE_TYPE: instance_type,
                    **({ZONE: zone} if zone else {}),
                    **_aws_labels(instance_type, size),
                }
                group.models.append(_model(name, labels, inner.get("taints") or [], size))
    return group


def _types(
    requirements: Sequence[Document], pool: str, known: KnownNodes, prices: PriceTable | None
) -> list[tuple[str, Mapping[str, str]]]:
    """The instance types that a pool allows and whose size is known."""
    names = _wanted(requirements, INSTANCE_TYPE)
    if not names:
        all_labels = [node["metadata"].get("labels") or {} for node in known.nodes.values()]
        own = {instance_type_of(each) for each in all_labels if each.get("karpenter.sh/nodepool") == pool}
        names = sorted({*own, *(prices.types() if prices is not None else ())} - {""})
    found = []
    for name in names:
        row = None if prices is None else prices.find(name, pool)
        size = (row.size if row is not None else {}) or known.size_of(name)
        labels = {INSTANCE_TYPE: name, **_aws_labels(name, size)}
        if size and all(_meets(each, labels) for each in requirements if each.get("key") in labels):
            found.append((name, size))
    return found


def _aws_labels(instance_type: str, size: Mapping[str, str]) -> dict[str, str]:
    match = _AWS_TYPE.fullmatch(instance_type)
    if match is None:
        return {}
    labels = {
        f"{_AWS}family": instance_type.partition(".")[0],
        **{f"{_AWS}{name}": text for name, text in match.groupdict().items()},
    }
    if "cpu" in size:
        labels[f"{_AWS}cpu"] = str(-(-parse_nano(size["cpu"]) // 10**9))
    if "memory" in size:
        labels[f"{_AWS}memory"] = str(parse_nano(size["memory"]) // 10**9 // 2**20)
    return labels


def _meets(requirement: Document, labels: Mapping[str, str]) -> bool:
    text, values = labels[requirement["key"]], [str(each) for each in requirement.get("values") or ()]
    match requirement.get("operator"):
        case "In":
            return text in values
        case "NotIn":
            return text not in values
        case "DoesNotExist":
            return False
        case "Gt" | "Lt" | "Gte" | "Lte" as operator if text.isdigit() and values and values[0].isdigit():
            own, bound = int(text), int(values[0])
            return {"Gt": own > bound, "Lt": own < bound, "Gte": own >= bound, "Lte": own <= bound}[operator]
    return True


def _wanted(requirements: Sequence[Document], key: str) -> list[str]:
    """The values that requirements leave for a key; empty if they do not list any."""
    found: list[str] | None = None
    for each in requirements:
        if each.get("key") == key and each.get("operator") == "In":
            values = [str(value) for value in each.get("values") or ()]
            found = values if found is None else [value for value in found if value in values]
    excluded = {
        str(value)
        for each in requirements
        if each.get("key") == key and each.get("operator") == "NotIn"
        for value in each.get("values") or ()
    }
    return [value for value in found or () if value not in excluded]


def _single_values(requirements: Sequence[Document]) -> dict[str, str]:
    """Requirements with one value become labels of the node."""
    return {
        str(each["key"]): str(each["values"][0])
        for each in requirements
        if each.get("key") and each.get("operator") == "In" and len(each.get("values") or ()) == 1
    }


def _zones_of(pool: str, known: KnownNodes) -> list[str]:
    labels = [node["metadata"].get("labels") or {} for node in known.nodes.values()]
    return sorted({zone_of(each) for each in labels if each.get("karpenter.sh/nodepool") == pool} - {""})


def _model(group: str, labels: Mapping[str, str], taints: Sequence[Document], size: Mapping[str, str]) -> NodeModel:
    room = {"pods": "110", **size}
    node: Document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "template", "labels": dict(labels)},
        "spec": {"taints": [dict(each) for each in taints]} if taints else {},
        "status": {"capacity": dict(room), "allocatable": dict(room)},
    }
    return model_of(group, [node])


# -- Cluster API


def _machines(document: Document) -> CapacityGroup:
    metadata, spec = document["metadata"], document.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    group = CapacityGroup(
        metadata["name"], "Cluster API", max_size=parse_uint64(annotations.get(f"{SIZE}max-size", ""))
    )
    if isinstance(spec.get("replicas"), int):
        group.target_size = spec["replicas"]
    if group.max_size is None:
        group.max_size = group.target_size  # nothing scales it
    size = _capacity(annotations)
    if "cpu" in size and "memory" in size:
        labels = dict(_pairs(annotations.get(f"{CAPACITY}labels", "")))
        labels["cluster.x-k8s.io/deployment-name"] = metadata["name"]
        taints = [_taint(text) for text in annotations.get(f"{CAPACITY}taints", "").split(",") if ":" in text]
        group.models.append(_model(metadata["name"], labels, taints, size))
    return group


def _capacity(annotations: Mapping[str, str]) -> dict[str, str]:
    names = {"cpu": "cpu", "memory": "memory", "ephemeral-disk": "ephemeral-storage", "maxPods": "pods"}
    size = {ours: annotations[CAPACITY + theirs] for theirs, ours in names.items() if CAPACITY + theirs in annotations}
    count = annotations.get(f"{CAPACITY}gpu-count")
    if count is not None:
        size[annotations.get(f"{CAPACITY}gpu-type", "nvidia.com/gpu")] = count
    return size


def _pairs(text: str) -> list[tuple[str, str]]:
    return [
        (name.strip(), value.strip()) for name, _, value in (part.partition("=") for part in text.split(",")) if name
    ]


def _taint(text: str) -> Document:
    """`key=value:Effect`"""
    pair, _, effect = text.strip().rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


# -- cluster-autoscaler


def limit_by_autoscaler(groups: Sequence[CapacityGroup], documents: Iterable[Document]) -> None:
    """Sets the sizes that cluster-autoscaler is told or reports. It knows groups by the names of the cloud provider,
    which contain ours; a group may have one of these in each zone."""
    largest: dict[str, int] = {}
    target: dict[str, int] = {}
    for name, most, wanted in _autoscaled(documents):
        group = _named_in(name, groups)
        if group is not None:
            largest[group.name] = largest.get(group.name, 0) + most
            if wanted is not None:
                target[group.name] = target.get(group.name, 0) + wanted
    for group in groups:
        if group.document is None and group.name in largest:
            group.max_size = largest[group.name]
        if group.document is None and group.name in target:
            group.target_size = target[group.name]


def _autoscaled(documents: Iterable[Document]) -> list[tuple[str, int, int | None]]:
    """Name, largest size and present target of groups; the reported ones replace those of the command line."""
    told: dict[str, tuple[int, int | None]] = {}
    reported: dict[str, tuple[int, int | None]] = {}
    for document in documents:
        metadata = document.get("metadata") or {}
        if document.get("kind") == "ConfigMap" and (metadata.get("namespace"), metadata.get("name")) == _STATUS:
            reported |= _reported((document.get("data") or {}).get("status"))
        elif document.get("kind") in ("Deployment", "StatefulSet", "Pod"):
            told |= _told(document)
    return [(name, *sizes) for name, sizes in {**told, **reported}.items()]


def _reported(text: object) -> dict[str, tuple[int, int | None]]:
    try:
        status: Any = yaml.safe_load(text) if isinstance(text, str) else None
    except yaml.YAMLError:
        return {}
    groups = status.get("nodeGroups") if isinstance(status, dict) else None
    found: dict[str, tuple[int, int | None]] = {}
    for each in groups if isinstance(groups, list) else ():
        health = each.get("health") if isinstance(each, dict) else None
        if isinstance(health, dict) and isinstance(health.get("maxSize"), int):
            wanted = health.get("cloudProviderTarget")
            found[str(each.get("name"))] = (health["maxSize"], wanted if isinstance(wanted, int) else None)
    return found


def _told(document: Document) -> dict[str, tuple[int, int | None]]:
    spec = document.get("spec") or {}
    spec = spec if document["kind"] == "Pod" else (spec.get("template") or {}).get("spec") or {}
    found: dict[str, tuple[int, int | None]] = {}
    for container in spec.get("containers") or ():
        if "cluster-autoscaler" not in str(container.get("image")):
            continue
        for argument in (*(container.get("command") or ()), *(container.get("args") or ())):
            if match := _NODES.match(str(argument)):
                found[match[3]] = (int(match[2]), None)
    return found


def _named_in(name: str, groups: Sequence[CapacityGroup]) -> CapacityGroup | None:
    """The group whose name is that of the provider's group, or a part of it."""
    last = name.rpartition("/")[2]
    found = [group for group in groups if group.name == last or re.search(rf"(^|-){re.escape(group.name)}(-|$)", last)]
    return max(found, key=lambda group: len(group.name), default=None)
