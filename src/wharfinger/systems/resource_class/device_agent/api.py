"""The messages and method names of the kubelet's device-plugin API v1beta1, with properties of devices added.

`Device.properties` has a high number, which an unmodified plugin never sends and an unmodified kubelet skips.
"""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.systems.resource_class.device_agent.protobuf import (
    flag,
    integer,
    mapping,
    message,
    messages,
    text,
    texts,
)

VERSION = "v1beta1"
HEALTHY = "Healthy"
KUBELET_SOCKET = "kubelet.sock"
PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"

REGISTRATION = "v1beta1.Registration"
DEVICE_PLUGIN = "v1beta1.DevicePlugin"


@dataclass(frozen=True)
class Empty:
    pass


@dataclass(frozen=True)
class DevicePluginOptions:
    pre_start_required: bool = flag(1)
    get_preferred_allocation_available: bool = flag(2)


@dataclass(frozen=True)
class RegisterRequest:
    version: str = text(1)
    endpoint: str = text(2)
    resource_name: str = text(3)
    options: DevicePluginOptions | None = message(4, DevicePluginOptions)


@dataclass(frozen=True)
class NumaNode:
    id: int = integer(1)


@dataclass(frozen=True)
class TopologyInfo:
    nodes: tuple[NumaNode, ...] = messages(1, NumaNode)


@dataclass(frozen=True)
class Device:
    id: str = text(1)
    health: str = text(2)
    topology: TopologyInfo | None = message(3, TopologyInfo)
    properties: dict[str, str] = mapping(10001)


@dataclass(frozen=True)
class ListAndWatchResponse:
    devices: tuple[Device, ...] = messages(1, Device)


@dataclass(frozen=True)
class ContainerPreferredAllocationRequest:
    available: tuple[str, ...] = texts(1)
    must_include: tuple[str, ...] = texts(2)
    size: int = integer(3)


@dataclass(frozen=True)
class PreferredAllocationRequest:
    containers: tuple[ContainerPreferredAllocationRequest, ...] = messages(1, ContainerPreferredAllocationRequest)


@dataclass(frozen=True)
class ContainerPreferredAllocationResponse:
    ids: tuple[str, ...] = texts(1)


@dataclass(frozen=True)
class PreferredAllocationResponse:
    containers: tuple[ContainerPreferredAllocationResponse, ...] = messages(1, ContainerPreferredAllocationResponse)


@dataclass(frozen=True)
class ContainerAllocateRequest:
    ids: tuple[str, ...] = texts(1)


@dataclass(frozen=True)
class AllocateRequest:
    containers: tuple[ContainerAllocateRequest, ...] = messages(1, ContainerAllocateRequest)


@dataclass(frozen=True)
class Mount:
    container_path: str = text(1)
    host_path: str = text(2)
    read_only: bool = flag(3)


@dataclass(frozen=True)
class DeviceSpec:
    container_path: str = text(1)
    host_path: str = text(2)
    permissions: str = text(3)


@dataclass(frozen=True)
class CDIDevice:
    name: str = text(1)


@dataclass(frozen=True)
class ContainerAllocateResponse:
    envs: dict[str, str] = mapping(1)
    mounts: tuple[Mount, ...] = messages(2, Mount)
    devices: tuple[DeviceSpec, ...] = messages(3, DeviceSpec)
    annotations: dict[str, str] = mapping(4)
    cdi_devices: tuple[CDIDevice, ...] = messages(5, CDIDevice)


@dataclass(frozen=True)
class AllocateResponse:
    containers: tuple[ContainerAllocateResponse, ...] = messages(1, ContainerAllocateResponse)


@dataclass(frozen=True)
class PreStartContainerRequest:
    ids: tuple[str, ...] = texts(1)
