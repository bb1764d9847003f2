"""Watches over HTTP: streams of JSON lines with whole objects, table rows or metadata."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

import msgspec
from prometheus_client import Gauge

from wharfinger.api.errors import ApiError
from wharfinger.api.registry import Document, Kind, Resource
from wharfinger.apiserver import tables
from wharfinger.apiserver.exchange import ApiExchange
from wharfinger.apiserver.negotiation import PARTIAL, TABLE, Accepted
from wharfinger.apiserver.options import ListOptions
from wharfinger.store.objects import BOOKMARK, StoredObject, StoreEvent
from wharfinger.store.watch import Watch

_TIMEOUT = (1800.0, 3600.0)  # seconds; random in this range unless the client sets one, so that not all end at once
_STUCK = 30.0  # seconds without reading after which a client is dropped

_BATCH = 32  # events that are written together: every connection keeps buffers of the size of its largest write
_REMEMBERED = 2 * 1024 * 1024  # bytes of encoded events that are kept for other watches

Encode = Callable[[list[StoreEvent]], bytes]


class Closable(Protocol):
    def close(self) -> None: ...


class Watchers:
    """All open watches, so that they can be ended when the server stops."""

    def __init__(self, gauge: Gauge, now: Callable[[], float]) -> None:
        self._open: set[Closable] = set()
        self._gauge = gauge
        self._now = now
        self.stuck = _STUCK

    def close(self) -> None:
        for watch in list(self._open):
            watch.close()

    def add(self, watch: Closable) -> None:
        """Registers another stream that ends when the server stops."""
        self._open.add(watch)

    def discard(self, watch: Closable) -> None:
        self._open.discard(watch)

    async def serve(
        self,
        exchange: ApiExchange,
        resource: Resource,
        kind: Kind,
        watch: Watch | ApiError,
        options: ListOptions,
        accepted: Accepted,
    ) -> None:
        """Streams until the client disconnects, the timeout expires or the server stops. A watch that cannot start at its
        resource version is an error event in the stream, as with kube-apiserver's watch cache."""
        await exchange.start_stream("application/json")
        if isinstance(watch, ApiError):
            await exchange.stream(_error_line(watch), more=False)
            return
        encode = self._encoder(exchange, resource, kind, accepted)
        seconds = options.timeout if options.timeout else random.uniform(*_TIMEOUT)
        timer = asyncio.get_running_loop().call_later(seconds, watch.close)
        leaving = asyncio.ensure_future(exchange.gone())
        leaving.add_done_callback(lambda _: watch.close())
        self._open.add(watch)
        series = self._gauge.labels(resource.group, resource.version, resource.kind)
        series.inc()
        connection = exchange.connection
        try:
            # Send the headers immediately: clients wait for them.
            await exchange.stream(b"")
            while events := await watch.batch(_BATCH):
                if leaving.done():
                    return
                data = encode(events)
                if connection is None or not connection.write_now(data):
                    await self._send(exchange, data)
            if not leaving.done():  # a watch with bookmarks has sent its last one
                await exchange.stream(b"", more=False)
        except ApiError as error:  # the watch fell behind the history of the store
            await self._send(exchange, _error_line(error), more=False)
        finally:
            series.dec()
            self._open.discard(watch)
            timer.cancel()
            leaving.cancel()
            watch.close()

    async def _send(self, exchange: ApiExchange, data: bytes, *, more: bool = True) -> None:
        """Raises TimeoutError if the client does not read."""
        async with asyncio.timeout(self.stuck):
            await exchange.stream(data, more=more)

    def _encoder(self, exchange: ApiExchange, resource: Resource, kind: Kind, accepted: Accepted) -> Encode:
        if accepted.shown_as == TABLE:
            include = exchange.query.text("includeObject", "Metadata")
            return _TableEncoder(resource, kind, accepted.version, include, self._now)
        if accepted.shown_as == PARTIAL:
            return _partial_encoder(accepted.version)
        return _plain_encoder(resource)


class _LineCache:
    """Encodes events with whole objects. Many watches send the same changes, and most of them the same batches."""

    def __init__(self) -> None:
        self._events: list[StoreEvent] = []  # the last batch...
        self._joined = b""  # ...and what was sent for it
        self._lines: dict[tuple[str, StoredObject], bytes] = {}
        self._size = 0

    def of(self, events: list[StoreEvent], bookmark: Callable[[StoreEvent], bytes]) -> bytes:
        if len(events) == 1:
            return self._line(events[0], bookmark)
        if events == self._events:  # the same ones: events are equal to nothing else
            return self._joined
        joined = b"".join([self._line(event, bookmark) for event in events])
        self._events, self._joined = (events, joined) if len(joined) <= _REMEMBERED else ([], b"")
        return joined

    def _line(self, event: StoreEvent, bookmark: Callable[[StoreEvent], bytes]) -> bytes:
        if event.object is None:
            return bookmark(event)
        key = (event.type, event.object)
        line = self._lines.get(key)
        if line is None:
            if self._size > _REMEMBERED:
                self._lines.clear()
                self._size = 0
            line = self._lines[key] = _line(event.type, event.object.data)
            self._size += len(line)
        return line


_lines = _LineCache()


def _plain_encoder(resource: Resource) -> Encode:
    def bookmark(event: StoreEvent) -> bytes:
        return _line(BOOKMARK, msgspec.json.encode(_bookmark(resource.api_version, resource.kind, event)))

    return lambda events: _lines.of(events, bookmark)


def _partial_encoder(version: str) -> Encode:
    def encode_one(event: StoreEvent) -> bytes:
        if event.object is None:
            document = _bookmark(f"meta.k8s.io/{version}", "PartialObjectMetadata", event)
            return _line(BOOKMARK, msgspec.json.encode(document))
        return _line(event.type, tables.partial(event.object.data, version))

    return lambda events: b"".join(map(encode_one, events))


class _TableEncoder:
    """One row in each event; only the first event has the column definitions."""

    def __init__(self, resource: Resource, kind: Kind, version: str, include: str, now: Callable[[], float]) -> None:
        self._columns = tables.columns_of(kind)
        self._definitions: list[Document] | None = tables.definitions(self._columns)
        self._resource = resource
        self._version = version
        self._include = include
        self._now = now

    def __call__(self, events: list[StoreEvent]) -> bytes:
        return b"".join(map(self._encode, events))

    def _encode(self, event: StoreEvent) -> bytes:
        rows = []
        if event.object is not None:
            document = event.object.document()
            rows = [tables.row(self._columns, document, self._now(), self._version, self._include)]
        metadata: Document = {"resourceVersion": str(event.version)}
        if event.initial_events_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        shown = tables.table(self._version, self._definitions or [], rows, metadata)
        if self._definitions is None:
            shown["columnDefinitions"] = None
        self._definitions = None
        return _line(event.type, msgspec.json.encode(shown))


def _bookmark(api_version: str, kind: str, event: StoreEvent) -> Document:
    metadata: Document = {"resourceVersion": str(event.version), "creationTimestamp": None}
    if event.initial_events_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return {"kind": kind, "apiVersion": api_version, "metadata": metadata}


def _line(type: str, data: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (type.encode(), data)


def _error_line(error: ApiError) -> bytes:
    return _line("ERROR", msgspec.json.encode(error.status()))
