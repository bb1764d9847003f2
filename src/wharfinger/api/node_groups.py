"""NodeGroup documents: what nodes can be added to a cluster. Files only; no API serves them.

The template of a group describes a new node, so a group can scale up from zero.
"""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.api.configuration import API_VERSION
from wharfinger.api.registry import Document
from wharfinger.api.validation.resources import is_extended
from wharfinger.api.views import Node
from wharfinger.api.views.base import view
from wharfinger.api.views.nodes import Taint
from wharfinger.api.views.pods import Quantities
from wharfinger.api.wording import decoding_fault

KIND = "NodeGroup"
GROUP_LABEL = "wharfinger.dev/node-group"
"""The node label that names the node group."""

MOST_DEVICES = 100_000
"""Devices of one kind in a template: each gets an id."""

SLICES_VERSION = "resource.k8s.io/v1"
_HOSTNAME = "kubernetes.io/hostname"


class BadNodeGroup(ValueError):
    """The document is not a valid NodeGroup; the message includes the field path."""


class _GroupPart(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base class of the NodeGroup structs."""


class DeviceTemplate(_GroupPart, frozen=True):
    """Devices of a ResourceClass."""

    resource_name: str
    count: int
    properties: dict[str, str] = msgspec.field(default_factory=dict)


class SliceTemplate(_GroupPart, frozen=True):
    """Devices of a DRA driver, as in a ResourceSlice."""

    driver: str
    devices: tuple[dict[str, Any], ...] = ()
    shared_counters: tuple[dict[str, Any], ...] = ()


class NodeTemplate(_GroupPart, frozen=True):
    capacity: Quantities = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    compute_resources: tuple[DeviceTemplate, ...] = ()
    resource_slices: tuple[SliceTemplate, ...] = ()


class GroupSpec(_GroupPart, frozen=True):
    template: NodeTemplate
    max_size: int = 1000
    target_size: int | None = None  # nodes already requested, including those not registered yet
    instance_types: tuple[str, ...] = ()  # of new nodes; their sizes are in the table of prices


class GroupMetadata(_GroupPart, frozen=True):
    name: str


class NodeGroup(_GroupPart, frozen=True):
    api_version: str
    kind: str
    metadata: GroupMetadata
    spec: GroupSpec

    @property
    def name(self) -> str:
        return self.metadata.name

    def documents(self, name: str) -> list[Document]:
        """The objects of a new node: the Node first, then its ResourceSlices."""
        template = self.spec.template
        room = {"pods": 110, **template.capacity}
        status: Document = {"capacity": dict(room), "allocatable": dict(room)}
        if template.compute_resources:
            status["computeResources"] = self._devices(name)
        node: Document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {**template.labels, GROUP_LABEL: self.name, _HOSTNAME: name},
            },
            "spec": {"taints": msgspec.to_builtins(template.taints)} if template.taints else {},
            "status": status,
        }
        return [node, *(self._slice(name, index, each) for index, each in enumerate(template.resource_slices))]

    def node(self, name: str) -> Node:
        """A new node of the group, with its devices."""
        found = self.documents(name)[0]
        found["metadata"]["uid"] = name
        return view(found, Node)

    def _devices(self, node: str) -> list[Document]:
        return [
            {
                "name": f"{index}.{each.resource_name}",
                "resourceName": each.resource_name,
                "properties": dict(each.properties),
                "devices": [f"{node}-{index}-{number}" for number in range(each.count)],
            }
            for index, each in enumerate(self.spec.template.compute_resources)
        ]

    def _slice(self, node: str, index: int, template: SliceTemplate) -> Document:
        spec: Document = {
            "driver": template.driver,
            "nodeName": node,
            "pool": {"name": f"{node}-{index}", "generation": 1, "resourceSliceCount": 1},
            "devices": [dict(each) for each in template.devices],
        }
        if template.shared_counters:
            spec["sharedCounters"] = [dict(each) for each in template.shared_counters]
        return {
            "apiVersion": SLICES_VERSION,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{index}"},
            "spec": spec,
        }


def read_group(document: Any) -> NodeGroup:
    """Raises BadNodeGroup."""
    try:
        group = msgspec.convert(document, NodeGroup)
    except msgspec.ValidationError as error:
        raise BadNodeGroup(decoding_fault(error)) from None
    if (group.api_version, group.kind) != (API_VERSION, KIND):
        raise BadNodeGroup(f"expected apiVersion {API_VERSION}, kind {KIND}")
    if group.spec.max_size < 0:
        raise BadNodeGroup("spec.maxSize: must not be negative")
    seen = set()
    for index, each in enumerate(group.spec.template.compute_resources):
        path = f"spec.template.computeResources[{index}]"
        if not is_extended(each.resource_name):
            raise BadNodeGroup(f"{path}.resourceName: must be the qualified name of an extended resource")
        if not 0 <= each.count <= MOST_DEVICES:
            raise BadNodeGroup(
                f"{path}.count: must be between 0 and {MOST_DEVICES}; resources without single devices belong in capacity"
            )
        key = (each.resource_name, tuple(sorted(each.properties.items())))
        if key in seen:
            raise BadNodeGroup(f"{path}: the same resourceName and properties as another entry")
        seen.add(key)
    return group
