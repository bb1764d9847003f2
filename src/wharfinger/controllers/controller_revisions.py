"""ControllerRevisions: the templates a stateful or daemon set has had, so that it can tell old pods from new ones.

`data` is the patch that `kubectl rollout undo` applies to go back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wharfinger.api.errors import AlreadyExists, NotFound
from wharfinger.api.kinds.builtin import CONTROLLER_REVISIONS
from wharfinger.api.object_meta import controller_reference
from wharfinger.api.registry import Document, Resource
from wharfinger.api.views import ControllerRevision, ObjectMeta, view
from wharfinger.client.informer import Index
from wharfinger.client.interface import Client
from wharfinger.controllers.ownership import ORPHANS, claim
from wharfinger.controllers.template_hashes import REVISION_HASH, normal, template_hash


@dataclass(frozen=True, slots=True)
class RevisionHistory:
    """All revisions in order, and the one of the present template."""

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


async def sync_history(
    client: Client,
    revisions: Index[ControllerRevision],
    *,
    owner: ObjectMeta,
    resource: Resource,
    template: dict[str, Any],
    labels: dict[str, str],
    matches: Any,
    collisions: int,
    hash_label: str = REVISION_HASH,
) -> RevisionHistory:
    """Finds the revision of the template among the owner's, or makes it; an old one that is wanted again becomes newest.
    `hash_label` is where a revision carries its hash."""
    found = await claim(
        client,
        owner=owner,
        owner_resource=resource,
        resource=CONTROLLER_REVISIONS,
        candidates=revisions.get(owner.uid) + revisions.get((ORPHANS, owner.namespace)),
        matches=lambda each: bool(matches(each.metadata.labels)),
    )
    ordered = sorted(found, key=lambda each: (each.revision, each.metadata.name))
    data = {"spec": {"template": {**template, "$patch": "replace"}}}
    wanted = normal(data)
    equal = [each for each in ordered if normal(each.data) == wanted]
    newest = ordered[-1].revision if ordered else 0
    if equal:
        update = equal[-1]
        if update.revision != newest or update is not ordered[-1]:
            document = await client.patch(
                CONTROLLER_REVISIONS, update.metadata.name, {"revision": newest + 1}, owner.namespace
            )
            update = view(document, ControllerRevision)
        rest = [each for each in ordered if each.metadata.uid != update.metadata.uid]
        return RevisionHistory((*rest, update), update, collisions)
    update, collisions = await _create(
        client, owner, resource, data, template, labels, newest + 1, collisions, hash_label
    )
    return RevisionHistory((*ordered, update), update, collisions)


async def _create(
    client: Client,
    owner: ObjectMeta,
    resource: Resource,
    data: Document,
    template: dict[str, Any],
    labels: dict[str, str],
    number: int,
    collisions: int,
    hash_label: str,
) -> tuple[ControllerRevision, int]:
    while True:
        digest = template_hash(template, collisions)
        document: Document = {
            "apiVersion": CONTROLLER_REVISIONS.api_version,
            "kind": CONTROLLER_REVISIONS.kind,
            "metadata": {
                "name": f"{owner.name}-{digest}",
                "namespace": owner.namespace,
                "labels": {**labels, hash_label: digest},
                # `kubectl rollout history` shows why a revision was made from them.
                **({"annotations": owner.annotations} if owner.annotations else {}),
                "ownerReferences": [controller_reference(resource, owner)],
            },
            "data": data,
            "revision": number,
        }
        try:
            return view(
                await client.create(CONTROLLER_REVISIONS, document, owner.namespace), ControllerRevision
            ), collisions
        except AlreadyExists:
            existing = await client.get(
                CONTROLLER_REVISIONS, document["metadata"]["name"], owner.namespace, view=ControllerRevision
            )
            if normal(existing.data) == normal(data):
                return existing, collisions
            collisions += 1


async def truncate(client: Client, history: RevisionHistory, live: Iterable[str], limit: int) -> None:
    """Deletes the oldest revisions that no pod has, beyond the limit. `live` are names or hashes in use."""
    used = set(live)
    idle: Sequence[ControllerRevision] = [
        each
        for each in history.revisions
        if each.metadata.name not in used and revision_hash(each) not in used and each is not history.update
    ]
    for each in idle[: max(0, len(idle) - limit)]:
        try:
            await client.delete(
                CONTROLLER_REVISIONS, each.metadata.name, each.metadata.namespace, uid=each.metadata.uid
            )
        except NotFound:
            continue
