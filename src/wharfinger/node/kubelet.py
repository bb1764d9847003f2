"""The kubelets of all simulated nodes: one reconciler over pods, whatever the number of nodes.

A pod is looked at when it changes and when its next moment has come; there is no polling and no task for a node. Leases
and node status are kept by `heartbeats`.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from wharfinger.api.errors import NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.api.resources import requests
from wharfinger.api.times import format_time
from wharfinger.api.views import Node, Pod
from wharfinger.api.views.pods import PodStatus
from wharfinger.client.controller import Controller, Observer
from wharfinger.client.informer import Index, Informer, InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock
from wharfinger.node import lifecycle
from wharfinger.node.addresses import Addresses
from wharfinger.node.annotations import DOWN, SIMULATED, is_true
from wharfinger.node.fitting import Room


@dataclass(frozen=True, slots=True)
class Managed:
    """Which nodes are ours: those that say so, or all that do not say they are not."""

    everything: bool = False

    def __call__(self, node: Node) -> bool:
        told = node.metadata.labels.get(SIMULATED, node.metadata.annotations.get(SIMULATED))
        return self.everything if told is None else is_true(told)


def is_down(node: Node) -> bool:
    return is_true(node.metadata.annotations.get(DOWN))


def pods_by_node(pods: Informer[Pod]) -> Index[Pod]:
    return pods.index("node", lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())


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
        self._seen: dict[str, float] = {}  # by uid, pods that were taken on and do not show their start: since when
        self._rooms: dict[str, Room] = {}  # by node: what the pods that it has taken on ask of it
        self._addresses = Addresses()
        self._nodes.add_handler(self._node_added, self._node_updated)
        self._pods.add_handler(self._pod_added, self._pod_updated, self._pod_deleted)

    async def reconcile(self, key: ObjectKey) -> None:
        pod = self._pods.get(key[1], key[0])
        node = self._nodes.get(pod.spec.node_name) if pod is not None and pod.spec.node_name else None
        if pod is None or node is None or not self._managed(node) or is_down(node):
            return
        now = self._clock.now()
        waiting = not pod.status.start_time and not pod.terminating and not pod.terminal
        bound_at = self._seen.get(pod.metadata.uid) if waiting else now
        if bound_at is None:
            lacking = self._room(node).shortage(pod, node)
            if lacking is not None:
                message = f"Pod was rejected: {lacking}"
                await self._write(pod, lifecycle.rejected(pod, f"OutOf{lacking.resource}", message, now))
                return
            self._room(node).put(pod.metadata.uid, requests(pod))
            bound_at = self._seen[pod.metadata.uid] = now
        elif bound_at > now:
            bound_at = self._seen[pod.metadata.uid] = now  # the clock was set back: nobody waits for it to catch up
        step = lifecycle.next_step(
            pod,
            bound_at=bound_at,
            startup=self._startup,
            now=now,
            pod_ip=self._addresses.give(pod, node) if waiting and not pod.spec.host_network else "",
            host_ip=_host_ip(node),
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

    def _room(self, node: Node) -> Room:
        return self._rooms.setdefault(node.metadata.name, Room())

    def _resize(self, pod: Pod, node: Node, now: float) -> Document | None:
        """Grants a resize that fits; one that does not fit waits, and says so."""
        wish = msgspec.structs.replace(pod, status=PodStatus(phase=pod.status.phase))
        lacking = self._room(node).shortage(wish, node)
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

    def _follow(self, pod: Pod) -> None:
        """Keeps what the pod takes of its node as the pod shows it."""
        if pod.terminal:
            self._forget(pod)
        elif pod.status.start_time:
            self._seen.pop(pod.metadata.uid, None)
            self._rooms.setdefault(pod.spec.node_name, Room()).put(pod.metadata.uid, requests(pod))
            self._addresses.shown(pod)

    def _forget(self, pod: Pod) -> None:
        """The pod has ended or is gone: it takes nothing of its node any more."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        self._seen.pop(uid, None)
        self._addresses.forget(pod)
        room = self._rooms.get(node)
        if room is not None:
            room.drop(uid)
            if not room.pods:
                del self._rooms[node]

    # Events of informers

    def _pod_added(self, pod: Pod) -> None:
        if pod.spec.node_name:
            self._follow(pod)
            self._look_at(pod)

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        self._pod_added(new)

    def _look_at(self, pod: Pod) -> None:
        if not (pod.terminal and not pod.terminating):
            self.queue.add(pod.metadata.key)

    def _pod_deleted(self, pod: Pod) -> None:
        self._forget(pod)
        for other in self._by_node.get(pod.spec.node_name):
            if other.status.condition("PodResizePending") is not None:
                self.queue.add(other.metadata.key)

    def _node_added(self, node: Node) -> None:
        if self._managed(node) and not is_down(node):
            for pod in self._by_node.get(node.metadata.name):
                self._look_at(pod)

    def _node_updated(self, old: Node, new: Node) -> None:
        if is_down(old) and not is_down(new):
            self._node_added(new)


def _host_ip(node: Node) -> str:
    internal = (address.address for address in node.status.addresses if address.type == "InternalIP")
    return next(internal, "127.0.0.1")
