"""Pod garbage collection: pods of deleted nodes, unscheduled pods that are being deleted, and finished pods beyond a limit."""

from __future__ import annotations

from wharfinger.api.conditions import new_condition
from wharfinger.api.errors import NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.object_meta import created_at
from wharfinger.api.taints import OUT_OF_SERVICE
from wharfinger.api.views import Node, Pod
from wharfinger.client.pods import patch_pod_status
from wharfinger.client.tasks import running
from wharfinger.client.timers import background_sleep
from wharfinger.controllers.context import ContextController, ControllerContext

QUARANTINE = 40.0  # seconds between the deletion of a node and that of its pods
SWEEP = 20.0  # seconds
FINISHED_LIMIT = 12_500


class PodGarbageCollector(ContextController[ObjectKey]):
    """Keys are pods that may have to be deleted: from events, and from a periodic sweep."""

    name = "podgc"
    workers = 2

    def __init__(self, context: ControllerContext, *, finished_limit: int = FINISHED_LIMIT) -> None:
        super().__init__(context)
        self.finished_limit = finished_limit
        self.nodes = context.nodes
        self.pods = context.pods
        self._missing: dict[str, float] = {}  # nodes of pods that do not exist: since when
        self._surplus: set[ObjectKey] = set()
        self._finished: set[ObjectKey] = set()
        self.nodes.add_handler(on_add=self._node_came, on_delete=self._node_gone)
        self.pods.add_handler(self._pod_seen, lambda old, new: self._pod_seen(new), self._pod_gone)

    async def run(self) -> None:
        async with running(self._sweep(), "podgc sweep"):
            await super().run()

    async def reconcile(self, key: ObjectKey) -> None:
        pod = self.pods.get(key[1], key[0])
        if pod is None:
            self._surplus.discard(key)
            return
        node = pod.spec.node_name
        if not node:
            if pod.terminating:
                await self._remove(pod, "")
            return
        if key in self._surplus and pod.terminal:
            self._surplus.discard(key)
            await self._remove(pod, "")
            return
        found = self.nodes.get(node)
        if found is not None:
            lost = any(taint.key == OUT_OF_SERVICE for taint in found.spec.taints)
            ready = found.ready
            if pod.terminating and lost and not ready:
                await self._remove(pod, "")
            return
        await self._node_is_missing(key, pod, node)

    async def _node_is_missing(self, key: ObjectKey, pod: Pod, node: str) -> None:
        now = self.context.now()
        left = self._missing.setdefault(node, now) + QUARANTINE - now
        if left > 0:
            self.queue.add_after(key, left)
            return
        try:
            await self.client.get(NODES, node, view=Node)
        except NotFound:
            await self._remove(pod, "PodGC: node no longer exists")

    async def _remove(self, pod: Pod, why: str) -> None:
        """Deletes without grace period. An unfinished pod is marked as failed first, for its owner."""
        metadata = pod.metadata
        try:
            if not pod.terminal and pod.spec.node_name:
                status: dict[str, object] = {"phase": "Failed"}
                if why:
                    now = self.context.now()
                    status["conditions"] = [new_condition("DisruptionTarget", True, "DeletionByPodGC", why, now)]
                await patch_pod_status(self.client, metadata, status)
            await self.client.delete(PODS, metadata.name, metadata.namespace, grace_period=0, uid=metadata.uid)
        except NotFound:
            return

    async def _sweep(self) -> None:
        """Deletes the oldest finished pods beyond the limit, periodically."""
        while True:
            if self.finished_limit > 0 and len(self._finished) > self.finished_limit:
                known = (self.pods.get(name, namespace) for namespace, name in self._finished)
                finished = [pod for pod in known if pod is not None]
                finished.sort(key=lambda pod: (created_at(pod.metadata), pod.metadata.name))
                for pod in finished[: len(finished) - self.finished_limit]:
                    self._surplus.add(pod.metadata.key)
                    self.queue.add(pod.metadata.key)
            await background_sleep(SWEEP)

    def _pod_seen(self, pod: Pod) -> None:
        if pod.terminal and not pod.terminating:
            self._finished.add(pod.metadata.key)
        else:
            self._finished.discard(pod.metadata.key)
        if not pod.spec.node_name:
            if pod.terminating:
                self.queue.add(pod.metadata.key)
        elif self.nodes.synced and (self.nodes.get(pod.spec.node_name) is None or pod.terminating):
            self.queue.add(pod.metadata.key)

    def _pod_gone(self, pod: Pod) -> None:
        self._finished.discard(pod.metadata.key)

    def _node_came(self, node: Node) -> None:
        self._missing.pop(node.metadata.name, None)

    def _node_gone(self, node: Node) -> None:
        self._missing[node.metadata.name] = self.context.now()
        for pod in self.pods:
            if pod.spec.node_name == node.metadata.name:
                self.queue.add(pod.metadata.key)

    async def prepare(self) -> None:
        for pod in self.pods:
            self._pod_seen(pod)
