"""The event recorder: writes Kubernetes Events without ever blocking or failing the component that records them.

It aggregates as client-go's `tools/record` does: a repeated event increments the count of the first one, similar events
are combined, and an object with too many events is rate-limited.
"""

from __future__ import annotations

import asyncio
import logging
import random
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack

import msgspec

from wharfinger.api.errors import AlreadyExists, ApiError, NotFound, ServerTimeout, ServiceUnavailable, TooManyRequests
from wharfinger.api.kinds.builtin import EVENTS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.times import format_time
from wharfinger.client.backoff import Backoff
from wharfinger.client.interface import Client
from wharfinger.client.tasks import cancel
from wharfinger.client.timers import Clock, background

log = logging.getLogger(__name__)

V = TypeVar("V")

EventKind = Literal["Normal", "Warning"]


class EventDetails(TypedDict, total=False):
    action: str
    related: Document | None


CACHE_SIZE = 4096  # entries of each of the caches below
SIMILAR_LIMIT, SIMILAR_SECONDS = 10, 600.0  # this many distinct messages with one reason in this time are combined
SPAM_BURST, SPAM_SECONDS = 25, 300.0  # token bucket per object: its size, and the seconds to refill one token
MESSAGE_LIMIT = 1024
QUEUE_LIMIT = 16384
SENDERS = 4
GIVE_WAY_SECONDS = 10.0  # events wait at most so long for more urgent writes,
GIVE_WAY_LIMIT = QUEUE_LIMIT * 3 // 4  # and only while no more than these wait
GIVE_WAY_PAUSE = 0.05  # seconds
TRIES = 12
COMBINED = "(combined from similar events): "

_OBJECT_KEY = ("kind", "namespace", "name", "uid", "apiVersion")
_REFERENCE_FIELDS = ("name", "namespace", "uid", "resourceVersion")


def reference(resource: Resource, item: Any) -> Document:
    """Returns an object reference to a view or a document of `resource`."""
    if isinstance(item, dict):
        metadata = item.get("metadata", {})
        values = [metadata.get(name) for name in _REFERENCE_FIELDS]
    else:
        found = item.metadata
        values = [found.name, found.namespace, found.uid, found.resource_version]
    fields = {name: value for name, value in zip(_REFERENCE_FIELDS, values) if value}
    return {"apiVersion": resource.api_version, "kind": resource.kind, **fields}


class _RecentEntries(Generic[V]):
    """An LRU cache that creates missing entries."""

    def __init__(self, make: Callable[[], V]) -> None:
        self._make = make
        self._entries: OrderedDict[tuple[str, ...], V] = OrderedDict()

    def __getitem__(self, key: tuple[str, ...]) -> V:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = self._make()
            if len(self._entries) > CACHE_SIZE:
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(key)
        return entry


class _Similar(msgspec.Struct):
    messages: dict[str, None] = msgspec.field(default_factory=dict)
    last: float = float("-inf")


class _RecordedEvent(msgspec.Struct):
    """One Event object: `count` occurrences since `first`."""

    name: str = ""
    count: int = 0
    first: float = 0.0


