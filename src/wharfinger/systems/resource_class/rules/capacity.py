"""How many nodes of which node group the pending pods need, including devices, as an autoscaler has to know.

The template of a node group describes a new node, so a group can scale up from zero. During a grace period, a new node
that has not published its devices yet counts as its template, so that no second node is requested for the same pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from wharfinger.api.configuration import API_VERSION
from wharfinger.api.times import BadTime, parse_time
from wharfinger.api.validation.resources import is_extended
from wharfinger.api.views import Node, Pod
from wharfinger.api.views.meta import ObjectMeta
from wharfinger.api.views.nodes import ComputeResource, NodeSpec, NodeStatus, Taint
from wharfinger.api.views.pods import Quantities
from wharfinger.api.wording import counted, decoding_fault
from wharfinger.engine import Engine
from wharfinger.engine.engine import UnknownProfile
from wharfinger.framework.stand_ins import StandIn
from wharfinger.systems.resource_class.kinds.views import NodeComputeResources
from wharfinger.systems.resource_class.rules.compute_resources import compute_resource_name, published

KIND = "NodeGroup"
GROUP_LABEL = "wharfinger.dev/node-group"
"""The node label that names the node group."""


MOST_DEVICES = 100_000
"""Devices of one kind in a template: each gets an id."""


class BadNodeGroup(ValueError):
    """The document is not a valid NodeGroup; the message includes the field path."""


class _Part(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base class of the NodeGroup structs."""


class DeviceTemplate(_Part, frozen=True):
    resource_name: str
    count: int
    properties: dict[str, str] = msgspec.field(default_factory=dict)


class NodeTemplate(_Part, frozen=True):
    capacity: Quantities = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    compute_resources: tuple[DeviceTemplate, ...] = ()


class GroupSpec(_Part, frozen=True):
    template: NodeTemplate
    max_size: int = 1000
    target_size: int | None = None  # nodes already requested, including those not registered yet


class GroupMetadata(_Part, frozen=True):
    name: str


class NodeGroup(_Part, frozen=True):
    api_version: str
    kind: str
    metadata: GroupMetadata
    spec: GroupSpec

    @property
    def name(self) -> str:
        return self.metadata.name

    def node(self, name: str, labels: dict[str, str] | None = None) -> Node:
        """A new node of the group, with its devices."""
        template = self.spec.template
        marked = {**template.labels, **(labels or {}), GROUP_LABEL: self.name, "kubernetes.io/hostname": name}
        room: Quantities = {"pods": 110, **template.capacity}
        status = NodeStatus(capacity=room, allocatable=room, compute_resources=self.devices(name))
        return Node(ObjectMeta(name=name, uid=name, labels=marked), NodeSpec(taints=template.taints), status)

    def devices(self, node: str) -> tuple[ComputeResource, ...]:
        return tuple(
            ComputeResource(
                compute_resource_name(each.resource_name, each.properties),
                each.resource_name,
                each.properties,
                tuple(f"{node}-{index}-{number}" for number in range(each.count)),
            )
            for index, each in enumerate(self.spec.template.compute_resources)
        )


def read_group(document: Any) -> NodeGroup:
    """Raises BadNodeGroup."""
    try:
        group = msgspec.convert(document, NodeGroup)
    except msgspec.ValidationError as error:
        raise BadNodeGroup(decoding_fault(error)) from None
    if (group.api_version, group.kind) != (API_VERSION, KIND):
        raise BadNodeGroup(f"expected apiVersion {API_VERSION}, kind {KIND}")
    seen = set()
    for index, each in enumerate(group.spec.template.compute_resources):
        path = f"spec.template.computeResources[{index}]"
        if not is_extended(each.resource_name):
            raise BadNodeGroup(f"{path}.resourceName: must be the qualified name of an extended resource")
        if not 0 <= each.count <= MOST_DEVICES:
            raise BadNodeGroup(
                f"{path}.count: must be between 0 and {MOST_DEVICES}; resources without single devices belong in capacity"
            )
        key = compute_resource_name(each.resource_name, each.properties)
        if key in seen:
            raise BadNodeGroup(f"{path}: the same resourceName and properties as another entry")
        seen.add(key)
    return group


@dataclass(slots=True)
class GroupNeed:
    name: str
    current: int = 0  # registered nodes
    silent: list[str] = field(default_factory=list)  # new nodes that have not published their devices yet
    coming: int = 0  # requested earlier, not registered yet
    pods: dict[str, list[str]] = field(default_factory=dict)  # pods by new node
    reasons: dict[str, str] = field(default_factory=dict)  # by new node: why its first pod fits nowhere else

    @property
    def new(self) -> int:
        return len(self.pods)


