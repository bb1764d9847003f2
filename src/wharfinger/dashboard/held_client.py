"""Gives the objects that the dashboard holds to others in the process, as an API server would: one watch of each kind
serves screens and explanations, and their strings are in memory once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Any, TypeVar, cast

import msgspec

from wharfinger.api.registry import Document
from wharfinger.api.requests import ApiRequest
from wharfinger.api.views import Pod, view
from wharfinger.client.interface import Client, EventType, ListPage, WatchEvent
from wharfinger.dashboard.sharing import SharedViews
from wharfinger.dashboard.state import ClusterState, HeldKind

log = logging.getLogger(__name__)

T = TypeVar("T")


class HeldClient(Client):
    """Lists and watches whole collections from the state; a kind that is not held is asked for from the API server.
    Nothing is written."""

    def __init__(self, state: ClusterState, server: Client) -> None:
        self._state = state
        self._server = server
        self._feeds: dict[tuple[str, str], ChangeFeed] = {}
        self._parts = SharedViews()

    async def send(self, request: ApiRequest[T]) -> T:
        assert request.verb == "list", "what only follows writes nothing"
        kind = self._state.held(request.resource)
        if kind is None or not kind.informers:
            return await self._server.send(request)
        await asyncio.gather(*(informer.wait_synced() for informer in kind.informers))
        self._feed(kind).clear()  # what changes from now on comes after this list
        found = self._views(kind.objects(), request)
        return cast("T", ListPage(found, str(self._state.revision)))

    def stream(self, request: ApiRequest[WatchEvent[T]]) -> AsyncIterator[WatchEvent[T]]:
        kind = self._state.held(request.resource)
        if kind is None or not kind.informers:
            return self._server.stream(request)
        return self._stream(self._feed(kind), request)

    async def _stream(self, feed: ChangeFeed, request: ApiRequest[WatchEvent[T]]) -> AsyncIterator[WatchEvent[T]]:
        while True:
            type, document = await feed.next()
            for found in self._views([document], request):
                yield WatchEvent(type, found, str(self._state.revision))

    def _views(self, documents: Iterable[Document], request: ApiRequest[Any]) -> list[Any]:
        if request.view in (None, dict):
            return list(documents)
        found = []
        for document in documents:
            try:
                made = view(document, request.view)
            except msgspec.ValidationError as error:
                log.warning("cannot read %s %s: %s", request.resource.kind, document["metadata"].get("name"), error)
                continue
            if isinstance(made, Pod):
                self._parts.share(document, made)
            found.append(made)
        return found

    def _feed(self, kind: HeldKind) -> ChangeFeed:
        key = (kind.resource.group, kind.resource.plural)
        found = self._feeds.get(key)
        if found is None:
            found = self._feeds[key] = ChangeFeed()
            kind.listeners.append(found.add)
        return found

    async def close(self) -> None:
        pass  # the server's client is not ours


class ChangeFeed:
    """Changes of one kind that nobody has taken yet."""

    def __init__(self) -> None:
        self._changes: deque[tuple[EventType, Document]] = deque()
        self._added = asyncio.Event()

    def add(self, old: Document | None, new: Document | None) -> None:
        document = new if new is not None else old
        assert document is not None
        type = EventType.DELETED if new is None else EventType.ADDED if old is None else EventType.MODIFIED
        self._changes.append((type, document))
        self._added.set()

    def clear(self) -> None:
        self._changes.clear()

    async def next(self) -> tuple[EventType, Document]:
        while not self._changes:
            self._added.clear()
            await self._added.wait()
        return self._changes.popleft()
