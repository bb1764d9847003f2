"""Keeps the RBAC index up to date with the store, and the rules of aggregated cluster roles with their sources."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec

from wharfinger.admission.rbac import RbacIndex, aggregated_rules
from wharfinger.api.errors import ApiError, Conflict, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from wharfinger.api.registry import Document, Resource
from wharfinger.api.views import view
from wharfinger.api.views.rbac import ClusterRole, PolicyRule
from wharfinger.store.objects import DELETED
from wharfinger.store.store import Store

log = logging.getLogger(__name__)

_KINDS = (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)


class RbacSync:
    """`start` fills the index before the first request; watches keep it up to date."""

    def __init__(self, store: Store) -> None:
        self.index = RbacIndex()
        self._store = store
        self._tasks: list[asyncio.Task[None]] = []
        self._roles_changed = asyncio.Event()

    async def start(self) -> None:
        await self.aggregate()
        for resource in _KINDS:
            listing = await self._store.list(resource)
            for item in listing.items:
                self.index.upsert(item.document())
            self._tasks.append(asyncio.create_task(self._watch(resource, listing.version)))
        self._tasks.append(asyncio.create_task(self._keep_aggregated()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, resource: Resource, version: int) -> None:
        known: dict[ObjectKey, Document] = {}
        while True:
            watch = None
            try:
                watch = self._store.watch(resource, after=version)
                async for event in watch:
                    version = event.version
                    if event.object is None:
                        continue
                    if event.type == DELETED:
                        self.index.remove(event.object.document())
                    else:
                        self.index.upsert(event.object.document())
                    if resource is CLUSTER_ROLES:
                        self._roles_changed.set()
                return
            except ApiError:  # the watch fell behind: relist
                listing = await self._store.list(resource)
                present = {(item.namespace, item.name): item.document() for item in listing.items}
                for key, document in known.items():
                    if key not in present:
                        self.index.remove(document)
                for document in present.values():
                    self.index.upsert(document)
                known, version = present, listing.version
                self._roles_changed.set()
            finally:
                if watch is not None:
                    watch.close()

    async def _keep_aggregated(self) -> None:
        while True:
            await self._roles_changed.wait()
            self._roles_changed.clear()
            try:
                await self.aggregate()
            except ApiError as error:
                log.warning("cluster roles could not be aggregated: %s", error)

    async def aggregate(self) -> None:
        """Writes the rules of every cluster role with an aggregation rule. Repeats until nothing changes, because aggregated
        roles are sources of others (view of edit, edit of admin)."""
        for _ in range(10):
            documents = {item.name: item.document() for item in self._store.scan(CLUSTER_ROLES)}
            roles = {name: view(document, ClusterRole) for name, document in documents.items()}
            changed = False
            for name, role in roles.items():
                if role.aggregation_rule is None:
                    continue
                rules = aggregated_rules(role, roles.values())
                if rules == role.rules:
                    continue
                document = documents[name]
                document["rules"] = [_rule(rule) for rule in rules]
                with contextlib.suppress(Conflict, NotFound):  # retried in the next round or at the next event
                    await self._store.update(
                        CLUSTER_ROLES, document, name=name, field_manager="clusterrole-aggregation"
                    )
                changed = True
            if not changed:
                return


def _rule(rule: PolicyRule) -> Document:
    made: Document = msgspec.to_builtins(rule)
    return {key: list(value) for key, value in made.items() if value}
