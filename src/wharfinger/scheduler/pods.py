"""Pods as a `Schedulable`: bound through `pods/binding`, reported by the condition PodScheduled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from wharfinger.api.errors import InternalError, ServiceUnavailable
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.scheduler.instructions import Instruction, PatchPodStatus
from wharfinger.scheduler.schedulable import Schedulable

_RETRY_DELAYS = (0.01, 0.05, 0.25)  # seconds; after transient errors, as client-go's DefaultBackoff


class PodItems(Schedulable):
    resource = PODS
    view = Pod

    def current(self, item: Pod) -> Pod | None:
        found = self._of_that_name(item)
        return found if found is not None and found.metadata.uid == item.metadata.uid else None

    def successor(self, item: Pod) -> Pod | None:
        found = self._of_that_name(item)
        if found is None or found.metadata.uid == item.metadata.uid or found.spec.node_name or found.terminal:
            return None
        return found

    def _of_that_name(self, item: Pod) -> Pod | None:
        assert self.context.objects is not None
        found: Pod | None = self.context.objects.get(item.metadata.name, item.metadata.namespace)
        return found

    def bound(self, item: Pod) -> bool:
        found = self.current(item)
        return found is not None and bool(found.spec.node_name)

    def title(self, item: Pod) -> str:
        return f"{item.metadata.namespace}/{item.metadata.name}"

    def described(self, item: Pod) -> Pod:
        return item

    def unschedulable(self, item: Pod, reason: str, message: str, nominated_node: str | None) -> Iterable[Instruction]:
        return (PatchPodStatus(item, reason, message, nominated_node),)

    async def bind(self, item: Pod, node: str, annotations: Mapping[str, str]) -> None:
        """The API server copies the annotations of the Binding onto the pod in the same write."""
        name, namespace = item.metadata.name, item.metadata.namespace
        metadata: Document = {"name": name, "namespace": namespace, "uid": item.metadata.uid}
        if annotations:
            metadata["annotations"] = dict(annotations)
        document = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        delays = _RETRY_DELAYS if self.context.engine.tables.kubernetes >= KubernetesVersion.V1_37 else ()
        for delay in delays:
            try:
                await self.context.client.create(PODS, document, namespace, name=name, subresource="binding")
                return
            except (InternalError, ServiceUnavailable):
                await asyncio.sleep(delay)
        await self.context.client.create(PODS, document, namespace, name=name, subresource="binding")

    async def is_on(self, item: Pod, node: str) -> bool:
        found = await self.context.client.get(PODS, item.metadata.name, item.metadata.namespace, view=Pod)
        return found.metadata.uid == item.metadata.uid and found.spec.node_name == node
