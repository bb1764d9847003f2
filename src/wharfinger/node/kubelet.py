"""The kubelets of all simulated nodes: one reconciler over pods, whatever the number of nodes.

A pod is looked at when it changes and when its next moment has come; there is no polling and no task for a node. Leases
and node status are kept by `heartbeats`.
"""

from __future__ import annotations

import ipaddress
import zlib
from dataclasses import dataclass

import msgspec

from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.api.views import Node, Pod
from wharfinger.api.views.pods import PodStatus
from wharfinger.client.controller import Controller, Observer
from wharfinger.client.informer import Index, Informer, InformerSet, Key
from wharfinger.client.interface import Client, PatchType
from wharfinger.client.timers import Clock
from wharfinger.node import lifecycle
from wharfinger.node.annotations import DOWN, SIMULATED, is_true
from wharfinger.node.fitting import shortage


@dataclass(frozen=True, slots=True)
class Managed:
    """Which nodes are ours: those that say so, or all."""

    everything: bool = False

    def __call__(self, node: Node) -> bool:
        return self.everything or is_true(node.metadata.labels.get(SIMULATED, node.metadata.annotations.get(SIMULATED)))


def is_down(node: Node) -> bool:
    return is_true(node.metadata.annotations.get(DOWN))


def pods_by_node(pods: Informer[Pod]) -> Index[Pod]:
    return pods.index("node", lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())