class _TokenBucket(msgspec.Struct):
    tokens: float = float(SPAM_BURST)
    at: float = 0.0

    def take(self, now: float) -> bool:
        self.tokens = min(float(SPAM_BURST), self.tokens + max(0.0, now - self.at) / SPAM_SECONDS)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class EventRecorder:
    """Records the events of one component. `event` may be called anywhere on the loop; `start` begins sending."""

    def __init__(
        self, client: Client, component: str, clock: Clock, *, host: str = "", rng: random.Random | None = None
    ) -> None:
        """`rng` provides the jitter of retry delays."""
        self.dropped = 0  # events lost because the queue was full or the server rejected them
        self._client = client
        self._component = component
        self._host = host
        self._rng = rng
        self._clock = clock
        self._similar: _RecentEntries[_Similar] = _RecentEntries(_Similar)
        self._recorded: _RecentEntries[_RecordedEvent] = _RecentEntries(_RecordedEvent)
        self._buckets: _RecentEntries[_TokenBucket] = _RecentEntries(_TokenBucket)
        self._tick = 0
        self._own_bits = zlib.crc32(f"{component}/{host}".encode()) & 0xFFFF
        self._queues: list[deque[Document]] = [deque() for _ in range(SENDERS)]
        self._queued = 0  # events in the queues
        self._updates: dict[str, Document] = {}  # by name: events in the queues that exist already
        self._wake: list[asyncio.Event] = [asyncio.Event() for _ in range(SENDERS)]
        self._busy = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._urgent: Callable[[], bool] | None = None
        self._gave_way: float | None = None  # the loop's time when events began to wait for urgent writes

    def event(
        self,
        resource: Resource,
        item: Any,
        type: EventKind,
        reason: str,
        message: str,
        *,
        action: str = "",
        related: Document | None = None,
        component: str = "",
    ) -> None:
        """Records an event about `item`, a view or a document of `resource`. Never raises and never blocks.

        `action` is the action taken, `related` a reference to a second object involved, and `component` the reporting
        component if it is not the recorder's own.
        """
        more = {**({"action": action} if action else {}), **({"related": related} if related else {})}
        try:
            self._record(reference(resource, item), type, reason, message, component or self._component, more)
        except Exception:
            self.dropped += 1
            log.exception("cannot record the event %s of %s", reason, resource.group_plural)

    def give_way(self, urgent: Callable[[], bool]) -> None:
        """Events wait for a while as long as `urgent` says that more important writes wait for the server."""
        self._urgent = urgent

    def start(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._send(i), name=f"events {i}") for i in range(SENDERS)]

    async def stop(self, timeout: float = 2.0) -> None:
        """Sends the queued events, for at most `timeout` seconds, and stops."""
        self._urgent = None
        deadline = asyncio.get_running_loop().time() + timeout
        while self._tasks and self.pending and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        await cancel(self._tasks)
        self._tasks = []

    @property
    def pending(self) -> int:
        return self._queued + self._busy

    def _record(self, involved: Document, type: str, reason: str, message: str, component: str, more: Document) -> None:
        now = self._clock.now()
        if len(message) > MESSAGE_LIMIT:
            message = message[: MESSAGE_LIMIT - 4] + " ..."
        about = (component, *[str(involved.get(name, "")) for name in _OBJECT_KEY], type)
        alike = (*about, reason)
        if self._is_similar(alike, message, now):
            event = self._recorded[alike]
            message = COMBINED + message
        else:
            event = self._recorded[*alike, message]
        event.count += 1
        if event.count == 1:
            event.name, event.first = self._name(str(involved.get("name", "")), now), now
        if not self._buckets[about].take(now):
            return
        document = self._document(involved, type, reason, message, component, event, now)
        if more:
            document.update(more)
        self._enqueue(document)

    def _is_similar(self, key: tuple[str, ...], message: str, now: float) -> bool:
        """Whether this message is combined with others of the same reason."""
        similar = self._similar[key]
        if now - similar.last > SIMILAR_SECONDS:
            similar.messages.clear()
        similar.messages[message] = None
        similar.last = now
        if len(similar.messages) < SIMILAR_LIMIT:
            return False
        similar.messages.popitem()
        return True

    def _name(self, name: str, now: float) -> str:
        # Names contain the time, as in client-go. The counter keeps them unique while virtual time stands still, the low
        # bits keep those of different components apart.
        self._tick = max(self._tick + 1, int(now * 1_000_000_000) >> 16)
        return f"{name[:236]}.{self._tick << 16 | self._own_bits:x}"

    def _document(
        self,
        involved: Document,
        type: str,
        reason: str,
        message: str,
        component: str,
        event: _RecordedEvent,
        now: float,
    ) -> Document:
        source = {"component": component, **({"host": self._host} if self._host else {})}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": involved.get("namespace") or "default"},
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "source": source,
            "firstTimestamp": format_time(event.first),
            "lastTimestamp": format_time(now),
            "count": event.count,
            "type": type,
            "reportingComponent": component,
            "reportingInstance": self._host,
        }

    def _enqueue(self, document: Document) -> None:
        name, exists = document["metadata"]["name"], document["count"] > 1
        if exists and (unsent := self._updates.get(name)) is not None:
            unsent.update(document)  # one write is enough
            return
        if self.pending >= QUEUE_LIMIT:
            self.dropped += 1
            return
        if exists:
            self._updates[name] = document
        # All writes of one event go through the same sender, so that its counts arrive in order.
        shard = zlib.crc32(name.encode()) % SENDERS
        self._queues[shard].append(document)
        self._queued += 1
        self._wake[shard].set()

    async def _send(self, shard: int) -> None:
        queue, wake = self._queues[shard], self._wake[shard]
        while True:
            while queue:
                if self._gives_way():
                    with background():
                        await asyncio.sleep(GIVE_WAY_PAUSE)
                    continue
                self._busy += 1
                try:
                    document = queue.popleft()
                    self._queued -= 1
                    if document["count"] > 1:
                        del self._updates[document["metadata"]["name"]]
                    await self._deliver(document)
                finally:
                    self._busy -= 1
            wake.clear()
            await wake.wait()

    def _gives_way(self) -> bool:
        if self._urgent is None or not self._urgent():
            self._gave_way = None
            return False
        now = asyncio.get_running_loop().time()
        if self._gave_way is None:
            self._gave_way = now
        return now - self._gave_way < GIVE_WAY_SECONDS and self.pending < GIVE_WAY_LIMIT

    async def _deliver(self, document: Document) -> None:
        backoff: Backoff | None = None
        for _ in range(TRIES):
            try:
                await self._write(document)
                return
            except (ServiceUnavailable, TooManyRequests, ServerTimeout) as error:
                backoff = backoff or Backoff(0.5, 10.0, rng=self._rng)
                with background():
                    await asyncio.sleep(max(backoff.next(), error.retry_after or 0.0))
            except ApiError as error:
                log.info("event %s rejected: %s", document["metadata"]["name"], error)
                break
        self.dropped += 1

    async def _write(self, document: Document) -> None:
        metadata = document["metadata"]
        if document["count"] > 1:
            change = {name: document[name] for name in ("count", "lastTimestamp", "message")}
            try:
                await self._client.patch(EVENTS, metadata["name"], change, metadata["namespace"], brief=True)
                return
            except NotFound:
                pass  # expired on the server, or never accepted
        with suppress(AlreadyExists):  # the response to an earlier attempt was lost
            await self._client.create(EVENTS, document, metadata["namespace"], brief=True)


class ComponentRecorder:
    """A shared recorder under the name of one of its components."""

    def __init__(self, recorder: EventRecorder, component: str) -> None:
        self._recorder = recorder
        self._component = component

    def event(
        self, resource: Resource, item: Any, type: EventKind, reason: str, message: str, **details: Unpack[EventDetails]
    ) -> None:
        self._recorder.event(resource, item, type, reason, message, component=self._component, **details)
