"""Informers: a local copy of a collection, kept current by list and watch, that passes every change to its handlers in order.

An informer survives closed watches, expired resource versions and lost connections. A deletion that no watch reported
is detected by the next list. It makes no decisions and writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec.structs import replace

from wharfinger.api.errors import (
    ApiError,
    Expired,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from wharfinger.api.keys import ObjectKey
from wharfinger.api.registry import Resource
from wharfinger.api.requests import ApiRequest
from wharfinger.client.backoff import Backoff
from wharfinger.client.interface import Client, EventType, ListPage, LocalStream, WatchEvent
from wharfinger.client.timers import background_sleep

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE_SIZE = 500
RETRY_BASE, RETRY_LIMIT = 0.8, 30.0  # seconds; client-go's reflector uses the same
STABLE_WATCH = 1.0  # seconds; a shorter watch does not reset the back-off
UNCONTESTED_WAIT = 0.5  # seconds in which a lease without another candidate is acquired
EVENTS_PER_TURN = 256  # events handled before other tasks may run


class InformerHandler(msgspec.Struct, Generic[T], frozen=True, eq=False):
    """Callbacks for changes. They are called synchronously and in order, after the informer's copy has changed."""

    on_add: Callable[[T], None] | None = None
    on_update: Callable[[T, T], None] | None = None  # the old and the new state
    on_delete: Callable[[T], None] | None = None  # the last known state
    while_any: Informer[Any] | None = None  # called only while this one has objects

    @property
    def active(self) -> bool:
        return self.while_any is None or len(self.while_any) > 0


