"""The client of a store in the same process: no HTTP, one user, and views decoded once for all watchers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar, cast

from wharfinger.admission.request import SYSTEM, User
from wharfinger.api.errors import BadRequest
from wharfinger.api.registry import Document
from wharfinger.api.requests import ApiRequest
from wharfinger.api.selectors import (
    BadSelector,
    FieldRequirement,
    Requirements,
    parse_field_selector,
    parse_label_selector,
)
from wharfinger.api.views import view as view_of
from wharfinger.client.interface import Client, EventType, ListPage, LocalStream, WatchEvent
from wharfinger.client.timers import background
from wharfinger.store import Store, StoredObject
from wharfinger.store.lists import parse_version
from wharfinger.store.objects import StoreEvent
from wharfinger.store.watch import Watch

T = TypeVar("T")

_TYPES = {event.value: event for event in EventType}


class LocalClient(Client):
    """Closing the client leaves the store open; the owner of the store closes that."""

    def __init__(self, store: Store, user: User = SYSTEM, on_warning: Callable[[str], None] | None = None) -> None:
        self.store = store
        self.user = user
        self._on_warning = on_warning

    def as_user(self, user: User, on_warning: Callable[[str], None] | None = None) -> LocalClient:
        """A client of the same store for another user; `on_warning` is called with each warning of the reviewers."""
        return LocalClient(self.store, user, on_warning)

    @property
    def at_once(self) -> bool:
        return self.store.writes_at_once

    async def send(self, request: ApiRequest[T]) -> T:
        answer: Any
        if request.verb == "get":
            answer = await self._get(request)
        elif request.verb == "list":
            answer = await self._list(request)
        elif request.verb == "deletecollection":
            labels, fields = _selectors(request)
            answer = await self.store.delete_collection(
                request.resource,
                request.namespace,
                labels=labels,
                fields=fields,
                options=request.delete_options,
                user=self.user,
            )
        else:
            written = await self.store.send(cast("ApiRequest[Document]", request), user=self.user)
            if self._on_warning is not None:
                for warning in written.warnings:
                    self._on_warning(warning)
            answer = written.identity if request.brief else written.document
        return cast("T", answer)

    async def _get(self, request: ApiRequest[Any]) -> Any:
        resource, name, namespace, view = request.resource, request.name, request.namespace, request.view
        if not request.subresource:
            return _decoded(await self.store.get(resource, name, namespace), view)
        document = await self.store.get_subresource(resource, name, namespace, request.subresource)
        return document if view is None else view_of(document, view)

    async def _list(self, request: ApiRequest[Any]) -> ListPage[Any]:
        labels, fields = _selectors(request)
        listing = await self.store.list(
            request.resource,
            request.namespace,
            labels=labels,
            fields=fields,
            limit=request.limit,
            continue_token=request.continue_token,
            version=request.resource_version,
            version_match=request.version_match,
        )
        items = [_decoded(stored, request.view) for stored in listing.items]
        return ListPage(items, str(listing.version), listing.continue_token)

    def stream(self, request: ApiRequest[WatchEvent[T]]) -> AsyncIterator[WatchEvent[T]]:
        """A watch that times out ends with a bookmark, so that the next watch resumes where this one ended."""
        return StoreStream(self.store, request)

    async def close(self) -> None:
        pass


class StoreStream(LocalStream[T]):
    """A watch of a store, opened when the first event is asked for."""

    def __init__(self, store: Store, request: ApiRequest[WatchEvent[T]]) -> None:
        self._store = store
        self._request = request
        self._view = request.view
        self._watch: Watch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    def _open(self) -> Watch:
        request = self._request
        labels, fields = _selectors(request)
        version = request.resource_version
        after = parse_version(version) if version else None
        watch = self._store.watch(request.resource, request.namespace, after=after, labels=labels, fields=fields)
        if request.timeout is not None:
            # A simulation does not wait for the end of a quiet watch.
            with background():
                self._timer = asyncio.get_running_loop().call_later(request.timeout, watch.close)
        return watch

    async def __anext__(self) -> WatchEvent[T]:
        if self._ended:
            raise StopAsyncIteration
        if self._watch is None:
            self._watch = self._open()
        try:
            return self._shown(await self._watch.__anext__())
        except StopAsyncIteration:
            await self.aclose()
            return WatchEvent(EventType.BOOKMARK, None, str(self._watch.bookmark().version))
        except BaseException:
            await self.aclose()
            raise

    def ready(self, most: int) -> Sequence[WatchEvent[T]]:
        watch = self._watch
        if watch is None or self._ended:
            return ()
        view, types = self._view, _TYPES
        if view is None or view is dict:
            return [self._shown(event) for event in watch.ready(most)]
        return [
            WatchEvent(types[event.type], stored.view(view), str(event.version))
            if (stored := event.object) is not None
            else self._shown(event)
            for event in watch.ready(most)
        ]

    def _shown(self, event: StoreEvent) -> WatchEvent[T]:
        stored = event.object
        shown = None if stored is None else _decoded(stored, self._view)
        return WatchEvent(_TYPES[event.type], shown, str(event.version), event.initial_events_end)

    async def aclose(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.close()


def _decoded(stored: StoredObject, view: type[Any] | None) -> Any:
    return stored.document() if view is None or view is dict else stored.view(view)


def _selectors(request: ApiRequest[Any]) -> tuple[Requirements, tuple[FieldRequirement, ...]]:
    try:
        return parse_label_selector(request.label_selector), parse_field_selector(request.field_selector)
    except BadSelector as error:
        raise BadRequest(str(error)) from None
