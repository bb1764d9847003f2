"""The node lifecycle controller: marks nodes without heartbeats as Unknown, and turns node conditions into taints.

Heartbeats are changes of the node's lease and of its Ready condition. They are timed by the clock of the event loop, since a
change of the wall clock must neither fail nodes nor hide failures. With implicit heartbeats (simulation) a node is alive
unless an annotation marks it as down. Unlike upstream, there is no limit on how many nodes are tainted at a time.
"""

from __future__ import annotations

import asyncio

from wharfinger.api.conditions import new_condition
from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import LEASES, NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.api.taints import NO_SCHEDULE
from wharfinger.api.times import format_time
from wharfinger.api.views import Lease, Node
from wharfinger.client.pods import patch_pod_status
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.node_pods import NodePodsController
from wharfinger.controllers.node_taints import is_managed, wanted_taints

GRACE = 50.0  # seconds without heartbeat until a node is Unknown; kube-controller-manager's --node-monitor-grace-period
LEASE_NAMESPACE = "kube-node-lease"
DOWN = "wharfinger.dev/down"
_DEPRECATED_LABELS = (("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch"))
_KUBELET_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeLifecycleController(NodePodsController[str]):
    name = "nodelifecycle"
    workers = 4

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._alive_at: dict[str, float] = {}  # by node: when the last heartbeat was observed
        self.nodes.add_handler(self._node_added, self._node_updated, self._node_deleted)
        if not context.implicit_heartbeats:
            leases = context.informers.of(LEASES, Lease, namespace=LEASE_NAMESPACE)
            leases.add_handler(self._lease_seen, self._lease_renewed)

    async def reconcile(self, key: str) -> None:
        node = self.nodes.get(key)
        if node is None or node.metadata.deletion_timestamp:
            return
        now = self.context.now()
        left = self._alive_at.setdefault(key, _elapsed()) + GRACE - _elapsed()
        if self._watched(node) and self._is_known(node):
            if left <= 0:
                await self._declare_unknown(node, now)
                return  # the event of this write leads to the taints
            self.queue.add_after(key, left, background=not self.context.implicit_heartbeats)
        await self._mark_pods(node, now)
        await self._label(node)
        await self._taint(node, now)

    def _watched(self, node: Node) -> bool:
        """Whether missing heartbeats count: always with real heartbeats, otherwise only for nodes marked as down."""
        return not self.context.implicit_heartbeats or _is_down(node)

    @staticmethod
    def _is_known(node: Node) -> bool:
        ready = node.status.condition("Ready")
        return ready is None or ready.status != "Unknown"

    async def _declare_unknown(self, node: Node, now: float) -> None:
        conditions = []
        for type in _KUBELET_CONDITIONS:
            before = node.status.condition(type)
            if before is None:
                reason, message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
            elif before.status == "Unknown":
                continue
            else:
                reason, message = "NodeStatusUnknown", "Kubelet stopped posting node status."
            conditions.append(new_condition(type, "Unknown", reason, message, now))
        self.context.recorder.event(
            NODES, node, "Normal", "NodeNotReady", f"Node {node.metadata.name} status is now: NodeNotReady"
        )
        await self._patch_node(node, {"status": {"conditions": conditions}}, subresource="status")

    async def _mark_pods(self, node: Node, now: float) -> None:
        """Marks the pods of an unready node as not ready; the kubelet reverts that when it is back."""
        ready = node.status.condition("Ready")
        if ready is None or ready.status == "True":
            return
        stamp = format_time(now)
        for pod in self.pods_by_node.get(node.metadata.name):
            if pod.ready and not pod.terminal:
                condition = {"type": "Ready", "status": "False", "lastTransitionTime": stamp}
                self.context.recorder.event(PODS, pod, "Warning", "NodeNotReady", "Node is not ready")
                try:
                    await patch_pod_status(self.client, pod.metadata, {"conditions": [condition]})
                except NotFound:
                    continue

    async def _taint(self, node: Node, now: float) -> None:
        wanted = wanted_taints(node)
        present = {(taint.key, taint.effect) for taint in node.spec.taints if is_managed(taint)}
        if wanted == present:
            return
        kept = [
            _document(taint.key, taint.value, taint.effect, taint.time_added)
            for taint in node.spec.taints
            if not is_managed(taint) or (taint.key, taint.effect) in wanted
        ]
        missing = sorted(wanted - present, key=lambda each: (each[1] != NO_SCHEDULE, each))
        added = [_document(key, "", effect, format_time(now)) for key, effect in missing]
        taints = kept + added or None
        change = {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}}
        await self._patch_node(node, change, merge=True)

    async def _label(self, node: Node) -> None:
        """Keeps the deprecated beta labels for OS and architecture equal to the present ones."""
        if self.context.implicit_heartbeats:
            return  # a simulation does not change the labels of nodes
        labels = node.metadata.labels
        late = {old: labels[new] for new, old in _DEPRECATED_LABELS if new in labels and labels.get(old) != labels[new]}
        if late:
            await self._patch_node(node, {"metadata": {"labels": late}}, merge=True)

    async def _patch_node(self, node: Node, change: Document, *, subresource: str = "", merge: bool = False) -> None:
        try:
            await self.client.patch(
                NODES,
                node.metadata.name,
                change,
                type=PatchType.MERGE if merge else PatchType.STRATEGIC,
                subresource=subresource,
            )
        except NotFound:
            return

    # Informer events

    def _node_added(self, node: Node) -> None:
        self._alive_at[node.metadata.name] = _elapsed()
        self._record_event(node, "RegisteredNode", "Registered Node {} in Controller")
        self.queue.add(node.metadata.name)

    def _node_updated(self, old: Node, new: Node) -> None:
        if (_is_down(new) and not _is_down(old)) or (
            not self.context.implicit_heartbeats and _heartbeat(old) != _heartbeat(new)
        ):
            self._alive_at[new.metadata.name] = _elapsed()
        self.queue.add(new.metadata.name)

    def _node_deleted(self, node: Node) -> None:
        self._alive_at.pop(node.metadata.name, None)
        self._record_event(node, "RemovingNode", "Removing Node {} from Controller")

    def _record_event(self, node: Node, reason: str, what: str) -> None:
        name = node.metadata.name
        if self.context.implicit_heartbeats:
            return
        self.context.recorder.event(NODES, node, "Normal", reason, f"Node {name} event: {what.format(name)}")

    def _lease_seen(self, lease: Lease) -> None:
        if lease.metadata.name in self._alive_at:
            self._alive_at[lease.metadata.name] = _elapsed()

    def _lease_renewed(self, old: Lease, new: Lease) -> None:
        if old.spec.renew_time != new.spec.renew_time:
            self._lease_seen(new)


def _elapsed() -> float:
    return asyncio.get_running_loop().time()


def _is_down(node: Node) -> bool:
    return node.metadata.annotations.get(DOWN, "").lower() == "true"


def _heartbeat(node: Node) -> tuple[str, str]:
    """Status and heartbeat time of the Ready condition as the kubelet wrote it; our own Unknown is no heartbeat."""
    ready = node.status.condition("Ready")
    if ready is None or ready.status == "Unknown":
        return "", ""
    return ready.status, ready.last_heartbeat_time


def _document(key: str, value: str, effect: str, added: str) -> Document:
    document: Document = {"key": key, "effect": effect}
    if value:
        document["value"] = value
    if added:
        document["timeAdded"] = added
    return document