class Index(Generic[T]):
    """Objects of an informer by computed keys; an object may have several keys or none. Made when it is first used: in most
    clusters, nobody asks for the pods of a ResourceClaim."""

    def __init__(self, keys_of: Callable[[T], Iterable[Hashable]], objects: Mapping[ObjectKey, T]) -> None:
        """`objects` are those of the informer, which the index need not hold a second time."""
        self._keys_of = keys_of
        self._objects = objects
        self.used = False
        self._found: dict[Hashable, dict[ObjectKey, None]] = {}  # ordered
        self._keys: dict[ObjectKey, tuple[Hashable, ...]] = {}  # of objects that have some

    def get(self, key: Hashable) -> list[T]:
        if not self.used:
            self._make()
        found, objects = self._found.get(key), self._objects
        return [objects[each] for each in found] if found else []

    def keys(self) -> list[Hashable]:
        if not self.used:
            self._make()
        return list(self._found)

    def _make(self) -> None:
        self.used = True
        for key, item in self._objects.items():
            self._put(key, item)

    def _put(self, key: ObjectKey, item: T, old: T | None = None) -> None:
        """`old` is what `item` replaces."""
        new = tuple(self._keys_of(item))
        if old is not None and new == tuple(self._keys_of(old)):
            return  # as of most updates, and faster than a look-up
        before = self._keys.get(key, ())
        if new == before:
            return
        for each in before:
            if each not in new:
                self._drop(each, key)
        for each in new:
            self._found.setdefault(each, {})[key] = None
        if new:
            self._keys[key] = new
        else:
            del self._keys[key]

    def _remove(self, key: ObjectKey) -> None:
        for old in self._keys.pop(key, ()):
            self._drop(old, key)

    def _drop(self, index_key: Hashable, key: ObjectKey) -> None:
        bucket = self._found.get(index_key)
        if bucket is not None:
            bucket.pop(key, None)
            if not bucket:
                del self._found[index_key]


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
        self.optional = False  # a kind that the server does not serve counts as one without objects
        self.last_error: ApiError | None = None
        self.lists = 0  # completed lists
        self._client = client
        self._request: ApiRequest[ListPage[T]] = ApiRequest(
            "list",
            resource,
            namespace,
            view=view,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=page_size,
        )
        self._backoff = Backoff(RETRY_BASE, RETRY_LIMIT, rng=rng)
        self._expired = False  # relisted after an expired watch, and no watch has been stable since
        self._key = _key_of_document if view is dict else _key_of_view
        self._objects: dict[ObjectKey, T] = {}
        self._indexes: dict[str, Index[T]] = {}
        self._handlers: list[InformerHandler[T]] = []
        # The same by kind of change. Adding or removing a handler replaces all of these lists.
        self._on_add: list[Callable[[T], None]] = []
        self._on_update: list[Callable[[T, T], None]] = []
        self._on_delete: list[Callable[[T], None]] = []
        self._asking: list[Informer[Any]] = []  # those with handlers that are called only while this one has objects
        self._version = ""
        self._listing = False
        self._relist = False  # requested while a list was in progress
        self._synced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def items(self) -> Mapping[ObjectKey, T]:
        """All objects as last seen."""
        return MappingProxyType(self._objects)

    @property
    def version(self) -> int:
        """The resource version up to which all changes have been seen; 0 if unknown."""
        return int(self._version) if self._version.isdigit() else 0

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._objects.get((namespace, name))

    def __iter__(self) -> Iterator[T]:
        """Iterates over a copy, so the informer may change meanwhile."""
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def index(self, name: str, keys_of: Callable[[T], Iterable[Hashable]]) -> Index[T]:
        """Returns the index of that name, created on the first call; `keys_of` computes the keys of an object."""
        if name not in self._indexes:
            self._indexes[name] = Index(keys_of, self._objects)
        return self._indexes[name]

    def add_handler(
        self,
        on_add: Callable[[T], None] | None = None,
        on_update: Callable[[T, T], None] | None = None,
        on_delete: Callable[[T], None] | None = None,
        *,
        while_any: Informer[Any] | None = None,
    ) -> Callable[[], None]:
        """Adds a handler, which is called at once with `on_add` for every known object. Returns a function that removes
        it.

        With `while_any` it is called only while that informer has objects. For handlers that look for some of those: in
        most clusters there are no quotas that each change of a pod could concern.
        """
        handler = InformerHandler(on_add, on_update, on_delete, while_any)
        if while_any is not None and self not in while_any._asking:
            while_any._asking.append(self)
        self._set_handlers([*self._handlers, handler])
        if on_add is not None and handler.active:
            for item in list(self._objects.values()):
                try:
                    on_add(item)
                except Exception:
                    self._failed(item)

        def remove() -> None:
            self._set_handlers([each for each in self._handlers if each is not handler])

        return remove

    def _set_handlers(self, handlers: list[InformerHandler[T]]) -> None:
        self._handlers = handlers
        active = [each for each in handlers if each.active]
        self._on_add = [each.on_add for each in active if each.on_add is not None]
        self._on_update = [each.on_update for each in active if each.on_update is not None]
        self._on_delete = [each.on_delete for each in active if each.on_delete is not None]

    @property
    def synced(self) -> bool:
        """Whether the first list is complete."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self.run(), name=f"informer {self.resource.group_plural}")

    def cancel(self) -> asyncio.Task[None] | None:
        """Ends it without waiting; returns the task that ends."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        return task

    async def stop(self) -> None:
        task = self.cancel()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    async def relist(self) -> None:
        """Makes the informer unsynced until a list that starts from now on is complete."""
        self._synced.clear()
        if self._listing:
            self._relist = True  # let the list in progress finish: cancelling it would discard its connection
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
                await self._pause(error)  # the version is still valid: resume the watch
            except Expired as error:
                self._version = ""
                # Relist at once after the first expiry, even if the server was unreachable before; back off after
                # repeated ones.
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
        """Backs off after a failure. A simulation waits too, unless a retry is unlikely to help."""
        delay = self._backoff.next()
        if error is not None:
            self.last_error = error
            level = logging.INFO if self.optional and isinstance(error, NotFound) else logging.WARNING
            log.log(level, "cannot watch %s, retrying in %.1f s: %s", self.resource.group_plural, delay, error)
        if delay >= RETRY_LIMIT or isinstance(error, NotFound | Forbidden | Unauthorized):
            await background_sleep(delay)
        else:
            await asyncio.sleep(delay)

    async def _list(self) -> None:
        self._listing, self._relist = True, False
        try:
            items, version = await self._list_all()
        finally:
            self._listing = False
        self.lists += 1
        self._replace(items)
        if not self._relist:
            self._version = version
            self._synced.set()

    async def _list_all(self) -> tuple[list[T], str]:
        items: list[T] = []
        token = ""
        while True:
            try:
                page = await self._client.send(replace(self._request, continue_token=token))
            except Expired:
                if not token:
                    raise
                # The continue token expired: only an unpaged list is certain to be consistent.
                page = await self._client.send(replace(self._request, limit=0))
                items.clear()
                self._collect(items, page.items)
                return items, page.resource_version
            self._collect(items, page.items)
            token = page.continue_token
            if not token:
                return items, page.resource_version

    def _collect(self, items: list[T], page: Iterable[T]) -> None:
        """Adds a page to what was listed before it."""
        items.extend(page)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        started, version, seen = loop.time(), self._version, 0
        watch = replace(self._request, verb="watch", limit=0, resource_version=version)
        stream = self._client.stream(cast("ApiRequest[WatchEvent[T]]", watch))
        local = stream if isinstance(stream, LocalStream) else None
        try:
            async for event in stream:
                self._take(event)
                self.last_error = None
                seen += 1
                if local is not None:
                    events = local.ready(-seen % EVENTS_PER_TURN)
                    for event in events:
                        self._take(event)
                    seen += len(events)
                if not seen % EVENTS_PER_TURN:
                    await asyncio.sleep(0)
        finally:
            if loop.time() - started >= STABLE_WATCH:
                self._backoff.reset()
                self._expired = False
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        if self._version == version and loop.time() - started < STABLE_WATCH:
            await self._pause(None)  # do not spin on a server that closes every watch immediately

    def _take(self, event: WatchEvent[T]) -> None:
        if event.object is not None:
            self._apply(event.type, event.object)
        if event.resource_version:
            self._version = event.resource_version

    def _replace(self, items: Iterable[T]) -> None:
        """Makes the copy equal to a list and calls the handlers for the difference, deletions first."""
        fresh = {self._key(item): item for item in items}
        if not self._objects:
            for key, item in fresh.items():
                self._put(key, item, self._objects.get(key))
            return
        for key, old in list(self._objects.items()):
            new = fresh.get(key)
            if new is None or _uid(new) != _uid(old):
                self._remove(key)
        for key, item in fresh.items():
            old_item = self._objects.get(key)
            if old_item is None or _version(old_item) != _version(item):
                self._put(key, item, old_item)

    def _apply(self, type: EventType, item: T) -> None:
        key = self._key(item)
        if type is EventType.DELETED:
            self._remove(key)
            return
        old = self._objects.get(key)
        if old is not None and _uid(old) != _uid(item):
            self._remove(key)
            old = None
        self._put(key, item, old)

    def _put(self, key: ObjectKey, item: T, old: T | None) -> None:
        self._objects[key] = item
        if self._asking and len(self._objects) == 1:
            self._tell_asking()
        for index in self._indexes.values():
            if index.used:
                index._put(key, item, old)
        if old is None:
            for on_add in self._on_add:
                try:
                    on_add(item)
                except Exception:
                    self._failed(item)
        else:
            for on_update in self._on_update:
                try:
                    on_update(old, item)
                except Exception:
                    self._failed(item)

    def _remove(self, key: ObjectKey) -> None:
        old = self._objects.pop(key, None)
        if old is None:
            return
        if self._asking and not self._objects:
            self._tell_asking()
        for index in self._indexes.values():
            if index.used:
                index._remove(key)
        for on_delete in self._on_delete:
            try:
                on_delete(old)
            except Exception:
                self._failed(old)

    def _tell_asking(self) -> None:
        for each in self._asking:
            each._set_handlers(each._handlers)

    def _failed(self, item: T) -> None:
        """Logs a defect of one handler, which must not affect the others."""
        log.exception("a handler of %s failed on %s", self.resource.group_plural, self._key(item))


