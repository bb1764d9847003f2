"""Maintains ResourceClass status: how many nodes and devices match, and why if none do."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.conditions import find_condition, new_condition, set_condition
from wharfinger.api.kinds.builtin import RESOURCE_SLICES
from wharfinger.api.registry import Document
from wharfinger.api.views import Node, view
from wharfinger.api.wording import counted
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES, RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import NodeComputeResources, ResourceClass
from wharfinger.systems.resource_class.plugin.catalogue import Catalogue
from wharfinger.systems.resource_class.plugin.device_report import class_matches
from wharfinger.systems.resource_class.plugin.holdings import Slot, slots_of
from wharfinger.systems.resource_class.rules.compute_resources import published
from wharfinger.systems.resource_class.rules.dra_devices import device_groups, driver_resource

MATCHED = "Matched"
GATHER = 1.0
"""Seconds to batch node changes before status is written, because nodes often arrive in groups."""


class ResourceClassController(ContextController[str]):
    name = "resourceclass"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._catalogue = Catalogue()
        self._slots: dict[str, list[Slot]] = {}  # by node
        self._devices: dict[int, dict[str, int]] = {}  # property set → node → devices
        self._classes = context.documents(RESOURCE_CLASSES)
        self._nodes = context.nodes
        self._inventories = context.informers.of(NODE_COMPUTE_RESOURCES, NodeComputeResources)
        self._classes.add_handler(self._class_changed, lambda old, new: self._class_changed(new), self._class_deleted)
        self._nodes.add_handler(
            on_add=lambda node: self._node_changed(node.metadata.name),
            on_update=self._node_updated,
            on_delete=lambda node: self._node_changed(node.metadata.name),
        )
        self._slices = context.documents(RESOURCE_SLICES)
        self._slices.add_handler(self._slice_changed, lambda old, new: self._slice_changed(new), self._slice_changed)
        self._inventories.add_handler(
            on_add=lambda each: self._node_changed(each.metadata.name),
            on_update=lambda old, new: self._node_changed(new.metadata.name),
            on_delete=lambda each: self._node_changed(each.metadata.name),
        )

    # -- informer events

    def _class_changed(self, document: Document) -> None:
        new = view(document, ResourceClass)
        if new.spec.driver:
            self.queue.add(new.name)
            return
        known = new.spec.resource_name in self._catalogue.raws()
        self._catalogue.set_class(new)
        if not known:
            # From now on the node's classic capacity of this name counts as devices.
            for node in self._nodes:
                if new.spec.resource_name in node.status.allocatable:
                    self._node_changed(node.metadata.name)
        self.queue.add(new.name)

    def _class_deleted(self, document: Document) -> None:
        self._catalogue.remove_class(document["metadata"]["name"])

    def _slice_changed(self, slice: Document) -> None:
        driver = (slice.get("spec") or {}).get("driver")
        for document in self._classes:
            if driver and (document.get("spec") or {}).get("driver") == driver:
                self.queue.add_after(document["metadata"]["name"], GATHER)

    def _node_updated(self, old: Node, new: Node) -> None:
        before, after = old.status, new.status
        if (before.compute_resources, before.allocatable) != (after.compute_resources, after.allocatable):
            self._node_changed(new.metadata.name)

    def _node_changed(self, name: str) -> None:
        node = self._nodes.get(name)
        new: list[Slot] = []
        if node is not None:
            new = slots_of(node, published(node, self._inventories.get(name)), self._catalogue)
        old = self._slots.pop(name, [])
        for slot in old:
            self._devices.get(slot.set, {}).pop(name, None)
        for slot in new:
            self._devices.setdefault(slot.set, {})[name] = slot.capacity
        if new:
            self._slots[name] = new
        touched = {slot.raw for slot in (*old, *new)}
        for slot in old:
            self._catalogue.release(slot.set, classic=slot.classic)
        for each in self._catalogue.classes():
            if each.spec.resource_name in touched:
                self.queue.add_after(each.name, GATHER)

    # -- status

    async def reconcile(self, key: str) -> None:
        document = self._classes.get(key)
        if document is None:
            return
        each = view(document, ResourceClass)
        if each.spec.driver:
            await self._write(document, *self._of_driver(each))
            return
        meaning = self._catalogue.meaning(key)
        if meaning is None:
            return
        found = [self._devices.get(number, {}) for number in sorted(meaning.sets)]
        nodes = len({name for on in found for name in on})
        devices = sum(sum(on.values()) for on in found)
        holds, reason, message = _verdict(meaning.raw, meaning.per_cluster, nodes, devices, self._of_raw(meaning.raw))
        wanted = {"nodes": nodes, "computeResources": sum(map(len, found)), "devices": devices}
        await self._write(document, wanted, holds, reason, message)

    def _of_driver(self, each: ResourceClass) -> tuple[dict[str, int], str, str, str]:
        """The devices that a DRA driver publishes."""
        slices = (slice for slice in self._slices if (slice.get("spec") or {}).get("driver") == each.spec.driver)
        groups = device_groups(slices)
        found = [group for group in groups if class_matches(each)(group)]
        nodes, devices = len({group.node for group in found}), sum(len(group.devices) for group in found)
        of_driver = sum(len(group.devices) for group in groups)
        verdict = _verdict(driver_resource(each.spec.driver), False, nodes, devices, of_driver)
        return {"nodes": nodes, "computeResources": len(found), "devices": devices}, *verdict

    async def _write(self, document: Document, wanted: dict[str, int], holds: str, reason: str, message: str) -> None:
        key, status = document["metadata"]["name"], document.get("status") or {}
        current = find_condition(status.get("conditions") or (), MATCHED) or {}
        told = (current.get("status"), current.get("reason"), current.get("message")) == (holds, reason, message)
        if told and all(status.get(name) == value for name, value in wanted.items()):
            return
        condition = new_condition(MATCHED, holds, reason, message, self.context.now())
        condition["observedGeneration"] = document["metadata"].get("generation", 0)
        conditions = set_condition(status.get("conditions") or (), condition)
        patch = {"metadata": {"uid": document["metadata"]["uid"]}, "status": {**wanted, "conditions": conditions}}
        await self.context.client.patch(RESOURCE_CLASSES, key, patch, subresource="status")

    def _of_raw(self, raw: str) -> int:
        meaning = self._catalogue.meaning(raw)
        sets: Iterable[int] = meaning.sets if meaning is not None else ()
        return sum(sum(self._devices.get(number, {}).values()) for number in sets)


def _verdict(raw: str, per_cluster: bool, nodes: int, devices: int, of_raw: int) -> tuple[str, str, str]:
    if per_cluster:
        return "True", "ClusterScope", "devices belong to the cluster, not to nodes"
    if nodes:
        return "True", "DevicesFound", f"matches {counted(devices, 'device')} on {counted(nodes, 'node')}"
    if of_raw:
        known = f"none of the {of_raw} devices" if of_raw > 1 else "not even the only device"
        return "False", "NothingMatches", f"matches nothing: {known} of {raw} has such properties"
    return "False", "NoDevices", f"matches nothing: no node has devices of {raw}"
