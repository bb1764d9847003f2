"""Informers: a local copy of a collection, kept current by list and watch, that tells its handlers every change in order.

An informer survives what API servers do: closed watches, expired versions, lost connections. A deletion that happened
while it was not looking is reported by the next list. It decides nothing and writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from wharfinger.api.errors import (
    ApiError,
    Expired,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from wharfinger.api.registry import Resource
from wharfinger.client.backoff import Backoff
from wharfinger.client.interface import Client, EventType, ListPage
from wharfinger.client.timers import background_sleep

log = logging.getLogger(__name__)

T = TypeVar("T")
Key = tuple[str, str]
"""Namespace and name; the namespace of a cluster-wide object is empty."""

PAGE_SIZE = 500
RETRY_BASE, RETRY_LIMIT = 0.8, 30.0  # seconds; client-go's reflector uses the same
LONG_WATCH = 1.0  # a watch that held this long counts as a success, so that a server cannot make us spin
SOON = 0.5  # seconds: whoever has no rival gets its turn within them
BURST = 256  # events handled in a row before other tasks get a turn


@dataclass(frozen=True, slots=True, eq=False)
class Handler(Generic[T]):
    """What to call on each change. Calls are synchronous and in order; the informer already shows the new state."""

    on_add: Callable[[T], None] | None = None
    on_update: Callable[[T, T], None] | None = None  # the old and the new state
    on_delete: Callable[[T], None] | None = None  # the last known state


class Index(Generic[T]):
    """Objects of an informer by computed keys; an object may stand under several keys, or under none."""

    def __init__(self, keys_of: Callable[[T], Iterable[Hashable]]) -> None:
        self._keys_of = keys_of
        self._objects: dict[Hashable, dict[Key, T]] = {}
        self._keys: dict[Key, tuple[Hashable, ...]] = {}

    def get(self, key: Hashable) -> list[T]:
        found = self._objects.get(key)
        return list(found.values()) if found else []

    def keys(self) -> list[Hashable]:
        return list(self._objects)

    def _put(self, key: Key, item: T) -> None:
        new = tuple(self._keys_of(item))
        before = self._keys.get(key, ())
        if new != before:
            for old in before:
                if old not in new:
                    self._drop(old, key)
            self._keys[key] = new
        for each in new:
            self._objects.setdefault(each, {})[key] = item

    def _remove(self, key: Key) -> None:
        for old in self._keys.pop(key, ()):
            self._drop(old, key)

    def _drop(self, index_key: Hashable, key: Key) -> None:
        bucket = self._objects.get(index_key)
        if bucket is not None:
            bucket.pop(key, None)
            if not bucket:
                del self._objects[index_key]


class Informer(Generic[T]):
    """The objects of one collection (all of it, or what the selectors match) as views of one type.

    `view=dict` keeps whole documents; handlers must not change them.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        view: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
        rng: random.Random | None = None,
    ) -> None:
        self.resource = resource
        self.optional = False  # whether a kind that the server does not serve counts as one without objects
        self.last_error: ApiError | None = None
        self.lists = 0  # how often it listed, and did not go on with a watch
        self._client = client
        self._view = view
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._page_size = page_size
        self._backoff = Backoff(RETRY_BASE, RETRY_LIMIT, rng=rng)
        self._expired = False  # whether an expired watch was answered by a list, and none has lasted since
        self._objects: dict[Key, T] = {}
        self._indexes: dict[str, Index[T]] = {}
        self._handlers: list[Handler[T]] = []
        self._version = ""
        self._listing = False
        self._behind = False  # whether the list under way may be older than what is asked for
        self._synced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def items(self) -> Mapping[Key, T]:
        """All objects by namespace and name, as the API server last told."""
        return MappingProxyType(self._objects)

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._objects.get((namespace, name))

    def __iter__(self) -> Iterator[T]:
        """All objects; safe to use while the informer changes."""
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def index(self, name: str, keys_of: Callable[[T], Iterable[Hashable]]) -> Index[T]:
        """The index of that name, made at the first call; `keys_of` gives the keys under which an object stands."""
        if name not in self._indexes:
            made = Index(keys_of)
            for key, item in self._objects.items():
                made._put(key, item)
            self._indexes[name] = made
        return self._indexes[name]

    def add_handler(
        self,
        on_add: Callable[[T], None] | None = None,
        on_update: Callable[[T, T], None] | None = None,
        on_delete: Callable[[T], None] | None = None,
    ) -> Callable[[], None]:
        """Calls from now on; objects already known are told as added at once. Returns what removes the handler."""
        handler = Handler(on_add, on_update, on_delete)
        self._handlers = [*self._handlers, handler]
        if on_add is not None:
            for item in list(self._objects.values()):
                try:
                    on_add(item)
                except Exception:
                    self._failed(item)

        def remove() -> None:
            self._handlers = [each for each in self._handlers if each is not handler]

        return remove

    @property
    def synced(self) -> bool:
        """Whether a first list is complete."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self.run(), name=f"informer {self.resource.group_plural}")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def list_anew(self) -> None:
        """Counts as synced again only after a list that was asked for from here on."""
        self._synced.clear()
        if self._listing:
            self._behind = True  # let it end: connections that are just being made are not thrown away
            return
        await self.stop()
        self._version = ""
        self.start()

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        while True:
            try:
                while not self._version:
                    await self._list()
                await self._watch()
            except (ServiceUnavailable, TooManyRequests) as error:
                await self._pause(error)  # the version is still good: resume where we were
            except Expired as error:
                self._version = ""
                # The first expiry is answered by a list at once, whatever failed before, such as a server that was away;
                # one that keeps saying it is given time.
                if self._expired:
                    await self._pause(error)
                else:
                    self._expired, self._backoff.failures = True, 1
            except ApiError as error:
                self._version = ""
                if self.optional and isinstance(error, NotFound):
                    self._replace([])
                    self._synced.set()
                await self._pause(error)

    async def _pause(self, error: ApiError | None) -> None:
        """Waits after a failure. A simulation waits with us, unless there is little hope that it helps."""
        delay = self._backoff.next()
        if error is not None:
            self.last_error = error
            level = logging.INFO if self.optional and isinstance(error, NotFound) else logging.WARNING
            log.log(level, "cannot follow %s, next try in %.1f s: %s", self.resource.group_plural, delay, error)
        if delay >= RETRY_LIMIT or isinstance(error, NotFound | Forbidden | Unauthorized):
            await background_sleep(delay)
        else:
            await asyncio.sleep(delay)

    async def _list(self) -> None:
        self._listing, self._behind = True, False
        try:
            items, version = await self._list_all()
        finally:
            self._listing = False
        self.lists += 1
        self._replace(items)
        if not self._behind:
            self._version = version
            self._synced.set()

    async def _list_all(self) -> tuple[list[T], str]:
        items: list[T] = []
        token = ""
        while True:
            try:
                page = await self._page(token, self._page_size)
            except Expired:
                if not token:
                    raise
                # The list outlived its snapshot: only a list in one piece is sure to be consistent.
                page = await self._page("", 0)
                return list(page.items), page.resource_version
            items.extend(page.items)
            token = page.continue_token
            if not token:
                return items, page.resource_version

    async def _page(self, token: str, limit: int) -> ListPage[T]:
        return await self._client.list(
            self.resource,
            self._namespace,
            view=self._view,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            limit=limit,
            continue_token=token,
        )

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        started, version, seen = loop.time(), self._version, 0
        stream = self._client.watch(
            self.resource,
            self._namespace,
            view=self._view,
            resource_version=version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        )
        try:
            async for event in stream:
                if event.object is not None:
                    self._apply(event.type, event.object)
                if event.resource_version:
                    self._version = event.resource_version
                self.last_error = None
                seen += 1
                if not seen % BURST:
                    await asyncio.sleep(0)
        finally:
            if loop.time() - started >= LONG_WATCH:
                self._backoff.reset()
                self._expired = False
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        if self._version == version and loop.time() - started < LONG_WATCH:
            await self._pause(None)  # a server that closes at once must not make us spin

    def _replace(self, items: Iterable[T]) -> None:
        """Makes the copy equal to a list and tells the difference, deletions that no watch reported first."""
        fresh = {_key(item): item for item in items}
        for key, old in list(self._objects.items()):
            new = fresh.get(key)
            if new is None or _uid(new) != _uid(old):
                self._remove(key)
        for key, item in fresh.items():
            old_item = self._objects.get(key)
            if old_item is None or _version(old_item) != _version(item):
                self._put(key, item, old_item)

    def _apply(self, type: EventType, item: T) -> None:
        key = _key(item)
        if type is EventType.DELETED:
            self._remove(key)
            return
        old = self._objects.get(key)
        if old is not None and _uid(old) != _uid(item):
            self._remove(key)
            old = None
        self._put(key, item, old)

    def _put(self, key: Key, item: T, old: T | None) -> None:
        self._objects[key] = item
        for index in self._indexes.values():
            index._put(key, item)
        for handler in self._handlers:  # handlers that come or go meanwhile make a new list
            try:
                if old is None:
                    if handler.on_add is not None:
                        handler.on_add(item)
                elif handler.on_update is not None:
                    handler.on_update(old, item)
            except Exception:
                self._failed(item)

    def _remove(self, key: Key) -> None:
        old = self._objects.pop(key, None)
        if old is None:
            return
        for index in self._indexes.values():
            index._remove(key)
        for handler in self._handlers:
            try:
                if handler.on_delete is not None:
                    handler.on_delete(old)
            except Exception:
                self._failed(old)

    def _failed(self, item: T) -> None:
        """One consumer's defect must not stop the others' view of the world."""
        log.exception("a handler of %s failed on %s", self.resource.group_plural, _key(item))


class InformerSet:
    """The informers of one process: controllers that ask for the same collection and view share one."""

    def __init__(self, client: Client, *, rng: random.Random | None = None) -> None:
        self.client = client
        self._rng = rng
        self._informers: dict[tuple[Any, ...], Informer[Any]] = {}
        self._running = False

    def of(
        self,
        resource: Resource,
        view: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> Informer[T]:
        key = (resource, view, namespace, label_selector, field_selector)
        if key not in self._informers:
            self._informers[key] = Informer(
                self.client,
                resource,
                view,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                rng=self._rng,
            )
            if self._running:
                self._informers[key].start()
        found: Informer[T] = self._informers[key]
        return found

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(list(self._informers.values()))

    def start(self) -> None:
        """Starts all informers; those asked for later start when they are asked for."""
        self._running = True
        for informer in self:
            informer.start()

    async def wait_synced(self) -> None:
        for informer in self:
            await informer.wait_synced()

    @property
    def synced(self) -> bool:
        return all(informer.synced for informer in self)

    async def start_for(self, turn: Callable[[], Awaitable[object]]) -> None:
        """Returns when it is this process's turn to act; those who have to wait for it follow everything meanwhile.

        They list once more then: a watch may be behind what the process wrote whose turn it was, a list is not.
        """
        waiting = asyncio.ensure_future(turn())
        try:
            await asyncio.wait({waiting}, timeout=SOON)
            if waiting.done():
                self.start()
                return
            self.start()
            await waiting
            await asyncio.gather(*(informer.list_anew() for informer in self))
        finally:
            waiting.cancel()

    async def stop(self) -> None:
        self._running = False
        for informer in self:
            await informer.stop()


def _key(item: Any) -> Key:
    if isinstance(item, dict):
        metadata = item["metadata"]
        return metadata.get("namespace") or "", metadata["name"]
    return item.metadata.namespace, item.metadata.name


def _uid(item: Any) -> str:
    return str(item["metadata"].get("uid", "")) if isinstance(item, dict) else str(item.metadata.uid)


def _version(item: Any) -> str:
    if isinstance(item, dict):
        return str(item["metadata"].get("resourceVersion", ""))
    return str(item.metadata.resource_version)
