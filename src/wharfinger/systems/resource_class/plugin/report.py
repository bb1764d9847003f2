"""Reports the devices of each class by node, free and used.

Computed from API objects alone, as a restarted scheduler would do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wharfinger.api.views import Node, Pod
from wharfinger.systems.resource_class.kinds.views import NodeComputeResources, ResourceClass
from wharfinger.systems.resource_class.plugin.catalogue import Catalogue, Meaning
from wharfinger.systems.resource_class.plugin.holdings import (
    DeviceUse,
    Holding,
    Slot,
    free_units,
    holding,
    slots_of,
    use,
)
from wharfinger.systems.resource_class.rules.compute_resources import published


@dataclass(frozen=True, slots=True)
class ResourceLine:
    """One ComputeResource that a name matches."""

    name: str
    properties: Mapping[str, str]
    devices: int
    free: int


@dataclass(frozen=True, slots=True)
class NodeLine:
    node: str
    devices: int  # healthy devices that match
    used: int  # matching devices in use, and those allocated under this name
    free: int  # units that can be allocated now
    resources: tuple[ResourceLine, ...] = ()


@dataclass(slots=True)
class ClassLine:
    name: str
    raw: str
    alias: str = ""
    scope: str = "Node"
    is_class: bool = True
    nodes: list[NodeLine] = field(default_factory=list)

    @property
    def devices(self) -> int:
        return sum(each.devices for each in self.nodes)

    @property
    def used(self) -> int:
        return sum(each.used for each in self.nodes)

    @property
    def free(self) -> int:
        return sum(each.free for each in self.nodes)


def report(
    classes: Iterable[ResourceClass],
    nodes: Iterable[Node],
    inventories: Iterable[NodeComputeResources],
    pods: Iterable[Pod],
) -> list[ClassLine]:
    """One entry per class, sorted by name, then one per raw resource."""
    catalogue = Catalogue()
    for each in classes:
        catalogue.set_class(each)
    separate = {each.metadata.name: each for each in inventories}
    known = sorted(nodes, key=lambda node: node.metadata.name)
    # Two passes: devices published by one node make classic capacity of the same name count on another.
    for _ in range(2):
        slots = {
            node.metadata.name: slots_of(node, published(node, separate.get(node.metadata.name)), catalogue)
            for node in known
        }
    held: dict[str, dict[tuple[str, str], Holding]] = {}
    for pod in pods:
        if pod.spec.node_name and not pod.terminal and (found := holding(pod)):
            held.setdefault(pod.spec.node_name, {})[pod.metadata.key] = found
    uses = {name: use(own, held.get(name, {}), catalogue) for name, own in slots.items()}
    lines = [
        ClassLine(each.name, each.spec.resource_name, each.alias, each.spec.scope)
        for each in sorted(catalogue.classes(), key=lambda each: each.name)
    ]
    lines += [
        ClassLine(raw, raw, is_class=False) for raw in sorted({slot.raw for own in slots.values() for slot in own})
    ]
    for line in lines:
        meaning = catalogue.meaning(line.name)
        if meaning is not None:
            made = (_node_line(name, own, uses[name], meaning, catalogue) for name, own in slots.items())
            line.nodes = [each for each in made if each.devices or each.used]
    return lines


def _node_line(node: str, slots: list[Slot], made: DeviceUse, meaning: Meaning, catalogue: Catalogue) -> NodeLine:
    resources = []
    for place, slot in enumerate(slots):
        found = catalogue.sets[slot.set]
        assert found is not None
        if slot.set in meaning.sets:
            resources.append(ResourceLine(slot.name, found.properties, slot.capacity, made.free[place]))
    used = 0
    for _, name, place, count in made.taken:
        # Includes devices allocated under the name that no longer match: they are still in use.
        if slots[place].set in meaning.sets or catalogue.meaning(name) is meaning:
            used += count
    devices = sum(each.devices for each in resources)
    return NodeLine(node, devices, used, free_units(slots, made.free, meaning, catalogue), tuple(resources))
