"""The kubelets of all simulated nodes: one controller over pods for any number of nodes.

A pod is reconciled when it changes and when its next transition is due; there is no polling and no task for each node. `heartbeats`
keeps leases and node status.
"""

from __future__ import annotations

import msgspec

from wharfinger.api.errors import NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.resources import Amounts, requests
from wharfinger.api.times import format_time
from wharfinger.api.views import Node, Pod
from wharfinger.api.views.pods import PodStatus
from wharfinger.client.controller import Controller, Observer
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.pods import index_by_node, patch_pod_status
from wharfinger.client.timers import Clock
from wharfinger.framework.shapes import host_ports
from wharfinger.node import lifecycle
from wharfinger.node.addresses import PodAddresses
from wharfinger.node.annotations import DOWN, is_true, simulation_mark
from wharfinger.node.capacity import InsufficientResource, NodeUsage
from wharfinger.node.claims import ClaimPreparation
from wharfinger.plugins.node_ports import PORTS_TAKEN, conflict
from wharfinger.system import systems


class ManagedNodes(msgspec.Struct, frozen=True):
    """Selects the nodes to simulate: those marked as simulated and, with `everything`, all that are not marked otherwise.

    With `as_reported` a node is what its Ready condition says: Unknown means that its kubelet is silent. That is how
    nodes of a snapshot keep their state; with real heartbeats a node whose lease expired comes back by itself.
    """

    everything: bool = False
    as_reported: bool = False

    def __call__(self, node: Node) -> bool:
        mark = simulation_mark(node.metadata.labels, node.metadata.annotations)
        return self.everything if mark is None else mark

    def running(self, node: Node) -> bool:
        """Whether the node is simulated and its kubelet works."""
        if not self(node) or is_down(node):
            return False
        ready = node.status.condition("Ready") if self.as_reported else None
        return ready is None or ready.status != "Unknown"


def is_down(node: Node) -> bool:
    return is_true(node.metadata.annotations.get(DOWN))


class _KnownNode(msgspec.Struct, frozen=True, gc=False):
    """What follows from a node, until it changes."""

    node: Node
    running: bool  # whether its kubelet works
    host_ip: str