class InformerSet:
    """The informers of one process; one is shared by all who ask for the same collection and view."""

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

    def drop(self, informer: Informer[Any]) -> None:
        """Ends an informer whose resource is no longer served. `of` makes a new one."""
        self._informers = {key: each for key, each in self._informers.items() if each is not informer}
        informer.cancel()

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(list(self._informers.values()))

    def start(self) -> None:
        """Starts all informers; those added later start immediately."""
        self._running = True
        for informer in self:
            informer.start()

    async def wait_synced(self) -> None:
        for informer in self:
            await informer.wait_synced()

    @property
    def synced(self) -> bool:
        return all(informer.synced for informer in self)

    async def start_for(self, acquire: Callable[[], Awaitable[object]]) -> None:
        """Starts the informers and returns once `acquire` does: a candidate keeps its copy current while it waits for the
        lease.

        A candidate that had to wait then relists: its watches may lag behind what the previous leader wrote, a list does
        not.
        """
        acquiring = asyncio.ensure_future(acquire())
        try:
            await asyncio.wait({acquiring}, timeout=UNCONTESTED_WAIT)
            if acquiring.done():
                self.start()
                return
            self.start()
            await acquiring
            await asyncio.gather(*(informer.relist() for informer in self))
        finally:
            acquiring.cancel()

    async def stop(self) -> None:
        self._running = False
        # All are cancelled before anything is awaited: whoever stops them may be cancelled, too.
        ending = [task for informer in self if (task := informer.cancel()) is not None]
        await asyncio.gather(*ending, return_exceptions=True)


def _key_of_document(item: Any) -> ObjectKey:
    metadata = item["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def _key_of_view(item: Any) -> ObjectKey:
    metadata = item.metadata
    return metadata.namespace, metadata.name


def _uid(item: Any) -> str:
    uid: str = item["metadata"].get("uid", "") if isinstance(item, dict) else item.metadata.uid
    return uid


def _version(item: Any) -> str:
    if isinstance(item, dict):
        return str(item["metadata"].get("resourceVersion", ""))
    return str(item.metadata.resource_version)
