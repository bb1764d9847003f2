"""Fencing: a check that must hold at the moment a write is sent, however long the write waited or was retried.

`FencedClient` wraps a client; transports, which may wait for a connection, call `check_fence` right before they write
to the socket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import TypeVar

from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.requests import READS, ApiRequest
from wharfinger.client.interface import Client, WatchEvent

T = TypeVar("T")

_FENCE: ContextVar[Callable[[], None] | None] = ContextVar("wharfinger_fence", default=None)


def check_fence() -> None:
    """Runs the check of the current write, which raises if the write may no longer be sent."""
    check = _FENCE.get()
    if check is not None:
        check()


class FencedClient(Client):
    """A client whose writes are refused once `check` raises: `FencedClient(client, leader.check)`. Reads pass."""

    def __init__(self, client: Client, check: Callable[[], None]) -> None:
        self._client = client
        self._check = check

    async def send(self, request: ApiRequest[T]) -> T:
        if request.verb in READS:
            return await self._client.send(request)
        self._check()
        token = _FENCE.set(self._check)
        try:
            return await self._client.send(request)
        finally:
            _FENCE.reset(token)

    def stream(self, request: ApiRequest[WatchEvent[T]]) -> AsyncIterator[WatchEvent[T]]:
        return self._client.stream(request)

    async def kubernetes_version(self) -> KubernetesVersion:
        return await self._client.kubernetes_version()

    async def close(self) -> None:
        await self._client.close()
