"""A request to an API server as a value, and the write verbs that build one.

Clients send requests over HTTP or to a store in the same process, and the API server passes them to its store. Whoever
wants to inspect, refuse or change requests overrides `send`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack

import msgspec

from wharfinger.api.registry import Document, Resource

Answer = TypeVar("Answer")
Written_co = TypeVar("Written_co", covariant=True)


Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
"""The verbs of the Kubernetes API, as RBAC rules name them."""

READS = frozenset(("get", "list", "watch"))


class PatchType(Enum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class DeleteOptions(msgspec.Struct, frozen=True, gc=False):
    grace_period: int | None = None
    propagation: str = ""  # Orphan, Background or Foreground; empty: whatever the object's finalizers say
    uid: str = ""  # precondition
    resource_version: str = ""  # precondition


NO_DELETE_OPTIONS = DeleteOptions()


class ApiRequest(msgspec.Struct, Generic[Answer], frozen=True, gc=False):
    """One request; `Answer` is the type of the response that `Client.send` returns for it."""

    verb: Verb
    resource: Resource
    namespace: str = ""  # empty: all namespaces, or that of the document
    name: str = ""  # empty for collections; on create, the object whose subresource is posted to
    subresource: str = ""
    body: Any = None  # the document or the patch

    patch_type: PatchType = PatchType.MERGE
    field_manager: str = ""
    force: bool = False  # server-side apply takes over fields owned by other managers
    dry_run: bool = False
    delete_options: DeleteOptions = NO_DELETE_OPTIONS
    brief: bool = False  # of the answer to a write, at most name, namespace and uid are read

    view: type[Any] | None = None  # the type that objects are decoded into; None: documents
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""  # of a list; for a watch, the version after which it starts
    version_match: str = ""  # of a list: Exact or NotOlderThan
    timeout: float | None = None  # seconds a watch lasts; None: the client chooses


class WriteArguments(TypedDict, total=False):
    """The fields of `ApiRequest` that a create or an update may set."""

    name: str
    subresource: str
    field_manager: str
    dry_run: bool
    brief: bool


class WriteVerbs(ABC, Generic[Written_co]):
    """The write verbs of clients and of the store, which differ only in what `send` returns."""

    @abstractmethod
    async def send(self, request: ApiRequest[Document]) -> Written_co: ...

    async def create(
        self, resource: Resource, document: Document, namespace: str = "", **options: Unpack[WriteArguments]
    ) -> Written_co:
        """Creates an object, or posts to a subresource of `name` (binding, eviction, token)."""
        return await self.send(ApiRequest("create", resource, namespace, body=document, **options))

    async def update(
        self, resource: Resource, document: Document, namespace: str = "", **options: Unpack[WriteArguments]
    ) -> Written_co:
        """Replaces an object, or the part of it that a subresource covers. `name` defaults to the document's."""
        return await self.send(ApiRequest("update", resource, namespace, body=document, **options))

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
        brief: bool = False,
    ) -> Written_co:
        return await self.send(
            ApiRequest(
                "patch",
                resource,
                namespace,
                name,
                subresource,
                patch,
                type,
                field_manager,
                force,
                dry_run,
                NO_DELETE_OPTIONS,
                brief,
            )
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace_period: int | None = None,
        propagation: str = "",
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> Written_co:
        """Deletes an object, or starts its deletion; `uid` and `resource_version` are preconditions."""
        options = DeleteOptions(grace_period, propagation, uid, resource_version)
        return await self.send(ApiRequest("delete", resource, namespace, name, delete_options=options, dry_run=dry_run))
