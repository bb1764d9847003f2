"""The namespace controller: deletes the contents of a terminating namespace, pods first, and then finalizes it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from wharfinger.api.conditions import new_condition, set_condition
from wharfinger.api.errors import ApiError, Conflict, MethodNotAllowed, NotFound
from wharfinger.api.kinds.builtin import NAMESPACES, PODS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.views import Metadata
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.controllers.deletable_resources import DeletableResources
from wharfinger.controllers.status_patches import patch_status

FINALIZER = "kubernetes"
FIRST_WAIT, MAX_WAIT = 1.0, 32.0  # seconds


class Remains(msgspec.Struct):
    """What is left in a namespace: number of objects by resource, number of objects by finalizer, and failures."""

    objects: dict[str, int] = msgspec.field(default_factory=dict)
    finalizers: dict[str, int] = msgspec.field(default_factory=dict)
    failures: list[str] = msgspec.field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not self.objects and not self.failures


class NamespaceController(ContextController[str]):
    name = "namespace"
    workers = 4

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.resources = DeletableResources(context)
        self.namespaces = context.documents(NAMESPACES)
        self._waits: dict[str, float] = {}
        self.namespaces.add_handler(self._seen, lambda old, new: self._seen(new))

    async def reconcile(self, key: str) -> None:
        namespace = self.namespaces.get(key)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return
        if FINALIZER not in ((namespace.get("spec") or {}).get("finalizers") or ()):
            return
        remains = await self._empty(key)
        await self._report(namespace, remains)
        if remains.empty:
            self._waits.pop(key, None)
            await self._release(namespace)
            return
        wait = self._waits.get(key, FIRST_WAIT)
        self._waits[key] = min(MAX_WAIT, wait * 2)
        # Finalizers that take long belong to others: a simulation does not wait for them.
        self.queue.add_after(key, wait, background=wait >= MAX_WAIT)

    async def _empty(self, name: str) -> Remains:
        """Deletes the contents. Only pods while there are any: what they use is deleted after them."""
        remains = Remains()
        await self._delete_all(PODS, name, remains)
        if remains.objects:
            return remains
        for resource in self.resources.all():
            if resource.namespaced and resource != PODS:
                await self._delete_all(resource, name, remains)
        return remains

    async def _delete_all(self, resource: Resource, name: str, remains: Remains) -> None:
        try:
            if not await self._left(resource, name):
                return
            await self.client.delete_collection(resource, name, propagation="Background")
            left = await self._left(resource, name)
        except (NotFound, MethodNotAllowed):
            return  # not served
        except ApiError as error:
            remains.failures.append(f"{resource.group_plural}: {error}")
            return
        if left:
            remains.objects[f"{resource.plural}.{resource.group}"] = len(left)
        for item in left:
            for finalizer in item.metadata.finalizers:
                remains.finalizers[finalizer] = remains.finalizers.get(finalizer, 0) + 1

    async def _left(self, resource: Resource, name: str) -> Sequence[Metadata]:
        return (await self.client.list(resource, name, view=Metadata)).items

    async def _report(self, namespace: Document, remains: Remains) -> None:
        conditions: list[Document] = (namespace.get("status") or {}).get("conditions") or []
        for verdict in conditions_for(remains):
            conditions = set_condition(conditions, new_condition(*verdict, self.context.now()))
        try:
            await patch_status(self.client, NAMESPACES, namespace, {"conditions": conditions})
        except NotFound:
            return

    async def _release(self, namespace: Document) -> None:
        name = namespace["metadata"]["name"]
        try:
            fresh = await self.client.get(NAMESPACES, name)
            if fresh["metadata"]["uid"] != namespace["metadata"]["uid"]:
                return
            finalizers = [each for each in fresh["spec"].get("finalizers") or () if each != FINALIZER]
            fresh["spec"]["finalizers"] = finalizers
            await self.client.update(NAMESPACES, fresh, subresource="finalize")
        except NotFound:
            return
        except Conflict:
            self.queue.add(name)

    def _seen(self, namespace: Document) -> None:
        if namespace["metadata"].get("deletionTimestamp"):
            self.queue.add(namespace["metadata"]["name"])


def conditions_for(remains: Remains) -> list[tuple[str, str, str, str]]:
    """Type, status, reason and message of each condition of a terminating namespace."""
    counts = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(remains.objects.items()))
    held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(remains.finalizers.items()))
    failures = ", ".join(sorted(remains.failures))
    return [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            "True",
            "ContentDeletionFailed",
            f"Failed to delete all resource types, {len(remains.failures)} remaining: {failures}",
        )
        if failures
        else (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain", f"Some resources are remaining: {counts}")
        if counts
        else ("NamespaceContentRemaining", "False", "ContentRemoved", "All content successfully removed"),
        (
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {held}",
        )
        if held
        else (
            "NamespaceFinalizersRemaining",
            "False",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    ]
