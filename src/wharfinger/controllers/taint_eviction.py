"""Taint eviction: deletes pods that do not tolerate the NoExecute taints of their node, or no longer do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from wharfinger.api.conditions import new_condition
from wharfinger.api.errors import NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.taints import NO_EXECUTE, tolerates
from wharfinger.api.times import parse_time
from wharfinger.api.views import Node, Pod
from wharfinger.api.views.nodes import Taint
from wharfinger.api.views.pods import Toleration
from wharfinger.client.pods import delete_disrupted_pod
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.node_pods import NodePodsController


def evicted_at(
    tolerations: Sequence[Toleration],
    taints: Iterable[Taint],
    now: float,
    seen: Mapping[tuple[str, str], float] = MappingProxyType({}),
) -> float | None:
    """When a pod must leave a node with these taints; None for never.

    `tolerationSeconds` counts from `timeAdded` of the taint, so that a restarted controller keeps the deadline. For a taint
    without one it counts from when the controller first saw the taint: `seen`, by key and value.
    """
    deadlines = []
    for taint in taints:
        if taint.effect != NO_EXECUTE:
            continue
        matching = [toleration for toleration in tolerations if tolerates(toleration, taint)]
        if not matching:
            return now
        limits = [each.toleration_seconds for each in matching if each.toleration_seconds is not None]
        if limits:
            first = seen.get((taint.key, taint.value), now)
            added = parse_time(taint.time_added) if taint.time_added else first
            deadlines.append(added + max(0, min(limits)))
    return min(deadlines, default=None)


class TaintEvictionController(NodePodsController[ObjectKey]):
    name = "tainteviction"
    workers = 4

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._waiting: set[ObjectKey] = set()  # pods with a pending eviction
        self._seen: dict[str, dict[tuple[str, str], float]] = {}  # by node: when each NoExecute taint was first seen
        self.nodes.add_handler(self._node_seen, self._node_updated, self._node_deleted)
        self.pods.add_handler(self._pod_seen, self._pod_updated, self._pod_gone)

    async def reconcile(self, key: ObjectKey) -> None:
        pod = self.pods.get(key[1], key[0])
        node = self.nodes.get(pod.spec.node_name) if pod is not None and pod.spec.node_name else None
        if pod is None or node is None or pod.terminating:
            return
        now = self.context.now()
        moment = evicted_at(pod.spec.tolerations, node.spec.taints, now, self._seen.get(node.metadata.name, {}))
        if moment is None:
            if key in self._waiting:
                self._waiting.discard(key)
                self._record_event(pod, "Cancelling deletion of Pod")
            return
        if moment > now:
            self._waiting.add(key)
            self.queue.add_after(key, moment - now, background=True)
            return
        self._waiting.discard(key)
        await self._evict(pod, now)

    def _record_event(self, pod: Pod, what: str) -> None:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        self.context.recorder.event(PODS, pod, "Normal", "TaintManagerEviction", f"{what} {name}")

    async def _evict(self, pod: Pod, now: float) -> None:
        metadata = pod.metadata
        self._record_event(pod, "Marking for deletion Pod")
        message = "Taint manager: deleting due to NoExecute taint"
        condition = new_condition("DisruptionTarget", True, "DeletionByTaintManager", message, now)
        condition["observedGeneration"] = metadata.generation
        try:
            await delete_disrupted_pod(self.client, metadata, condition)
        except NotFound:
            return

    def _node_seen(self, node: Node) -> None:
        before = self._seen.pop(node.metadata.name, {})
        taints = [(taint.key, taint.value) for taint in node.spec.taints if taint.effect == NO_EXECUTE]
        if taints:
            now = self.context.now()
            self._seen[node.metadata.name] = {taint: before.get(taint, now) for taint in taints}
        for pod in self.pods_by_node.get(node.metadata.name):
            if taints or pod.metadata.key in self._waiting:
                self.queue.add(pod.metadata.key)

    def _node_updated(self, old: Node, new: Node) -> None:
        if old.spec.taints != new.spec.taints:
            self._node_seen(new)

    def _node_deleted(self, node: Node) -> None:
        self._seen.pop(node.metadata.name, None)

    def _pod_seen(self, pod: Pod) -> None:
        node = self.nodes.get(pod.spec.node_name) if pod.spec.node_name else None
        if node is not None and any(taint.effect == NO_EXECUTE for taint in node.spec.taints):
            self.queue.add(pod.metadata.key)

    def _pod_gone(self, pod: Pod) -> None:
        self._waiting.discard(pod.metadata.key)

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        if old.spec.node_name != new.spec.node_name or old.spec.tolerations != new.spec.tolerations:
            self._pod_seen(new)
