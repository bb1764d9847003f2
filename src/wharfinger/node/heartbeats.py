"""Heartbeats of simulated nodes: the Ready condition when a node comes up, and lease renewals while it stays up.

In virtual time heartbeats are implicit: leases are not renewed, and only failures cause events.
"""

from __future__ import annotations

import logging

from wharfinger.api.conditions import transition_time
from wharfinger.api.errors import AlreadyExists, ApiError, NotFound
from wharfinger.api.kinds.builtin import LEASES, NAMESPACES, NODES
from wharfinger.api.kubernetes_version import REFERENCE, RELEASES
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.api.times import format_micro_time, format_time
from wharfinger.api.views import Node
from wharfinger.client.controller import Controller, Observer
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.tasks import running
from wharfinger.client.timers import Clock, background_sleep
from wharfinger.node.annotations import SIMULATED, simulation_mark
from wharfinger.node.capacity import changed_allocatable
from wharfinger.node.kubelet import ManagedNodes, is_down

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
STATUS_SECONDS = 300.0  # how often an unchanged status is reported; the kubelet's default
RENEWALS_PER_SECOND = 100.0  # above this rate nodes renew less often, within their lease duration
_PRESSURE_CONDITIONS = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


class Heartbeats(Controller[str]):
    """Reports managed nodes as Ready while they are up, and renews their leases unless heartbeats are implicit."""

    name = "heartbeats"
    workers = 8

    def __init__(
        self,
        client: Client,
        informers: InformerSet,
        clock: Clock,
        *,
        lease_seconds: int = 40,
        implicit: bool = False,
        managed: ManagedNodes = ManagedNodes(),  # noqa: B008 - frozen
        observer: Observer | None = None,
    ) -> None:
        super().__init__(observer=observer)
        self._client = client
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._implicit = implicit
        self._managed = managed
        self._reported: dict[str, float] = {}  # by node UID: when we last wrote its status
        self._nodes = informers.of(NODES, Node)
        self._returning: set[str] = set()  # nodes that were marked as down and are not any more
        self._allocatable: dict[str, dict[str, str | None]] = {}  # by node: changes that are not written yet
        self._nodes.add_handler(self._added_node, self._updated_node, self._removed_node)

    async def run(self) -> None:
        if self._implicit:
            await super().run()
            return
        async with running(self._renew(), "node leases"):
            await super().run()

    async def reconcile(self, key: str) -> None:
        node = self._nodes.get(key)
        if node is None or not self._managed(node) or is_down(node):
            return
        now = self._clock.now()
        stale = not self._implicit and now - self._reported.get(node.metadata.uid, 0.0) >= STATUS_SECONDS
        late = self._is_late(node) or stale or not node.status.addresses
        self._returning.discard(key)
        if late or (key in self._allocatable and node.ready):
            await self._report(node, now)

    def _added_node(self, node: Node) -> None:
        self._capacity_changed(None, node)
        self._changed(node)

    def _updated_node(self, old: Node, new: Node) -> None:
        if old.status.capacity != new.status.capacity:
            self._capacity_changed(old, new)
        if is_down(old) and not is_down(new):
            self._returning.add(new.metadata.name)
        self._changed(new)

    def _removed_node(self, node: Node) -> None:
        self._allocatable.pop(node.metadata.name, None)
        self._returning.discard(node.metadata.name)
        self._reported.pop(node.metadata.uid, None)

    def _capacity_changed(self, old: Node | None, new: Node) -> None:
        """Notes what becomes allocatable. A node that is down learns it too; its kubelet reports it when it is back."""
        changes = changed_allocatable(None if old is None else old.status, new.status) if self._managed(new) else {}
        if changes:
            self._allocatable[new.metadata.name] = {**self._allocatable.get(new.metadata.name, {}), **changes}
            if not is_down(new):
                self.queue.add(new.metadata.name)

    def _changed(self, node: Node) -> None:
        if self._managed(node) and not is_down(node) and self._is_late(node):
            self.queue.add(node.metadata.name)

    def _is_late(self, node: Node) -> bool:
        """Whether the kubelet would report now. A simulated cluster is as its nodes say: one that was reported as not
        ready or unknown, in a snapshot or by a user, stays so."""
        if self._unmarked(node):
            return True
        if self._managed.as_reported and node.metadata.name not in self._returning:
            return node.status.condition("Ready") is None
        return not node.ready

    def _unmarked(self, node: Node) -> bool:
        """Whether a node still needs the annotation that tells API servers that it has no kubelet to ask."""
        return not self._implicit and simulation_mark(node.metadata.labels, node.metadata.annotations) is None

    async def _report(self, node: Node, now: float) -> None:
        stamp = format_time(now)
        conditions = [
            _condition(node, type, "False", reason, message, stamp) for type, reason, message in _PRESSURE_CONDITIONS
        ]
        ready = _condition(node, "Ready", "True", "KubeletReady", "kubelet is posting ready status", stamp)
        status: Document = {
            "conditions": [*conditions, ready],
            "nodeInfo": {
                "kubeletVersion": f"v{RELEASES[REFERENCE]}",
                "kubeProxyVersion": "",
                "containerRuntimeVersion": "simulated://1",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "osImage": "Simulated",
                "kernelVersion": "",
                "machineID": "",
                "systemUUID": node.metadata.uid,
                "bootID": "",
            },
        }
        if not node.status.addresses:
            status["addresses"] = [{"type": "Hostname", "address": node.metadata.name}]
        allocatable = self._allocatable.get(node.metadata.name)
        if allocatable:
            status["allocatable"] = allocatable
        metadata: Document = {"uid": node.metadata.uid}
        if self._unmarked(node):
            metadata["annotations"] = {SIMULATED: "true"}
        try:
            await self._client.patch(
                NODES,
                node.metadata.name,
                {"metadata": metadata, "status": status},
                type=PatchType.STRATEGIC,
                subresource="status",
            )
        except NotFound:
            return
        self._reported[node.metadata.uid] = now
        if self._allocatable.get(node.metadata.name) == allocatable:
            self._allocatable.pop(node.metadata.name, None)

    # Leases

    async def _renew(self) -> None:
        while True:
            nodes = [node for node in self._nodes if self._managed(node) and not is_down(node)]
            shortest, longest = self._lease_seconds / 4, self._lease_seconds * 0.625
            interval = min(longest, max(shortest, len(nodes) / RENEWALS_PER_SECOND))
            # Spread over the interval, so that nodes do not all renew at the same moment.
            for node in nodes:
                await self._renew_one(node.metadata.name)
                if self._clock.now() - self._reported.get(node.metadata.uid, 0.0) >= STATUS_SECONDS:
                    self.queue.add(node.metadata.name)
                await background_sleep(interval / len(nodes))
            if not nodes:
                await background_sleep(min(1.0, interval))

    async def _renew_one(self, name: str) -> None:
        stamp = format_micro_time(self._clock.now())
        try:
            try:
                await self._client.patch(LEASES, name, {"spec": {"renewTime": stamp}}, LEASE_NAMESPACE)
            except NotFound:
                await self._create_lease(name, stamp)
        except ApiError as error:
            log.warning("cannot renew the lease of node %s: %s", name, error)

    async def _create_lease(self, name: str, stamp: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}
        lease: Document = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": self._lease_seconds, "renewTime": stamp},
        }
        try:
            await self._client.create(LEASES, lease, LEASE_NAMESPACE)
        except AlreadyExists:
            return
        except NotFound:
            try:
                namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
                await self._client.create(NAMESPACES, namespace)
            except AlreadyExists:
                return


def _condition(node: Node, type: str, status: str, reason: str, message: str, stamp: str) -> Document:
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": transition_time(node.status.condition(type), status, stamp),
    }