class Kubelets(Controller[ObjectKey]):
    name = "kubelet"
    workers = 16

    def __init__(
        self,
        client: Client,
        informers: InformerSet,
        clock: Clock,
        *,
        startup_seconds: float = 1.0,
        managed: ManagedNodes = ManagedNodes(),  # noqa: B008 - frozen
        observer: Observer | None = None,
    ) -> None:
        super().__init__(observer=observer)
        self._client = client
        self._clock = clock
        self._startup = startup_seconds
        self._managed = managed
        self._nodes = informers.of(NODES, Node)
        self._pods = informers.of(PODS, Pod)
        self._by_node = index_by_node(self._pods)
        self._admitted: dict[str, float] = {}  # pod UID to time, for admitted pods without a start time in their status
        self._usage: dict[str, NodeUsage] = {}  # by node
        self._known: dict[str, _KnownNode] = {}  # by name
        self._addresses = PodAddresses()
        found = (system.allocated_resources(informers) for system in systems())
        self._allocated = tuple(each for each in found if each is not None)
        self._claims = ClaimPreparation(informers, self._pods, self._enqueue)
        self._nodes.add_handler(self._node_added, self._node_updated, self._node_gone)
        self._pods.add_handler(self._pod_added, self._pod_updated, self._pod_deleted)

    async def reconcile(self, key: ObjectKey) -> None:
        pod = self._pods.get(key[1], key[0])
        node = self._nodes.get(pod.spec.node_name) if pod is not None and pod.spec.node_name else None
        if pod is None or node is None:
            return
        known = self._about(node)
        if not known.running:
            return
        now = self._clock.now()
        waiting = not pod.status.start_time and not pod.terminating and not pod.terminal
        bound_at = self._admitted.get(pod.metadata.uid) if waiting else now
        if bound_at is None:
            requested = requests(pod)
            lacking = self._insufficient(pod, node, requested)
            if lacking is not None:
                message = f"Pod was rejected: {lacking}"
                await self._write(pod, lifecycle.rejected(pod, f"OutOf{lacking.resource}", message, now))
                return
            if self._ports_taken(pod):
                message = f"Pod was rejected: Predicate NodePorts failed: {PORTS_TAKEN}"
                await self._write(pod, lifecycle.rejected(pod, "NodePorts", message, now))
                return
            self._usage_of(node.metadata.name).add(pod.metadata.uid, requested)
            bound_at = self._admitted[pod.metadata.uid] = now
        elif bound_at > now:
            bound_at = self._admitted[pod.metadata.uid] = (
                now  # the clock was set back: start from now instead of waiting for it
            )
        if waiting and not self._claims.prepared(pod):
            return  # the change of a claim brings it back
        step = lifecycle.next_step(
            pod,
            bound_at=bound_at,
            startup=self._startup,
            now=now,
            pod_ip=self._addresses.allocate(pod, node) if waiting and not pod.spec.host_network else "",
            host_ip=known.host_ip,
        )
        if step.delete:
            await self._delete(pod)
            return
        status = step.status
        if status is None and not pod.terminating and lifecycle.resize_wanted(pod):
            status = self._resize(pod, node, now)
        if status is not None:
            await self._write(pod, status)
        if step.wait is not None:
            self.queue.add_after(key, step.wait, background=step.background)

    def _about(self, node: Node) -> _KnownNode:
        name = node.metadata.name
        known = self._known.get(name)
        if known is None or known.node is not node:
            known = self._known[name] = _KnownNode(node, self._managed.running(node), _host_ip(node))
        return known

    def _ports_taken(self, pod: Pod) -> bool:
        """Whether another pod of the node, admitted before, uses one of its host ports."""
        wanted = host_ports(pod)
        return bool(wanted) and any(
            conflict(wanted, host_ports(other))
            for other in self._by_node.get(pod.spec.node_name)
            if other.metadata.uid != pod.metadata.uid
            and not other.terminal
            and (other.status.start_time or other.metadata.uid in self._admitted)
        )

    def _insufficient(self, pod: Pod, node: Node, requested: Amounts) -> InsufficientResource | None:
        allocated = {name for each in self._allocated for name in each(node.metadata.name)}
        return self._usage_of(node.metadata.name).insufficient(pod.metadata.uid, requested, node, allocated)

    def _usage_of(self, node: str) -> NodeUsage:
        found = self._usage.get(node)
        if found is None:
            found = self._usage[node] = NodeUsage()
        return found

    def _resize(self, pod: Pod, node: Node, now: float) -> Document | None:
        """Applies a resize that fits; otherwise the condition PodResizePending says why it does not."""
        desired = msgspec.structs.replace(pod, status=PodStatus(phase=pod.status.phase))
        lacking = self._insufficient(desired, node, requests(desired))
        if lacking is None:
            return lifecycle.resized(pod, now)
        infeasible = lacking.requested > lacking.capacity
        reason = "Infeasible" if infeasible else "Deferred"
        message = (
            f"Node didn't have enough capacity: {lacking.resource}, requested: {lacking.requested}, "
            f"capacity: {lacking.capacity}"
            if infeasible
            else str(lacking)
        )
        current = pod.status.condition("PodResizePending")
        if current is not None and (current.reason, current.message) == (reason, message):
            return None
        stamp = format_time(now)
        pending = {
            "type": "PodResizePending",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": stamp,
            "observedGeneration": pod.metadata.generation,
        }
        return {"conditions": [pending]}

    async def _write(self, pod: Pod, status: Document) -> None:
        try:
            await patch_pod_status(self._client, pod.metadata, status)
        except NotFound:
            return

    async def _delete(self, pod: Pod) -> None:
        metadata = pod.metadata
        try:
            await self._client.delete(PODS, metadata.name, metadata.namespace, grace_period=0, uid=metadata.uid)
        except NotFound:
            return

    def _account(self, pod: Pod) -> None:
        """Updates the accounting of the node from the status of the pod."""
        if pod.terminal:
            self._forget(pod)
        elif pod.status.start_time:
            self._admitted.pop(pod.metadata.uid, None)
            self._usage_of(pod.spec.node_name).add(pod.metadata.uid, requests(pod))
            self._addresses.observe(pod)

    def _forget(self, pod: Pod) -> None:
        """Releases the resources and the address of a pod that has ended or was deleted."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        self._admitted.pop(uid, None)
        self._addresses.release(pod)
        usage = self._usage.get(node)
        if usage is not None:
            usage.remove(uid)
            if not usage.pods:
                del self._usage[node]

    # Informer events

    def _pod_added(self, pod: Pod) -> None:
        if pod.spec.node_name:
            self._account(pod)
            if not lifecycle.is_settled(pod, self._clock.now()):
                self._enqueue(pod)

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        self._pod_added(new)

    def _enqueue(self, pod: Pod) -> None:
        if not (pod.terminal and not pod.terminating):
            self.queue.add(pod.metadata.key)

    def _pod_deleted(self, pod: Pod) -> None:
        self._forget(pod)
        for other in self._by_node.get(pod.spec.node_name):
            if other.status.condition("PodResizePending") is not None:
                self.queue.add(other.metadata.key)

    def _node_added(self, node: Node) -> None:
        if self._managed.running(node):
            for pod in self._by_node.get(node.metadata.name):
                self._enqueue(pod)

    def _node_gone(self, node: Node) -> None:
        self._known.pop(node.metadata.name, None)

    def _node_updated(self, old: Node, new: Node) -> None:
        if not self._managed.running(old):
            self._node_added(new)


def _host_ip(node: Node) -> str:
    for address in node.status.addresses:
        if address.type == "InternalIP":
            return address.address
    return "127.0.0.1"
