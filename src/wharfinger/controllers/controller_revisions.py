"""ControllerRevisions: the templates that a StatefulSet or DaemonSet has had, which tell old pods from new ones.

`data` of a revision is the patch that `kubectl rollout undo` applies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from wharfinger.api.errors import AlreadyExists, NotFound
from wharfinger.api.kinds.builtin import CONTROLLER_REVISIONS
from wharfinger.api.object_meta import controller_reference
from wharfinger.api.registry import Document, Resource
from wharfinger.api.selectors import Requirements, matches
from wharfinger.api.views import ControllerRevision, ObjectMeta, view
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.ownership import ORPHANS, claim, owner_index
from wharfinger.controllers.template_hashes import REVISION_HASH, normalized, template_hash


class RevisionHistory(msgspec.Struct, frozen=True):
    """All revisions of a workload, oldest first, and the one of its present template."""

    revisions: tuple[ControllerRevision, ...]
    update: ControllerRevision
    collisions: int

    def named(self, name: str) -> ControllerRevision | None:
        return next((each for each in self.revisions if each.metadata.name == name), None)


def template_of(revision: ControllerRevision) -> dict[str, Any]:
    template = dict((revision.data.get("spec") or {}).get("template") or {})
    template.pop("$patch", None)
    return template


def revision_hash(revision: ControllerRevision) -> str:
    return revision.metadata.labels.get(REVISION_HASH, "")


class ControllerRevisions:
    """The revisions of the workloads of one kind."""

    def __init__(self, context: ControllerContext, resource: Resource) -> None:
        self._client = context.client
        self._resource = resource
        self._by_owner = owner_index(context.informers.of(CONTROLLER_REVISIONS, ControllerRevision))

    async def sync(
        self,
        owner: ObjectMeta,
        template: dict[str, Any],
        selector: Requirements,
        collisions: int,
        *,
        hash_label: str = REVISION_HASH,
    ) -> RevisionHistory:
        """Finds or creates the revision of the template; after a rollback, the old revision becomes the newest again.

        `hash_label` is the label of a revision that has its hash. `collisions` changes the hash.
        """
        found = await claim(
            self._client,
            owner=owner,
            owner_resource=self._resource,
            resource=CONTROLLER_REVISIONS,
            candidates=self._by_owner.get(owner.uid) + self._by_owner.get((ORPHANS, owner.namespace)),
            matches=lambda each: matches(selector, each.metadata.labels),
        )
        ordered = sorted(found, key=lambda each: (each.revision, each.metadata.name))
        data = {"spec": {"template": {**template, "$patch": "replace"}}}
        wanted = normalized(data)
        equal = [each for each in ordered if normalized(each.data) == wanted]
        newest = ordered[-1].revision if ordered else 0
        if equal:
            update = equal[-1]
            if update is not ordered[-1]:
                document = await self._client.patch(
                    CONTROLLER_REVISIONS, update.metadata.name, {"revision": newest + 1}, owner.namespace
                )
                update = view(document, ControllerRevision)
            rest = [each for each in ordered if each.metadata.uid != update.metadata.uid]
            return RevisionHistory((*rest, update), update, collisions)
        while True:
            document = self._new_revision(owner, template, data, newest + 1, collisions, hash_label)
            created = await self._create(document, owner.namespace)
            if created is not None:
                return RevisionHistory((*ordered, created), created, collisions)
            collisions += 1

    def _new_revision(
        self,
        owner: ObjectMeta,
        template: dict[str, Any],
        data: Document,
        number: int,
        collisions: int,
        hash_label: str,
    ) -> Document:
        digest = template_hash(template, collisions)
        labels = (template.get("metadata") or {}).get("labels") or {}
        return {
            "apiVersion": CONTROLLER_REVISIONS.api_version,
            "kind": CONTROLLER_REVISIONS.kind,
            "metadata": {
                "name": f"{owner.name}-{digest}",
                "namespace": owner.namespace,
                "labels": {**labels, hash_label: digest},
                # `kubectl rollout history` shows the change cause from them.
                **({"annotations": owner.annotations} if owner.annotations else {}),
                "ownerReferences": [controller_reference(self._resource, owner)],
            },
            # Sorted as Go writes it: clients compare the bytes with those of the owner's template.
            "data": msgspec.json.decode(msgspec.json.encode(data, order="sorted")),
            "revision": number,
        }

    async def _create(self, document: Document, namespace: str) -> ControllerRevision | None:
        """None if another revision has the name."""
        try:
            created = await self._client.create(CONTROLLER_REVISIONS, document, namespace)
            return view(created, ControllerRevision)
        except AlreadyExists:
            name = document["metadata"]["name"]
            existing = await self._client.get(CONTROLLER_REVISIONS, name, namespace, view=ControllerRevision)
            return existing if normalized(existing.data) == normalized(document["data"]) else None

    async def truncate(self, history: RevisionHistory, live: Iterable[str], limit: int) -> None:
        """Deletes the oldest revisions beyond the limit that no pod has. `live` has the names or hashes in use."""
        used = set(live)
        idle = [
            each
            for each in history.revisions
            if each.metadata.name not in used and revision_hash(each) not in used and each is not history.update
        ]
        for each in idle[: max(0, len(idle) - limit)]:
            metadata = each.metadata
            try:
                await self._client.delete(CONTROLLER_REVISIONS, metadata.name, metadata.namespace, uid=metadata.uid)
            except NotFound:
                continue
