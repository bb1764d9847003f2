"""The view of a Node."""

from __future__ import annotations

from msgspec import field

from wharfinger.api.views.base import View
from wharfinger.api.views.meta import ConditionsStatus, ObjectView
from wharfinger.api.views.pods import Quantities


class Taint(View, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""


class ContainerImage(View, frozen=True):
    names: tuple[str, ...] = ()
    size_bytes: int = 0


class ComputeResource(View, frozen=True):
    """A group of devices of one raw resource with the same properties."""

    name: str = ""
    resource_name: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    allocatable_devices: tuple[str, ...] | None = None  # absent: all devices


class NodeSpec(View, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pod_cidr: str = field(name="podCIDR", default="")


class NodeAddress(View, frozen=True):
    type: str = ""
    address: str = ""


class NodeStatus(ConditionsStatus, frozen=True):
    addresses: tuple[NodeAddress, ...] = ()
    capacity: Quantities = field(default_factory=dict)
    allocatable: Quantities = field(default_factory=dict)
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()
    compute_resources: tuple[ComputeResource, ...] = ()  # embedded server only; elsewhere NodeComputeResources


class Node(ObjectView, frozen=True):
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)

    @property
    def ready(self) -> bool:
        condition = self.status.condition("Ready")
        return condition is not None and condition.status == "True"