@dataclass(slots=True)
class Needs:
    groups: list[GroupNeed]
    fitting: dict[str, str] = field(default_factory=dict)  # pods that need no new node, and their node
    unservable: dict[str, str] = field(default_factory=dict)  # pods that no group can serve, and the reason


def needs(
    engine: Engine,
    groups: Sequence[NodeGroup],
    nodes: Iterable[Node],
    inventories: Iterable[NodeComputeResources],
    pods: Iterable[Pod],
    *,
    now: float,
    grace: float,
) -> Needs:
    """The nodes that pending pods need in addition to the current ones.

    The engine holds all objects except nodes and pods. Stand-ins among the pods are those of other objects that need a
    node. Groups are tried in the given order, and pods are sorted by priority, then by age and name.
    """
    found = {group.name: GroupNeed(group.name) for group in groups}
    by_name = {group.name: group for group in groups}
    separate = {each.metadata.name: each for each in inventories}
    for node in nodes:
        group = by_name.get(node.metadata.labels.get(GROUP_LABEL, ""))
        if group is not None:
            need = found[group.name]
            need.current += 1
            if _silent(node, separate.get(node.metadata.name), group) and _age(node, now) < grace:
                need.silent.append(node.metadata.name)
                node = _promised(node, group)
        engine.set_node(node)
    for group in groups:
        need = found[group.name]
        need.coming = max((group.spec.target_size or 0) - need.current, 0)
        for number in range(need.coming):
            engine.set_node(group.node(f"{group.name}-coming-{number + 1}"))
    everything = list(pods)
    for pod in everything:
        if pod.spec.node_name:
            engine.set_pod(pod)
    made = Needs(list(found.values()))
    waiting = [pod for pod in everything if not pod.spec.node_name and not pod.terminal and not pod.terminating]
    for pod in sorted(waiting, key=_order):
        _serve(engine, pod, groups, made)
    return made


def _serve(engine: Engine, pod: Pod, groups: Sequence[NodeGroup], made: Needs) -> None:
    label = f"{pod.kind} {pod.object_name}" if isinstance(pod, StandIn) else "/".join(pod.metadata.key)
    by_name = {need.name: need for need in made.groups}
    try:
        decision = engine.schedule(pod)
    except UnknownProfile as error:
        made.unservable[label] = str(error.args[0])
        return
    if decision.node is not None:
        engine.assume(pod, decision.node)
        for need in made.groups:
            if decision.node in need.pods:
                need.pods[decision.node].append(label)
                return
        made.fitting[label] = decision.node
        return
    nowhere, reasons = decision.message, []
    for group in groups:
        need = by_name[group.name]
        if need.current + need.coming + need.new >= group.spec.max_size:
            reasons.append(f"{group.name}: at its limit of {counted(group.spec.max_size, 'node')}")
            continue
        name = f"{group.name}-new-{need.new + 1}"
        engine.set_node(group.node(name))
        decision = engine.schedule(pod)
        if decision.node == name:
            engine.assume(pod, name)
            need.pods[name], need.reasons[name] = [label], nowhere
            return
        explained = engine.explain(pod)
        refusal = explained.pre_filter or explained.refused.get(name)
        reasons.append(f"{group.name}: {refusal.message if refusal is not None else 'does not help'}")
        engine.remove_node(name)
    made.unservable[label] = "; ".join(reasons) or "no node groups are defined"


def _silent(node: Node, separate: NodeComputeResources | None, group: NodeGroup) -> bool:
    """Whether the node has not yet published all devices of its template. Published ones may have more properties."""
    there = published(node, separate)
    for wanted in group.spec.template.compute_resources:
        found = [each for each in there if _is_one(each, wanted)]
        if sum(len(set(each.devices)) for each in found) < wanted.count:
            return True
    return False


def _is_one(published: ComputeResource, wanted: DeviceTemplate) -> bool:
    return published.resource_name == wanted.resource_name and wanted.properties.items() <= published.properties.items()


def _promised(node: Node, group: NodeGroup) -> Node:
    """The node as it will be once started: with its devices and without taints."""
    made = group.node(node.metadata.name, node.metadata.labels)
    room = {**made.status.allocatable, **node.status.allocatable}
    return replace(made, metadata=node.metadata, status=replace(made.status, allocatable=room))


def _age(node: Node, now: float) -> float:
    try:
        return now - parse_time(node.metadata.creation_timestamp)
    except BadTime:
        return 0.0


def _order(pod: Pod) -> tuple[int, str, str, str]:
    return -(pod.spec.priority or 0), pod.metadata.creation_timestamp, pod.metadata.namespace, pod.metadata.name
