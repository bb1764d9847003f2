"""What a node publishes of its devices: grouped by properties, named by them, and frozen while in use. Pure.

Health counts at once. Properties of known devices change only after all pods that use devices of the resource are gone: a
ComputeResource must not vanish under a pod that holds devices of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from wharfinger.api.registry import Document
from wharfinger.api.views.nodes import ComputeResource
from wharfinger.systems.resource_class.device_agent.api import HEALTHY, Device
from wharfinger.systems.resource_class.rules.compute_resources import compute_resource_name, named

NUMA = "numaNode"


@dataclass(frozen=True, slots=True)
class Known:
    """A device as its plugin tells it."""

    healthy: bool
    properties: Mapping[str, str]


def known(devices: Iterable[Device]) -> dict[str, Known]:
    """What a plugin lists, by id. NUMA nodes become a property, unless the plugin says it itself."""
    found: dict[str, Known] = {}
    for device in devices:
        if not device.id:
            continue
        properties = dict(device.properties)
        if device.topology is not None and device.topology.nodes:
            ids = sorted({node.id for node in device.topology.nodes})
            properties.setdefault(NUMA, ",".join(map(str, ids)))
        found[device.id] = Known(device.health == HEALTHY, properties)
    return found


@dataclass(slots=True)
class Inventory:
    """All resources of a node. `published` is what others were told; a restarted agent starts from that."""

    _frozen: dict[str, dict[str, Mapping[str, str]]] = field(default_factory=dict)  # raw name, id: properties published
    _told: dict[str, dict[str, Known]] = field(default_factory=dict)  # raw name, id: what plugins say now
    drift: dict[str, list[str]] = field(default_factory=dict)  # raw name: devices whose properties wait for a drain

    @classmethod
    def of(cls, published: Iterable[ComputeResource]) -> Inventory:
        made = cls()
        for _, each in named(published):
            ids = made._frozen.setdefault(each.resource_name, {})
            ids.update(dict.fromkeys(each.devices, each.properties))
        return made

    def tell(self, raw: str, devices: Mapping[str, Known]) -> None:
        """A plugin listed its devices."""
        self._told[raw] = dict(devices)

    def lose(self, raw: str) -> None:
        """The plugin is gone: its devices are there, but none can be had."""
        self._told[raw] = {id: Known(False, each.properties) for id, each in self._told.get(raw, {}).items()}

    def settle(self, in_use: Collection[str]) -> list[Document]:
        """The ComputeResources to publish, given the raw names that pods hold devices of."""
        self.drift = {}
        published: list[Document] = []
        for raw in sorted({*self._frozen, *self._told}):
            published += self._resources(raw, held=raw in in_use)
        return published

    def _resources(self, raw: str, *, held: bool) -> list[Document]:
        told = self._told.get(raw)
        frozen = self._frozen.get(raw, {})
        if told is None:
            # Published before this agent started, and no plugin has spoken yet.
            told = {id: Known(False, properties) for id, properties in frozen.items()}
        if held:
            moved = [id for id, properties in frozen.items() if id in told and told[id].properties != properties]
            if moved:
                self.drift[raw] = sorted(moved)
            told = {
                **{id: Known(id in told and told[id].healthy, properties) for id, properties in frozen.items()},
                **{id: each for id, each in told.items() if id not in frozen},
            }
        self._frozen[raw] = {id: each.properties for id, each in told.items()}
        if not told:
            del self._frozen[raw]
        return _grouped(raw, told)


def _grouped(raw: str, devices: Mapping[str, Known]) -> list[Document]:
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for id in sorted(devices):
        groups.setdefault(tuple(sorted(devices[id].properties.items())), []).append(id)
    made: list[Document] = []
    taken: set[str] = set()
    for properties, ids in sorted(groups.items()):
        name = compute_resource_name(raw, dict(properties), taken)
        taken.add(name)
        healthy = [id for id in ids if devices[id].healthy]
        made.append(
            {
                "name": name,
                "resourceName": raw,
                "properties": dict(properties),
                "devices": ids,
                "allocatableDevices": healthy,
            }
        )
    return made
