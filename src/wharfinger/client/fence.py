"""Fencing: the check that must hold at the moment a write leaves, however long it waited for its turn or its retry.

`fenced` wraps a client; transports, which may wait for a connection, call `check_fence` right before the bytes go out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from wharfinger.api.registry import Document, Resource
from wharfinger.client.interface import Client, PatchType, WatchEvent

T = TypeVar("T")

_FENCE: ContextVar[Callable[[], None] | None] = ContextVar("wharfinger_fence", default=None)


def check_fence() -> None:
    """Raises what the fence of the current call raises, if it may not be sent any more."""
    check = _FENCE.get()
    if check is not None:
        check()


class FencedClient:
    """A client whose writes are refused once `check` raises. Reads pass."""

    def __init__(self, client: Client, check: Callable[[], None]) -> None:
        self._client = client
        self._check = check

    async def _guard(self, write: Callable[[], Awaitable[T]]) -> T:
        self._check()
        token = _FENCE.set(self._check)
        try:
            return await write()
        finally:
            _FENCE.reset(token)

    async def get(self, resource: Resource, name: str, namespace: str = "", **options: Any) -> Any:
        return await self._client.get(resource, name, namespace, **options)

    async def list(self, resource: Resource, namespace: str = "", **options: Any) -> Any:
        return await self._client.list(resource, namespace, **options)

    def watch(self, resource: Resource, namespace: str = "", **options: Any) -> AsyncIterator[WatchEvent[Any]]:
        return self._client.watch(resource, namespace, **options)

    async def create(self, resource: Resource, document: Document, namespace: str = "", **options: Any) -> Document:
        return await self._guard(lambda: self._client.create(resource, document, namespace, **options))

    async def update(self, resource: Resource, document: Document, namespace: str = "", **options: Any) -> Document:
        return await self._guard(lambda: self._client.update(resource, document, namespace, **options))

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        type: PatchType = PatchType.MERGE,
        **options: Any,
    ) -> Document:
        return await self._guard(lambda: self._client.patch(resource, name, patch, namespace, type=type, **options))

    async def delete(self, resource: Resource, name: str, namespace: str = "", **options: Any) -> Document:
        return await self._guard(lambda: self._client.delete(resource, name, namespace, **options))

    async def delete_collection(self, resource: Resource, namespace: str = "", **options: Any) -> None:
        await self._guard(lambda: self._client.delete_collection(resource, namespace, **options))

    async def close(self) -> None:
        await self._client.close()


def fenced(client: Client, check: Callable[[], None]) -> Client:
    """`client`, with every write checked at the moment it is sent: `fenced(client, leader.check)`."""
    return cast(Client, FencedClient(client, check))
