"""The device agent of one node: publishes what plugins tell, and has devices allocated for pods as the scheduler decided.

One worker, one step after another, so that no device is given twice. All state comes back from the API: what was published,
and which pod has which device.
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
    DEVICE_IDS,
    Given,
    NotEnough,
    available,
    choose,
    given,
    in_use,
)
from wharfinger.systems.resource_class.device_agent.inventory import Inventory, Known
from wharfinger.systems.resource_class.device_agent.plugins import PluginError, Plugins
from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES
from wharfinger.systems.resource_class.kinds.views import NodeComputeResources
from wharfinger.systems.resource_class.plugin.holdings import holding
from wharfinger.systems.resource_class.rules.compute_resources import BadRecord, recorded

log = logging.getLogger(__name__)

DRIFT = "ComputeResourceDrift"
REJECTED = "UnexpectedAdmissionError"
AGAIN = 1.0  # seconds until a pod whose plugin is not there is looked at again

Publish = Literal["auto", "node", "object"]
Key = tuple[str, str, str]
_PUBLISH: Key = ("publish", "", "")


class DeviceAgent(Controller[Key]):
    name = "device-agent"
    workers = 1

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
        """`publish` says where ComputeResources go: the Node's own status, an object of the node's name, or whatever the
        API server keeps."""
        super().__init__()
        self._client = client
        self._clock = clock
        self._node = node
        self._publish = publish
        self._inventory = Inventory()
        self._published: list[Document] = []
        self._given: dict[str, Given] = {}  # by uid: written, but perhaps not seen yet
        self._drifting = False
        self.plugins = Plugins(folder, self._told, self._lost)
        self._pods = informers.of(PODS, Pod, field_selector=f"spec.nodeName={node}")
        self._pods.add_handler(self._pod_changed, lambda old, new: self._pod_changed(new), self._pod_gone)

    async def prepare(self) -> None:
        """Starts from what was published before; only then do plugins get to speak."""
        node = view(await self._client.get(NODES, self._node), Node)
        resources = node.status.compute_resources
        try:
            separate = view(await self._client.get(NODE_COMPUTE_RESOURCES, self._node), NodeComputeResources)
            resources = resources or separate.spec.compute_resources
        except NotFound:
            pass  # never published there, or a cluster without our kinds
        self._inventory = Inventory.of(resources)
        drift = next((each for each in node.status.conditions if each.type == DRIFT), None)
        self._drifting = drift is not None and drift.status == "True"
        await self.plugins.start()
        self.queue.add(_PUBLISH)

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            await self.plugins.stop()

    # -- what plugins and informers tell

    def _told(self, raw: str, devices: dict[str, Known]) -> None:
        self._inventory.tell(raw, devices)
        self.queue.add(_PUBLISH)

    def _lost(self, raw: str) -> None:
        self._inventory.lose(raw)
        self.queue.add(_PUBLISH)

    def _pod_changed(self, pod: Pod) -> None:
        if pod.terminal:
            self._pod_gone(pod)
        elif not given(pod):
            self.queue.add(("pod", *pod.metadata.key))

    def _pod_gone(self, pod: Pod) -> None:
        self._given.pop(pod.metadata.uid, None)
        self.queue.add(_PUBLISH)  # what was frozen may be free to change now

    async def reconcile(self, key: Key) -> None:
        if key == _PUBLISH:
            await self._publish_devices()
        else:
            await self._serve(key)

    # -- publishing

    async def _publish_devices(self) -> None:
        resources = self._inventory.settle(self._raws_in_use())
        if resources != self._published:
            await self._write(resources)
            self._published = resources
        await self._tell_drift()
        for pod in self._pods:
            self._pod_changed_again(pod)

    def _pod_changed_again(self, pod: Pod) -> None:
        if not pod.terminal and not given(pod) and pod.metadata.uid not in self._given:
            self.queue.add(("pod", *pod.metadata.key))

    def _raws_in_use(self) -> set[str]:
        raw_of = {each["name"]: str(each["resourceName"]) for each in self._published}
        raws: set[str] = set()
        for pod in self._pods:
            if pod.terminal:
                continue
            held = holding(pod)
            raws.update(raw_of.get(resource, resource.rpartition("-")[0]) for _, resource, _ in held.recorded)
            raws.update(name for name, _ in held.unrecorded)
        return raws

    async def _write(self, resources: list[Document]) -> None:
        if self._publish != "object":
            patch = {"status": {"computeResources": resources or None}}
            stored = await self._client.patch(NODES, self._node, patch, subresource="status")
            if self._publish == "node" or (stored.get("status") or {}).get("computeResources") == (resources or None):
                return
        await self._write_object(resources)

    async def _write_object(self, resources: list[Document]) -> None:
        """API servers drop fields of Node that they do not know; there an object of the node's name holds them."""
        spec = {"computeResources": resources}
        try:
            await self._client.patch(NODE_COMPUTE_RESOURCES, self._node, {"spec": spec})
            return
        except NotFound:
            node = await self._client.get(NODES, self._node)
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": node["metadata"]["uid"]}
        document = {
            "apiVersion": NODE_COMPUTE_RESOURCES.api_version,
            "kind": NODE_COMPUTE_RESOURCES.kind,
            "metadata": {"name": self._node, "ownerReferences": [owner]},
            "spec": spec,
        }
        try:
            await self._client.create(NODE_COMPUTE_RESOURCES, document)
        except AlreadyExists:
            await self._client.patch(NODE_COMPUTE_RESOURCES, self._node, {"spec": spec})

    async def _tell_drift(self) -> None:
        drift = self._inventory.drift
        if bool(drift) == self._drifting:
            return
        now = format_time(self._clock.now())
        named = "; ".join(f"{raw}: {', '.join(ids)}" for raw, ids in sorted(drift.items()))
        condition = {
            "type": DRIFT,
            "status": "True" if drift else "False",
            "reason": "PropertiesChanged" if drift else "PropertiesPublished",
            "message": f"properties changed under pods, published after they are gone: {named}"
            if drift
            else "what is published is what the devices are",
            "lastTransitionTime": now,
            "lastHeartbeatTime": now,
        }
        await self._client.patch(
            NODES, self._node, {"status": {"conditions": [condition]}}, type=PatchType.STRATEGIC, subresource="status"
        )
        self._drifting = bool(drift)

    # -- allocating

    async def _serve(self, key: Key) -> None:
        pod = self._pods.get(key[2], key[1])
        if pod is None or pod.terminal or pod.terminating or given(pod) or pod.metadata.uid in self._given:
            return
        try:
            record = recorded(pod)
        except BadRecord as error:
            await self._reject(pod, str(error))
            return
        if not record:
            return
        resources = {each["name"]: each for each in self._published}
        names = {name for by_name in record.values() for counts in by_name.values() for name in counts}
        raws = {name: str(resources[name]["resourceName"]) for name in names if name in resources}
        if any(name not in raws or self.plugins.connection(raws[name]) is None for name in names):
            # Its plugin restarts, or has not registered yet.
            self.queue.add_after(key, AGAIN, background=True)
            return
        try:
            chosen = await self._choose(pod, {name: resources[name] for name in names}, raws)
            await self._allocate(chosen, raws)
        except (NotEnough, PluginError) as error:
            await self._reject(pod, str(error))
            return
        self._given[pod.metadata.uid] = chosen
        text = msgspec.json.encode(chosen).decode()
        patch = {"metadata": {"uid": pod.metadata.uid, "annotations": {DEVICE_IDS: text}}}
        try:
            await self._client.patch(PODS, pod.metadata.name, patch, pod.metadata.namespace)
        except NotFound:
            del self._given[pod.metadata.uid]

    async def _choose(self, pod: Pod, resources: dict[str, Document], raws: dict[str, str]) -> Given:
        record = recorded(pod) or {}
        used = in_use(list(self._pods))
        for uid, theirs in self._given.items():
            if uid != pod.metadata.uid:
                used |= {(name, id) for by_name in theirs.values() for name, ids in by_name.items() for id in ids}
        free = available({name: each["allocatableDevices"] for name, each in resources.items()}, used)
        wanted: dict[str, int] = {}
        for _, name, count in holding(pod).recorded:
            wanted[name] = wanted.get(name, 0) + count
        for name, candidates in free.items():
            connection = self.plugins.connection(raws[name])
            if connection is not None:
                free[name] = await connection.preferred(candidates, wanted.get(name, 0))
        return choose(pod, record, free)

    async def _allocate(self, chosen: Given, raws: dict[str, str]) -> None:
        """Asks each plugin once for each container, with all its devices of the resource."""
        for container, by_name in chosen.items():
            by_raw: dict[str, list[str]] = {}
            for name, ids in by_name.items():
                by_raw.setdefault(raws[name], []).extend(ids)
            for raw, ids in by_raw.items():
                connection = self.plugins.connection(raw)
                if connection is None:
                    raise PluginError(f"{raw}: the plugin went away")
                answer = await connection.allocate(ids)
                log.info("container %s gets %s of %s: %s", container, ", ".join(ids), raw, answer)

    async def _reject(self, pod: Pod, why: str) -> None:
        """As a kubelet refuses a pod whose devices cannot be had."""
        message = f"Allocate failed due to {why}, which is unexpected"
        status = rejected(pod, REJECTED, message, self._clock.now())
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        try:
            await self._client.patch(
                PODS, pod.metadata.name, patch, pod.metadata.namespace, type=PatchType.STRATEGIC, subresource="status"
            )
        except NotFound:
            return
