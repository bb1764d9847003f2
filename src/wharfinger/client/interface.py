"""The client interface. Components take a `Client` and know nothing of where the API server is.

Objects are read as documents, or straight into a typed view where `view` names one. Writes are documents, patches,
bindings and evictions; a view is never written back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, overload

from wharfinger.api.registry import Document, Resource

T = TypeVar("T")


class PatchType(Enum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class EventType(Enum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One answer to a list: `continue_token` is empty on the last page."""

    items: Sequence[T]
    resource_version: str
    continue_token: str = ""


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """`object` is None for bookmarks. `initial_events_end` marks the bookmark that closes a watch-list's first part."""

    type: EventType
    object: T | None
    resource_version: str
    initial_events_end: bool = False


class Client(Protocol):
    """All calls raise the exceptions of `wharfinger.api.errors`; a server that cannot be reached is ServiceUnavailable."""

    @overload
    async def get(self, resource: Resource, name: str, namespace: str = "", *, subresource: str = "") -> Document: ...
    @overload
    async def get(
        self, resource: Resource, name: str, namespace: str = "", *, view: type[T], subresource: str = ""
    ) -> T: ...

    @overload
    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Page[Document]: ...
    @overload
    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        view: type[T],
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Page[T]: ...

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        view: type[T],
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout: float | None = None,
    ) -> AsyncIterator[WatchEvent[T]]:
        """Events after `resource_version`, bookmarks included; ends when the server closes. Expired when it is too old."""
        ...

    async def create(
        self,
        resource: Resource,
        document: Document,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Document:
        """Creates an object, or posts to a subresource of `name` (binding, eviction, token)."""
        ...

    async def update(
        self,
        resource: Resource,
        document: Document,
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Document: ...

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
    ) -> Document: ...

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
    ) -> Document: ...

    async def delete_collection(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> None: ...

    async def close(self) -> None: ...
