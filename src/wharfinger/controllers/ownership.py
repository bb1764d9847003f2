"""Ownership by selector: a controller adopts orphans that its selector matches and releases objects that it no longer
matches.

As in upstream's controller_ref_manager.go, the owner is read from the server before the first adoption: an owner that is
being deleted must not adopt anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from wharfinger.api.errors import ApiError, Conflict, Invalid, NotFound
from wharfinger.api.object_meta import controller_of, controller_reference
from wharfinger.api.registry import Document, Resource
from wharfinger.api.requests import PatchType
from wharfinger.api.selectors import BadSelector, LabelSelector, Requirements
from wharfinger.api.views import ObjectMeta, view
from wharfinger.client.informer import Index, Informer
from wharfinger.client.interface import Client


class Owned(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


O = TypeVar("O", bound=Owned)  # noqa: E741 - the owned object
ORPHANS = "orphans"


def owner_index(informer: Informer[O]) -> Index[O]:
    """Objects by the uid of their controller; orphans by `(ORPHANS, namespace)`."""

    def keys(item: O) -> Iterable[Any]:
        controller = item.metadata.controller
        return (controller.uid,) if controller is not None else ((ORPHANS, item.metadata.namespace),)

    return informer.index("controller", keys)


def document_owner_index(informer: Informer[Document]) -> Index[Document]:
    """As `owner_index`, for an informer of documents."""

    def keys(document: Document) -> Iterable[Any]:
        controller = controller_of(document)
        return (controller["uid"] if controller else (ORPHANS, document["metadata"].get("namespace") or ""),)

    return informer.index("controller", keys)


def selector_of(workload: Document) -> Requirements | None:
    """The compiled `spec.selector`; None if it selects nothing: controllers treat an absent, empty or malformed selector
    so."""
    stated = (workload.get("spec") or {}).get("selector")
    if not stated:
        return None
    if not ("matchLabels" in stated or "matchExpressions" in stated):
        stated = {"matchLabels": stated}  # ReplicationController: a plain map
    selector = view(stated, LabelSelector)
    if not (selector.match_labels or selector.match_expressions):
        return None
    try:
        return selector.compile()
    except BadSelector:
        return None


async def claim(
    client: Client,
    *,
    owner: ObjectMeta,
    owner_resource: Resource,
    resource: Resource,
    candidates: Sequence[O],
    matches: Callable[[O], bool],
    finalizers: Sequence[str] = (),
) -> list[O]:
    """The candidates that belong to the owner, after adopting and releasing. The first error is raised at the end."""
    claimed: list[O] = []
    failure: ApiError | None = None
    rechecked = False
    for item in candidates:
        metadata = item.metadata
        controller = metadata.controller
        try:
            if controller is not None:
                if controller.uid != owner.uid:
                    continue
                if matches(item):
                    claimed.append(item)
                elif not owner.deletion_timestamp:
                    await _release(client, owner, resource, metadata, finalizers)
                continue
            if owner.deletion_timestamp or metadata.deletion_timestamp or not matches(item):
                continue
            if metadata.namespace != owner.namespace:
                continue
            if not rechecked:
                await _recheck(client, owner, owner_resource)
                rechecked = True
            await _adopt(client, owner, owner_resource, resource, metadata, finalizers)
            claimed.append(item)
        except NotFound:
            continue
        except ApiError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return claimed


async def _recheck(client: Client, owner: ObjectMeta, resource: Resource) -> None:
    fresh: Document = (await client.get(resource, owner.name, owner.namespace))["metadata"]
    if fresh["uid"] != owner.uid:
        raise Conflict(f"original {resource.kind} {owner.namespace}/{owner.name} is gone: got uid {fresh['uid']}")
    if fresh.get("deletionTimestamp"):
        raise Conflict(f"{owner.namespace}/{owner.name} has just been deleted at {fresh['deletionTimestamp']}")


async def _adopt(
    client: Client,
    owner: ObjectMeta,
    owner_resource: Resource,
    resource: Resource,
    metadata: ObjectMeta,
    finalizers: Sequence[str],
) -> None:
    change: Document = {"ownerReferences": [controller_reference(owner_resource, owner)], "uid": metadata.uid}
    if finalizers:
        change["finalizers"] = list(finalizers)
    await client.patch(resource, metadata.name, {"metadata": change}, metadata.namespace, type=PatchType.STRATEGIC)


async def _release(
    client: Client, owner: ObjectMeta, resource: Resource, metadata: ObjectMeta, finalizers: Sequence[str]
) -> None:
    change: Document = {"ownerReferences": [{"$patch": "delete", "uid": owner.uid}], "uid": metadata.uid}
    if finalizers:
        change["$deleteFromPrimitiveList/finalizers"] = list(finalizers)
    try:
        await client.patch(resource, metadata.name, {"metadata": change}, metadata.namespace, type=PatchType.STRATEGIC)
    except (NotFound, Invalid):
        return  # deleted, or another object has the name by now
