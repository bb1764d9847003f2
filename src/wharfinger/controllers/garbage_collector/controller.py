"""The garbage collector: deletes objects whose owners were deleted, in the background or foreground, or orphans them.

It watches the metadata of all deletable resources. An owner that is missing from the graph is looked up on the server before
anything is deleted, so that a stale graph never causes a deletion.
"""

from __future__ import annotations

import asyncio

import msgspec

from wharfinger.api.errors import ApiError, Conflict, Invalid, NotFound
from wharfinger.api.finalizers import FOREGROUND, ORPHAN
from wharfinger.api.object_meta import reference_document
from wharfinger.api.registry import Resource
from wharfinger.api.requests import PatchType
from wharfinger.api.views import Metadata, OwnerReference
from wharfinger.client.informer import Informer, InformerSet
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.controllers.deletable_resources import DeletableResources
from wharfinger.controllers.garbage_collector.graph import Entry, Graph


class GarbageCollector(ContextController[str]):
    """Keys are uids."""

    name = "garbagecollector"
    workers = 8

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.graph = Graph()
        self.resources = DeletableResources(context)
        self._informers = InformerSet(context.client, rng=context.random)
        self._by_kind: dict[tuple[str, str], Resource] = {}
        self._ready = False

    async def run(self) -> None:
        """Watches all resources. It does not wait for resources that the server does not serve."""
        for resource in self.resources.all():
            self._follow(resource)
        self.resources.on_change(self._resource_changed)
        self._informers.start()
        try:
            for informer in self._informers:
                await _synced_or_refused(informer)
            self._ready = True
            for entry in self.graph.entries():
                self._consider(entry)
            await super().run()
        finally:
            await self._informers.stop()

    async def reconcile(self, key: str) -> None:
        entry = self.graph.get(key)
        if entry is None:
            return
        if entry.orphans_dependents:
            await self._orphan_dependents(entry)
        elif entry.waits_for_dependents:
            await self._delete_dependents(entry)
        elif not entry.deleting:
            await self._collect(entry)

    # Dependents

    async def _collect(self, entry: Entry) -> None:
        """Deletes an object all of whose owners are gone; otherwise removes dangling owner references only."""
        states: dict[str, list[OwnerReference]] = {"solid": [], "dangling": [], "waiting": []}
        for owner in entry.owners:
            states[await self._owner_state(entry, owner)].append(owner)
        solid, dangling, waiting = states["solid"], states["dangling"], states["waiting"]
        if solid:
            if dangling or waiting:
                await self._drop_owners(entry, [*dangling, *waiting])
        elif waiting and self.graph.dependents(entry.uid):
            # The owner waits for this object, which has dependents of its own: they are deleted first. If one of them
            # waits as well, they may wait for each other in a circle, which must not block the owner.
            if any(each.waits_for_dependents for each in self.graph.dependents(entry.uid)):
                await self._unblock_owners(entry)
            await self._delete(entry, "Foreground")
        elif waiting or dangling:
            await self._delete(entry, _policy(entry))

    async def _owner_state(self, entry: Entry, owner: OwnerReference) -> str:
        """`solid`, `dangling`, or `waiting` for its dependents (foreground deletion)."""
        known = self.graph.get(owner.uid)
        if known is not None and known.object.metadata.namespace in ("", entry.object.metadata.namespace):
            return "waiting" if known.waits_for_dependents else "solid"
        if owner.uid in self.context.unseen_owners:
            return "solid"
        group = owner.api_version.rpartition("/")[0]
        resource = self._by_kind.get((group, owner.kind))
        if resource is None:
            return "solid"  # unknown kind: nothing can be concluded
        if resource.namespaced and not entry.resource.namespaced:
            return "solid"  # invalid: a namespaced owner of a cluster-scoped object. Kubernetes does not collect it
        namespace = entry.object.metadata.namespace if resource.namespaced else ""
        try:
            live = await self.client.get(resource, owner.name, namespace, view=Metadata)
        except NotFound:
            return "dangling"
        if live.metadata.uid != owner.uid:
            return "dangling"
        waits = live.metadata.deletion_timestamp and FOREGROUND in live.metadata.finalizers
        return "waiting" if waits else "solid"

    async def _delete(self, entry: Entry, policy: str) -> None:
        metadata = entry.object.metadata
        try:
            await self.client.delete(
                entry.resource,
                metadata.name,
                metadata.namespace,
                propagation=policy,
                uid=metadata.uid,
                resource_version=metadata.resource_version,
            )
        except NotFound:
            return
        except Conflict:
            # Changed in the meantime: it may have got an owner. The object on the server decides.
            live = await self._live(entry)
            if live is not None and live.metadata.uid == metadata.uid:
                if live.metadata.owner_references == metadata.owner_references:
                    await self._delete_by_uid(entry, policy)
                else:
                    raise

    async def _delete_by_uid(self, entry: Entry, policy: str) -> None:
        metadata = entry.object.metadata
        try:
            await self.client.delete(
                entry.resource, metadata.name, metadata.namespace, propagation=policy, uid=metadata.uid
            )
        except NotFound:
            return

    async def _live(self, entry: Entry) -> Metadata | None:
        metadata = entry.object.metadata
        try:
            return await self.client.get(entry.resource, metadata.name, metadata.namespace, view=Metadata)
        except NotFound:
            return None

    async def _drop_owners(self, entry: Entry, owners: list[OwnerReference]) -> None:
        gone = {owner.uid for owner in owners}
        await self._write_owners(entry, [owner for owner in entry.owners if owner.uid not in gone])

    async def _unblock_owners(self, entry: Entry) -> None:
        if any(owner.block_owner_deletion for owner in entry.owners):
            await self._write_owners(
                entry, [msgspec.structs.replace(owner, block_owner_deletion=False) for owner in entry.owners]
            )

    async def _write_owners(self, entry: Entry, owners: list[OwnerReference]) -> None:
        metadata = entry.object.metadata
        patch = {
            "metadata": {
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
                "ownerReferences": [reference_document(owner) for owner in owners] or None,
            }
        }
        try:
            await self.client.patch(entry.resource, metadata.name, patch, metadata.namespace, type=PatchType.MERGE)
        except (NotFound, Invalid):
            return

    # Owners

    async def _delete_dependents(self, entry: Entry) -> None:
        """Foreground deletion: deletes the dependents, and removes the finalizer once none blocks."""
        dependents = self.graph.dependents(entry.uid)
        blocking = [each for each in dependents if each.blocks(entry.uid)]
        for each in dependents:
            if not each.deleting:
                self.queue.add(each.uid)
        if not blocking:
            await self._drop_finalizer(entry, FOREGROUND)

    async def _orphan_dependents(self, entry: Entry) -> None:
        failure: ApiError | None = None
        for each in self.graph.dependents(entry.uid):
            try:
                await self._write_owners(each, [owner for owner in each.owners if owner.uid != entry.uid])
            except ApiError as error:
                failure = error
        if failure is not None:
            raise failure
        await self._drop_finalizer(entry, ORPHAN)

    async def _drop_finalizer(self, entry: Entry, finalizer: str) -> None:
        metadata = entry.object.metadata
        left = [each for each in metadata.finalizers if each != finalizer]
        patch = {
            "metadata": {
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
                "finalizers": left or None,
            }
        }
        try:
            await self.client.patch(entry.resource, metadata.name, patch, metadata.namespace)
        except NotFound:
            return

    # Informer events

    def _follow(self, resource: Resource) -> None:
        self._by_kind[resource.group, resource.kind] = resource
        informer = self._informers.of(resource, Metadata)
        informer.add_handler(
            lambda item: self._seen(resource, item), lambda old, new: self._seen(resource, new), self._gone
        )

    def _resource_changed(self, resource: Resource, present: bool) -> None:
        if present:
            self._follow(resource)
            return
        self._by_kind.pop((resource.group, resource.kind), None)
        self._informers.drop(self._informers.of(resource, Metadata))
        for entry in self.graph.entries():
            if entry.resource == resource:  # it went with its definition, and the watch ended before it said so
                self._gone(entry.object)

    def _seen(self, resource: Resource, item: Metadata) -> None:
        before, entry = self.graph.put(resource, item)
        if not self._ready:
            return
        if before is not None and before.owners != entry.owners:
            self._wake_waiting(before)
            if entry.owners:
                self.queue.add(entry.uid)
        self._consider(entry)

    def _consider(self, entry: Entry) -> None:
        if entry.orphans_dependents or entry.waits_for_dependents:
            self.queue.add(entry.uid)
        elif not entry.deleting:
            for owner in entry.owners:
                known = self.graph.get(owner.uid)
                if known is None or known.waits_for_dependents:
                    self.queue.add(entry.uid)

    def _gone(self, item: Metadata) -> None:
        entry = self.graph.remove(item.metadata.uid)
        if entry is None or not self._ready:
            return
        for dependent in self.graph.dependents(entry.uid):
            self.queue.add(dependent.uid)
        self._wake_waiting(entry)

    def _wake_waiting(self, entry: Entry) -> None:
        """Enqueues owners that wait for their dependents, of which there is one less."""
        for owner in entry.owners:
            known = self.graph.get(owner.uid)
            if known is not None and known.waits_for_dependents:
                self.queue.add(owner.uid)


def _policy(entry: Entry) -> str:
    """The propagation policy that the finalizers of the object require."""
    finalizers = entry.object.metadata.finalizers
    return "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"


async def _synced_or_refused(informer: Informer[Metadata]) -> None:
    while not informer.synced and informer.last_error is None:
        waiting = asyncio.ensure_future(informer.wait_synced())
        await asyncio.wait([waiting], timeout=0.1)
        waiting.cancel()
