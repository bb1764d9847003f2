"""The ComputeResources that a node publishes: devices grouped and named by their properties. Pure.

Health changes take effect immediately. Property changes of known devices wait until no pod uses devices of the resource, because
a ComputeResource must not disappear while a pod holds devices of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wharfinger.api.registry import Document
from wharfinger.api.views.nodes import ComputeResource
from wharfinger.systems.resource_class.device_agent.api import HEALTHY
from wharfinger.systems.resource_class.rules.compute_resources import compute_resource_name, named

NUMA = "numaNode"


@dataclass(frozen=True, slots=True)
class ReportedDevice:
    """A device as its plugin reports it."""

    healthy: bool
    properties: Mapping[str, str]


def reported_devices(devices: Iterable[Any]) -> dict[str, ReportedDevice]:
    """The `Device` messages of a plugin by ID. NUMA nodes become a property, unless the plugin sets it itself."""
    found: dict[str, ReportedDevice] = {}
    for device in devices:
        if not device.id:
            continue
        properties = dict(device.properties)
        if device.topology.nodes:
            ids = sorted({node.id for node in device.topology.nodes})
            properties.setdefault(NUMA, ",".join(map(str, ids)))
        found[device.id] = ReportedDevice(device.health == HEALTHY, properties)
    return found


@dataclass(slots=True)
class DeviceInventory:
    """All device resources of a node, by extended resource name."""

    _frozen: dict[str, dict[str, Mapping[str, str]]] = field(default_factory=dict)  # resource, ID: published properties
    _reported: dict[str, dict[str, ReportedDevice]] = field(default_factory=dict)  # resource, ID: latest report
    drift: dict[str, list[str]] = field(
        default_factory=dict
    )  # resource: devices whose new properties are not published yet

    @classmethod
    def of(cls, published: Iterable[ComputeResource]) -> DeviceInventory:
        """Starts from what an earlier agent published."""
        made = cls()
        for _, each in named(published):
            ids = made._frozen.setdefault(each.resource_name, {})
            ids.update(dict.fromkeys(each.devices, each.properties))
        return made

    def report(self, resource: str, devices: Mapping[str, ReportedDevice]) -> None:
        """A plugin listed its devices."""
        self._reported[resource] = dict(devices)

    def disconnect(self, resource: str) -> None:
        """The plugin is gone: its devices stay, all unhealthy."""
        last = self._reported.get(resource, {})
        self._reported[resource] = {id: ReportedDevice(False, each.properties) for id, each in last.items()}

    def publish(self, in_use: Collection[str]) -> list[Document]:
        """The ComputeResources to publish; `in_use` are the resources that pods hold devices of."""
        self.drift = {}
        published: list[Document] = []
        for resource in sorted({*self._frozen, *self._reported}):
            published += self._compute_resources(resource, in_use=resource in in_use)
        return published

    def _compute_resources(self, resource: str, *, in_use: bool) -> list[Document]:
        devices = self._reported.get(resource)
        frozen = self._frozen.get(resource, {})
        if devices is None:
            # Published before this agent started, and the plugin has not registered yet.
            devices = {id: ReportedDevice(False, properties) for id, properties in frozen.items()}
        if in_use:
            drifted = [
                id for id, properties in frozen.items() if id in devices and devices[id].properties != properties
            ]
            if drifted:
                self.drift[resource] = sorted(drifted)
            kept = {
                id: ReportedDevice(id in devices and devices[id].healthy, properties)
                for id, properties in frozen.items()
            }
            devices = kept | {id: each for id, each in devices.items() if id not in frozen}
        self._frozen[resource] = {id: each.properties for id, each in devices.items()}
        if not devices:
            del self._frozen[resource]
        return _grouped(resource, devices)


def _grouped(resource: str, devices: Mapping[str, ReportedDevice]) -> list[Document]:
    """One ComputeResource for each set of devices with equal properties."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for id in sorted(devices):
        groups.setdefault(tuple(sorted(devices[id].properties.items())), []).append(id)
    made: list[Document] = []
    taken: set[str] = set()
    for properties, ids in sorted(groups.items()):
        name = compute_resource_name(resource, dict(properties), taken)
        taken.add(name)
        healthy = [id for id in ids if devices[id].healthy]
        made.append(
            {
                "name": name,
                "resourceName": resource,
                "properties": dict(properties),
                "devices": ids,
                "allocatableDevices": healthy,
            }
        )
    return made
