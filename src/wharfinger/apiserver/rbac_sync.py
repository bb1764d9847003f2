"""Keeps the RBAC index up to date with the store, and the rules of aggregated cluster roles with their sources."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from wharfinger.admission.rbac import RbacIndex, aggregated_rules
from wharfinger.api.errors import ApiError
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from wharfinger.api.registry import Document, Resource
from wharfinger.api.views import view
from wharfinger.api.views.rbac import ClusterRole, PolicyRule
from wharfinger.apiserver.kept_objects import KeptObjects
from wharfinger.client.tasks import cancel
from wharfinger.store.objects import DELETED
from wharfinger.store.store import Store

_KINDS = (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)


class RbacSync:
    """`start` fills the index before the first request; watches keep it up to date."""

    def __init__(self, store: Store) -> None:
        self.index = RbacIndex()
        self._store = store
        self._tasks: list[asyncio.Task[None]] = []
        self._aggregated = AggregatedRoles(store)

    async def start(self) -> None:
        await self._aggregated.start()
        for resource in _KINDS:
            listing = await self._store.list(resource)
            for item in listing.items:
                self.index.upsert(item.document())
            self._tasks.append(asyncio.create_task(self._watch(resource, listing.version)))

    async def stop(self) -> None:
        await cancel(self._tasks)
        await self._aggregated.stop()

    async def _watch(self, resource: Resource, version: int) -> None:
        known: dict[ObjectKey, Document] = {}
        while True:
            try:
                with contextlib.closing(self._store.watch(resource, after=version)) as watch:
                    async for event in watch:
                        version = event.version
                        if event.object is None:
                            continue
                        if event.type == DELETED:
                            self.index.remove(event.object.document())
                        else:
                            self.index.upsert(event.object.document())
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


class AggregatedRoles(KeptObjects):
    """The rules of cluster roles with an aggregation rule."""

    manager = "clusterrole-aggregation"
    watched = (CLUSTER_ROLES,)

    async def keep(self) -> None:
        """Repeats until nothing changes, because aggregated roles are sources of others (view of edit, edit of admin)."""
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
                await self.update(CLUSTER_ROLES, {**documents[name], "rules": [_rule(rule) for rule in rules]})
                changed = True
            if not changed:
                return


def _rule(rule: PolicyRule) -> Document:
    made: Document = msgspec.to_builtins(rule)
    return {key: list(value) for key, value in made.items() if value}
