"""The client interface. Components take a `Client` and do not know where the API server runs.

Objects are read as documents, or decoded into a typed view where `view` names one. Writes are documents, patches,
bindings and evictions; a view is never written back. Every call becomes an `ApiRequest`, so an implementation or a
wrapper overrides `send`, and `stream` for watches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import Any, Generic, TypedDict, TypeVar, Unpack, overload

import msgspec

from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.registry import Document, Resource
from wharfinger.api.requests import ApiRequest, DeleteOptions, WriteVerbs

T = TypeVar("T")


class EventType(Enum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """One response to a list; `continue_token` is empty on the last page."""

    items: Sequence[T]
    resource_version: str
    continue_token: str = ""


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """`object` is None for bookmarks. `initial_events_end` marks the bookmark that ends the initial events of a
    watch-list."""

    type: EventType
    object: T | None
    resource_version: str
    initial_events_end: bool = False


class LocalStream(ABC, AsyncIterator[WatchEvent[T]]):
    """The events of a watch in the same process, which can be read without waiting."""

    @abstractmethod
    def ready(self, most: int) -> Sequence[WatchEvent[T]]:
        """The next events that there are already, at most so many; none if they have to be awaited one by one."""

    @abstractmethod
    async def aclose(self) -> None:
        """Ends the watch."""


class ListArguments(TypedDict, total=False):
    """The fields of `ApiRequest` that a list may set."""

    label_selector: str
    field_selector: str
    limit: int
    continue_token: str
    resource_version: str
    version_match: str


class Client(WriteVerbs[Document]):
    """All calls raise the exceptions of `wharfinger.api.errors`; an unreachable server is ServiceUnavailable."""

    @abstractmethod
    async def send(self, request: ApiRequest[T]) -> T:
        """Sends any request but a watch and returns the decoded response."""

    @abstractmethod
    def stream(self, request: ApiRequest[WatchEvent[T]]) -> AsyncIterator[WatchEvent[T]]:
        """Sends a watch and yields its events."""

    @property
    def at_once(self) -> bool:
        """Whether requests are answered without waiting for anything, so that sending many of them together gains nothing."""
        return False

    async def kubernetes_version(self) -> KubernetesVersion:
        """The version whose rules apply on the server. A store in this process has no other than the reference."""
        return REFERENCE

    @abstractmethod
    async def close(self) -> None: ...

    @overload
    async def get(self, resource: Resource, name: str, namespace: str = "", *, subresource: str = "") -> Document: ...
    @overload
    async def get(
        self, resource: Resource, name: str, namespace: str = "", *, view: type[T], subresource: str = ""
    ) -> T: ...
    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        view: type[Any] | None = None,
        subresource: str = "",
    ) -> Any:
        request: ApiRequest[Any] = ApiRequest("get", resource, namespace, name, subresource, view=view)
        return await self.send(request)

    @overload
    async def list(
        self, resource: Resource, namespace: str = "", **options: Unpack[ListArguments]
    ) -> ListPage[Document]: ...
    @overload
    async def list(
        self, resource: Resource, namespace: str = "", *, view: type[T], **options: Unpack[ListArguments]
    ) -> ListPage[T]: ...
    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        view: type[Any] | None = None,
        **options: Unpack[ListArguments],
    ) -> ListPage[Any]:
        request: ApiRequest[ListPage[Any]] = ApiRequest("list", resource, namespace, view=view, **options)
        return await self.send(request)

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
        """Yields the events after `resource_version`, including bookmarks, until the server ends the watch.

        Raises Expired when the version is too old.
        """
        request: ApiRequest[WatchEvent[T]] = ApiRequest(
            "watch",
            resource,
            namespace,
            view=view,
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            timeout=timeout,
        )
        return self.stream(request)

    async def delete_collection(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        propagation: str = "",
    ) -> None:
        request: ApiRequest[object] = ApiRequest(
            "deletecollection",
            resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            delete_options=DeleteOptions(propagation=propagation),
        )
        await self.send(request)
