"""Reports the devices of each class by node, free and used.

Computed from API objects alone, as a restarted scheduler would do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from wharfinger.api.views import Node, Pod
from wharfinger.framework.stand_ins import StandIn
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


class ResourceLine(msgspec.Struct, frozen=True):
    """One ComputeResource that a name matches."""

    name: str
    properties: Mapping[str, str]
    devices: int
    free: int


class NodeLine(msgspec.Struct, frozen=True):
    node: str
    devices: int  # healthy devices that match
    used: int  # matching devices in use, and those allocated under this name
    free: int  # units that can be allocated now
    resources: tuple[ResourceLine, ...] = ()
    reserved: int = 0  # matching devices that reservations hold and nobody uses


class ClassLine(msgspec.Struct):
    name: str
    raw: str
    alias: str = ""
    scope: str = "Node"
    is_class: bool = True
    nodes: list[NodeLine] = msgspec.field(default_factory=list)

    @property
    def devices(self) -> int:
        return sum(each.devices for each in self.nodes)

    @property
    def used(self) -> int:
        return sum(each.used for each in self.nodes)

    @property
    def reserved(self) -> int:
        return sum(each.reserved for each in self.nodes)

    @property
    def free(self) -> int:
        return sum(each.free for each in self.nodes)

    @property
    def note(self) -> str:
        """What the numbers do not say; the words of the condition Matched."""
        if self.scope == "Cluster":
            return "of the cluster"
        if not any(each.resources for each in self.nodes):
            return "matches nothing"
        return "" if self.devices else "no healthy devices"


def report(
    classes: Iterable[ResourceClass],
    nodes: Iterable[Node],
    inventories: Iterable[NodeComputeResources],
    pods: Iterable[Pod],
    reserving: Iterable[StandIn] = (),
    used_by: Callable[[Pod], str] = lambda pod: "",
) -> list[ClassLine]:
    """One entry per class, sorted by name, then one per raw resource. `reserving` are stand-ins of objects that hold
    devices, such as reservations; `used_by` gives the uid of the one that a pod uses."""
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
            held.setdefault(pod.spec.node_name, {})[pod.metadata.key] = replace(found, uses=used_by(pod))
    for kept in reserving:
        if kept.spec.node_name and (found := holding(kept)):
            held.setdefault(kept.spec.node_name, {})[kept.metadata.key] = replace(found, reserves=kept.metadata.uid)
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
            line.nodes = [each for each in made if each.resources or each.used or each.reserved]
    return lines


def _node_line(node: str, slots: list[Slot], made: DeviceUse, meaning: Meaning, catalogue: Catalogue) -> NodeLine:
    resources = []
    for place, slot in enumerate(slots):
        found = catalogue.sets[slot.set]
        assert found is not None
        if slot.set in meaning.sets:
            resources.append(ResourceLine(slot.name, found.properties, slot.capacity, made.free[place]))
    used = reserved = 0
    for key, name, place, count in made.taken:
        # Includes devices allocated under the name that no longer match: they are still in use.
        if slots[place].set in meaning.sets or catalogue.meaning(name) is meaning:
            used, reserved = (used, reserved + count) if "/" in key[1] else (used + count, reserved)
    devices = sum(each.devices for each in resources)
    return NodeLine(node, devices, used, free_units(slots, made.free, meaning, catalogue), tuple(resources), reserved)
