"""The device agent of one node: publishes the devices of its plugins and allocates devices to pods as the scheduler recorded.

A single worker handles all keys in turn, so that no device is allocated twice. All state is rebuilt from the API: what is
published, and which pod holds which device.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

import msgspec

from wharfinger.api.errors import AlreadyExists, NotFound
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.api.times import format_time
from wharfinger.api.views import Node, Pod, view
from wharfinger.client.controller import Controller
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock
from wharfinger.node.lifecycle import rejected
from wharfinger.systems.resource_class.device_agent.choosing import (
    DeviceIds,
    InsufficientDevices,
    allocated_devices,
    available,
    choose,
    in_use,
)
from wharfinger.systems.resource_class.device_agent.inventory import DeviceInventory, ReportedDevice
from wharfinger.systems.resource_class.device_agent.plugins import PluginError, PluginRegistry
from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES, RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import NodeComputeResources, ResourceClass
from wharfinger.systems.resource_class.plugin.holdings import holding, record_fault, requested
from wharfinger.systems.resource_class.rules.compute_resources import DEVICE_IDS, BadRecord, recorded

log = logging.getLogger(__name__)

DRIFT = "ComputeResourceDrift"
REJECTED = "UnexpectedAdmissionError"
PLUGIN_WAIT = 1.0  # seconds until a pod is retried whose plugin is not registered

Publish = Literal["auto", "node", "object"]
WorkKey = tuple[str, str, str]
"""`pod`, namespace and name, or `_PUBLISH`."""
_PUBLISH: WorkKey = ("publish", "", "")


_PENDING = "device properties changed and are published after the pods that use them are gone"


def _told_drift(node: Node) -> str:
    found = next((each for each in node.status.conditions if each.type == DRIFT), None)
    return found.message if found is not None and found.status == "True" else ""


class DeviceAgent(Controller[WorkKey]):
    name = "device-agent"

    def __init__(
        self,
        client: Client,
        informers: InformerSet,
        clock: Clock,
        node: str,
        folder: Path,
        *,
        publish: Publish = "auto",
    ) -> None:
        """`publish` says where ComputeResources are written: `node` is the Node's status, `object` a NodeComputeResources
        object, and `auto` the status if the API server keeps the field there, else the object."""
        super().__init__()
        self._client = client
        self._clock = clock
        self._node = node
        self._publish = publish
        self._inventory = DeviceInventory()
        self._published: list[Document] = []
        self._written = False  # whether the API server has what is published
        self._allocated: dict[str, DeviceIds] = {}  # by pod UID: written, but perhaps not in the informer yet
        self._drift = ""  # message of the drift condition on the node; empty while it is not True
        self.plugins = PluginRegistry(folder, self._reported, self._disconnected)
        self._pods = informers.of(PODS, Pod, field_selector=f"spec.nodeName={node}")
        self._nodes = informers.of(NODES, Node, field_selector=f"metadata.name={node}")
        self._nodes.add_handler(self._node_added, self._node_updated)
        self._inventories = informers.of(
            NODE_COMPUTE_RESOURCES, NodeComputeResources, field_selector=f"metadata.name={node}"
        )
        self._inventories.optional = True  # the cluster may not have the kind
        self._inventories.add_handler(on_delete=lambda gone: self._publish_again())
        self._classes = informers.of(RESOURCE_CLASSES, ResourceClass)
        self._classes.optional = True  # the cluster may not have the kind
        self._pods.add_handler(self._pod_changed, lambda old, new: self._pod_changed(new), self._pod_gone)

    async def prepare(self) -> None:
        """Reads what was published before, then starts to accept plugins."""
        node = view(await self._client.get(NODES, self._node), Node)
        resources = node.status.compute_resources
        try:
            separate = view(await self._client.get(NODE_COMPUTE_RESOURCES, self._node), NodeComputeResources)
            resources = resources or separate.spec.compute_resources
        except NotFound:
            pass  # never published there, or the cluster does not have the kind
        self._inventory = DeviceInventory.of(resources)
        self._drift = _told_drift(node)
        await self.plugins.start()
        self.queue.add(_PUBLISH)

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            await self.plugins.stop()

    # Callbacks of plugins and informers

    def _node_added(self, node: Node) -> None:
        """A node that was deleted and registered again has lost what was published."""
        self._drift = _told_drift(node)
        self._publish_again()

    def _node_updated(self, old: Node, new: Node) -> None:
        if old.metadata.uid != new.metadata.uid:
            self._node_added(new)
        elif old.status.compute_resources and not new.status.compute_resources:
            self._publish_again()  # somebody else removed them

    def _publish_again(self) -> None:
        self._written = False
        self.queue.add(_PUBLISH)

    def _reported(self, resource: str, devices: dict[str, ReportedDevice]) -> None:
        self._inventory.report(resource, devices)
        self.queue.add(_PUBLISH)

    def _disconnected(self, resource: str) -> None:
        self._inventory.disconnect(resource)
        self.queue.add(_PUBLISH)

    def _pod_changed(self, pod: Pod) -> None:
        if pod.terminal:
            self._pod_gone(pod)
        elif not allocated_devices(pod):
            self.queue.add(("pod", *pod.metadata.key))

    def _pod_gone(self, pod: Pod) -> None:
        self._allocated.pop(pod.metadata.uid, None)
        self.queue.add(_PUBLISH)  # properties that were frozen may be free to change now

    async def reconcile(self, key: WorkKey) -> None:
        if key == _PUBLISH:
            await self._publish_devices()
        else:
            await self._allocate_pod(key)

    # Publishing

    async def _publish_devices(self) -> None:
        resources = self._inventory.publish(self._resources_in_use())
        if resources != self._published or not self._written:
            self._written = True  # a node that changes meanwhile resets it
            try:
                await self._write(resources)
            except NotFound:
                self._written = False  # there is no such node now; it is written when the node comes back
                log.warning("node %s does not exist: its devices are not published", self._node)
                return
            except BaseException:
                self._written = False
                raise
            self._published = resources
        await self._write_drift()
        for pod in self._pods:
            self._enqueue_unallocated(pod)

    def _enqueue_unallocated(self, pod: Pod) -> None:
        if not pod.terminal and not allocated_devices(pod) and pod.metadata.uid not in self._allocated:
            self.queue.add(("pod", *pod.metadata.key))

    def _resources_in_use(self) -> set[str]:
        resource_of = {each["name"]: str(each["resourceName"]) for each in self._published}
        found: set[str] = set()
        for pod in self._pods:
            if pod.terminal:
                continue
            held = holding(pod)
            found.update(resource_of.get(name, name.rpartition("-")[0]) for _, name, _ in held.recorded)
            found.update(name for name, _ in held.unrecorded)
        return found

    async def _write(self, resources: list[Document]) -> None:
        if self._publish != "object":
            patch = {"status": {"computeResources": resources or None}}
            stored = await self._client.patch(NODES, self._node, patch, subresource="status")
            kept = (stored.get("status") or {}).get("computeResources") == (resources or None)
            if self._publish == "node" or (kept and resources):
                return
            if kept:
                # An API server that drops the field looks the same as one that has no devices.
                await self._clear_object()
                return
        await self._write_object(resources)

    async def _clear_object(self) -> None:
        try:
            await self._client.patch(NODE_COMPUTE_RESOURCES, self._node, {"spec": {"computeResources": []}})
        except NotFound:
            return  # nothing was published there, or the cluster does not have the kind

    async def _write_object(self, resources: list[Document]) -> None:
        """For API servers that drop unknown fields of Node. The object belongs to the node as it is now: one that belongs
        to a deleted node of the same name would be collected."""
        node = await self._client.get(NODES, self._node)
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": node["metadata"]["uid"]}
        written = {
            "metadata": {"name": self._node, "ownerReferences": [owner]},
            "spec": {"computeResources": resources},
        }
        try:
            await self._client.patch(NODE_COMPUTE_RESOURCES, self._node, written)
            return
        except NotFound:
            pass
        kind = {"apiVersion": NODE_COMPUTE_RESOURCES.api_version, "kind": NODE_COMPUTE_RESOURCES.kind}
        try:
            await self._client.create(NODE_COMPUTE_RESOURCES, {**kind, **written})
        except AlreadyExists:
            await self._client.patch(NODE_COMPUTE_RESOURCES, self._node, written)

    async def _write_drift(self) -> None:
        drift = self._inventory.drift
        named = "; ".join(f"{resource}: {', '.join(ids)}" for resource, ids in sorted(drift.items()))
        message = f"{_PENDING}: {named}" if drift else ""
        if message == self._drift:
            return
        now = format_time(self._clock.now())
        condition = {
            "type": DRIFT,
            "status": "True" if drift else "False",
            "reason": "PropertiesChanged" if drift else "PropertiesPublished",
            "message": message or "published properties are current",
            "lastHeartbeatTime": now,
        }
        if bool(message) != bool(self._drift):
            condition["lastTransitionTime"] = now
        await self._client.patch(
            NODES, self._node, {"status": {"conditions": [condition]}}, type=PatchType.STRATEGIC, subresource="status"
        )
        self._drift = message

    # Allocating

    async def _allocate_pod(self, key: WorkKey) -> None:
        pod = self._pods.get(key[2], key[1])
        if (
            pod is None
            or pod.terminal
            or pod.terminating
            or allocated_devices(pod)
            or pod.metadata.uid in self._allocated
        ):
            return
        try:
            record = recorded(pod)
        except BadRecord as error:
            await self._reject(pod, str(error))
            return
        if not record:
            return
        if fault := record_fault(pod, record, requested(pod), self._unit):
            await self._reject(pod, fault)
            return
        resources = {each["name"]: each for each in self._published}
        names = {name for by_name in record.values() for counts in by_name.values() for name in counts}
        resource_of = {name: str(resources[name]["resourceName"]) for name in names if name in resources}
        if any(name not in resource_of or self.plugins.connection(resource_of[name]) is None for name in names):
            # The plugin is restarting or has not registered yet.
            self.queue.add_after(key, PLUGIN_WAIT, background=True)
            return
        try:
            chosen = await self._choose(pod, {name: resources[name] for name in names}, resource_of)
            await self._allocate(chosen, resource_of)
        except (InsufficientDevices, PluginError) as error:
            await self._reject(pod, str(error))
            return
        self._allocated[pod.metadata.uid] = chosen
        text = msgspec.json.encode(chosen).decode()
        patch = {"metadata": {"uid": pod.metadata.uid, "annotations": {DEVICE_IDS: text}}}
        try:
            await self._client.patch(PODS, pod.metadata.name, patch, pod.metadata.namespace)
        except NotFound:
            del self._allocated[pod.metadata.uid]

    def _unit(self, name: str) -> int | None:
        """Devices per requested unit of a name; None if it is neither a class nor a resource of this node."""
        for each in self._classes:
            if name in (each.name, each.alias):
                return 0 if each.per_cluster else each.group_size
        return 1 if any(each["resourceName"] == name for each in self._published) else None

    async def _choose(self, pod: Pod, resources: dict[str, Document], resource_of: dict[str, str]) -> DeviceIds:
        record = recorded(pod) or {}
        used = in_use(list(self._pods))
        for uid, others in self._allocated.items():
            if uid != pod.metadata.uid:
                used |= {(name, id) for by_name in others.values() for name, ids in by_name.items() for id in ids}
        free = available({name: each["allocatableDevices"] for name, each in resources.items()}, used)
        wanted: dict[str, int] = {}
        for _, name, count in holding(pod).recorded:
            wanted[name] = wanted.get(name, 0) + count
        for name, candidates in free.items():
            connection = self.plugins.connection(resource_of[name])
            if connection is not None:
                free[name] = await connection.preferred(candidates, wanted.get(name, 0))
        return choose(pod, record, free)

    async def _allocate(self, chosen: DeviceIds, resource_of: dict[str, str]) -> None:
        """Calls Allocate once for each container and resource."""
        for container, by_name in chosen.items():
            by_resource: dict[str, list[str]] = {}
            for name, ids in by_name.items():
                by_resource.setdefault(resource_of[name], []).extend(ids)
            for resource, ids in by_resource.items():
                connection = self.plugins.connection(resource)
                if connection is None:
                    raise PluginError(f"{resource}: the plugin disconnected")
                response = await connection.allocate(ids)
                log.info("container %s: allocated %s of %s", container, ", ".join(ids), resource)
                if wanted := [field.name for field, _ in response.ListFields()]:
                    # Only the kubelet configures containers, and it has no part in this allocation.
                    log.warning(
                        "container %s: the plugin of %s returned %s, which do not reach the container",
                        container,
                        resource,
                        ", ".join(wanted),
                    )

    async def _reject(self, pod: Pod, why: str) -> None:
        """Fails the pod as a kubelet does when device allocation fails."""
        message = f"Allocate failed due to {why}, which is unexpected"
        status = rejected(pod, REJECTED, message, self._clock.now())
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        try:
            await self._client.patch(
                PODS, pod.metadata.name, patch, pod.metadata.namespace, type=PatchType.STRATEGIC, subresource="status"
            )
        except NotFound:
            return