class Kubelets(Controller[Key]):
    name = "kubelet"
    workers = 16

    def __init__(
        self,
        client: Client,
        informers: InformerSet,
        clock: Clock,
        *,
        startup_seconds: float = 1.0,
        managed: Managed = Managed(),  # noqa: B008 - frozen
        observer: Observer | None = None,
    ) -> None:
        super().__init__(observer=observer)
        self._client = client
        self._clock = clock
        self._startup = startup_seconds
        self._managed = managed
        self._nodes = informers.of(NODES, Node)
        self._pods = informers.of(PODS, Pod)
        self._by_node = pods_by_node(self._pods)
        # Of pods whose start the informer does not show yet, by uid:
        self._seen: dict[str, float] = {}  # since when we know of them
        self._addresses: dict[str, str] = {}  # what address they are to get
        self._starting: dict[str, dict[str, Pod]] = {}  # by node: those already written as started
        self._nodes.add_handler(self._node_added, self._node_updated)
        self._pods.add_handler(self._pod_added, self._pod_updated, self._pod_deleted)

    async def reconcile(self, key: Key) -> None:
        pod = self._pods.get(key[1], key[0])
        node = self._nodes.get(pod.spec.node_name) if pod is not None and pod.spec.node_name else None
        if pod is None or node is None or not self._managed(node) or is_down(node):
            return
        now = self._clock.now()
        waiting = not pod.status.start_time and not pod.terminating and not pod.terminal
        bound_at = self._seen.setdefault(pod.metadata.uid, now) if waiting else now
        if waiting:
            lacking = shortage(pod, node, self._admitted(pod))
            if lacking is not None:
                message = f"Pod was rejected: {lacking}"
                await self._write(pod, lifecycle.rejected(pod, f"OutOf{lacking.resource}", message, now))
                return
        step = lifecycle.next_step(
            pod,
            bound_at=bound_at,
            startup=self._startup,
            now=now,
            pod_ip=self._address(pod, node) if waiting else "",
            host_ip=_host_ip(node),
        )
        if step.delete:
            await self._delete(pod)
            return
        status = step.status
        if status is None and not pod.terminating and lifecycle.resize_wanted(pod):
            status = self._resize(pod, node, now)
        if status is not None:
            if waiting:
                self._starting.setdefault(node.metadata.name, {})[pod.metadata.uid] = pod
            await self._write(pod, status)
        if step.wait is not None:
            self.queue.add_after(key, step.wait, background=step.background)

    def _admitted(self, pod: Pod) -> list[Pod]:
        """The other pods that the node has taken on, also those whose start the informer has not seen yet."""
        node = pod.spec.node_name
        found = {
            other.metadata.uid: other
            for other in self._by_node.get(node)
            if other.status.start_time and not other.terminal
        }
        found |= self._starting.get(node, {})
        found.pop(pod.metadata.uid, None)
        return list(found.values())

    def _resize(self, pod: Pod, node: Node, now: float) -> Document | None:
        """Grants a resize that fits; one that does not fit waits, and says so."""
        wish = msgspec.structs.replace(pod, status=PodStatus(phase=pod.status.phase))
        lacking = shortage(wish, node, self._admitted(pod))
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
        shown = pod.status.condition("PodResizePending")
        if shown is not None and (shown.reason, shown.message) == (reason, message):
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
        metadata = pod.metadata
        patch = {"metadata": {"uid": metadata.uid}, "status": status}
        try:
            await self._client.patch(
                PODS, metadata.name, patch, metadata.namespace, type=PatchType.STRATEGIC, subresource="status"
            )
        except NotFound:
            return

    async def _delete(self, pod: Pod) -> None:
        metadata = pod.metadata
        try:
            await self._client.delete(PODS, metadata.name, metadata.namespace, grace_period=0, uid=metadata.uid)
        except NotFound:
            return

    def _address(self, pod: Pod, node: Node) -> str:
        """The first address of the node's range that none of its pods has; the same one until the pod shows it."""
        promised = self._addresses.get(pod.metadata.uid)
        if promised is not None:
            return promised
        if node.spec.pod_cidr:
            network = ipaddress.ip_network(node.spec.pod_cidr, strict=False)
        else:
            digest = zlib.crc32(node.metadata.name.encode())
            network = ipaddress.ip_network(f"10.{digest >> 8 & 255}.{digest & 255}.0/24")
        neighbours = self._by_node.get(node.metadata.name)
        used = {other.status.pod_ip for other in neighbours if not other.terminal}
        used |= {self._addresses[other.metadata.uid] for other in neighbours if other.metadata.uid in self._addresses}
        base = int(network.network_address)
        text = _ipv4 if network.version == 4 else lambda number: str(ipaddress.IPv6Address(number))
        free = (text(base + offset) for offset in range(1, network.num_addresses))
        address = next((each for each in free if each not in used), text(base))
        self._addresses[pod.metadata.uid] = address
        return address

    def _forget(self, pod: Pod) -> None:
        """The pod shows its start, or is gone: nothing of it needs to be remembered."""
        uid = pod.metadata.uid
        self._seen.pop(uid, None)
        self._addresses.pop(uid, None)
        starting = self._starting.get(pod.spec.node_name)
        if starting is not None and starting.pop(uid, None) is not None and not starting:
            del self._starting[pod.spec.node_name]

    # Events of informers

    def _pod_added(self, pod: Pod) -> None:
        if pod.spec.node_name and not (pod.terminal and not pod.terminating):
            self.queue.add(pod.metadata.key)

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        if new.status.start_time or new.terminal:
            self._forget(new)
        self._pod_added(new)

    def _pod_deleted(self, pod: Pod) -> None:
        self._forget(pod)
        for other in self._by_node.get(pod.spec.node_name):
            if other.status.condition("PodResizePending") is not None:
                self.queue.add(other.metadata.key)

    def _node_added(self, node: Node) -> None:
        if self._managed(node) and not is_down(node):
            for pod in self._by_node.get(node.metadata.name):
                self._pod_added(pod)

    def _node_updated(self, old: Node, new: Node) -> None:
        if is_down(old) and not is_down(new):
            self._node_added(new)


def _ipv4(number: int) -> str:
    return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def _host_ip(node: Node) -> str:
    internal = (address.address for address in node.status.addresses if address.type == "InternalIP")
    return next(internal, "127.0.0.1")
