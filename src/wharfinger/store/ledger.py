"""The ledger: one version counter for all kinds, the order of writes, and their durability.

A write is accepted immediately, so that the next write builds on it. It becomes visible to readers, and its writer gets a
response, once the back end has it on disk. The back end runs beside the event loop and commits together all writes that
arrive while it is busy.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from wharfinger.api.errors import ServiceUnavailable, TooLarge
from wharfinger.api.kinds.builtin import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    EVENTS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from wharfinger.api.registry import Document, Kind
from wharfinger.store.collection import Collection, Limits, ObjectChange
from wharfinger.store.contents import EventContent, PodContent, head_of
from wharfinger.store.objects import StoredObject, arrange, encode, key_of
from wharfinger.store.selection import selectable_fields

MAX_OBJECT = 3 * 512 * 1024  # bytes of an object as stored: the size of a request that etcd accepts
BUSY = frozenset(
    (kind.group, kind.plural)
    for kind in (
        CONTROLLER_REVISIONS,
        DAEMON_SETS,
        DEPLOYMENTS,
        ENDPOINT_SLICES,
        ENDPOINTS,
        EVENTS,
        JOBS,
        LEASES,
        NODES,
        PODS,
        REPLICA_SETS,
        STATEFUL_SETS,
    )
)
"""Kinds whose objects change all the time. Objects of all others are settings, which admission may depend on."""
_STUCK_COMMIT = 10.0  # seconds after which a commit is reported as stuck


class Row(msgspec.Struct, frozen=True, gc=False):
    """One object as a back end stores it; a removal has no data."""

    created: int
    version: int
    group: str
    plural: str
    namespace: str
    name: str
    uid: str
    data: bytes | None


class CommitListener(Protocol):
    """Is notified of commits, in order and in the event loop."""

    def durable(self, version: int) -> None:
        """All writes up to this version are on disk."""
        ...

    def failed(self, error: OSError) -> None:
        """All writes not reported as durable are lost."""
        ...


class Backend(Protocol):
    """Stores rows."""

    durable_at_once: bool

    def load(self) -> tuple[int, Iterator[Row]]:
        """Returns the last version and all objects."""
        ...

    def commit(self, rows: Sequence[Row], version: int, listener: CommitListener) -> None:
        """Starts to write rows, all or none, after those of earlier calls.

        After a failure, later rows are dropped too, since they may build on the lost ones, until `resume` is called.
        """
        ...

    def resume(self) -> None:
        """Accepts commits again: the listener has rolled back the lost writes."""
        ...

    def close(self) -> None: ...


class WriteLedger:
    def __init__(self, backend: Backend, limits: Limits, now: Callable[[], float]) -> None:
        self._backend = backend
        self._limits = limits
        self._now = now
        self._collections: dict[tuple[str, str], Collection] = {}
        self._unsent: list[tuple[Collection, ObjectChange]] = []  # accepted, not yet passed to the back end
        self._sending = False  # they will be, in this iteration of the event loop
        self._sent: deque[tuple[Collection, ObjectChange]] = deque()  # passed to the back end, not yet durable
        self._writers: deque[tuple[int, asyncio.Future[None]]] = deque()  # waiting for a version to become durable
        self.settings = 0  # number of changes of objects that are not of a busy kind
        self._forgets = False
        self._closed = False
        self._failure = ""  # why the last commit failed
        self._began = 0.0  # when the oldest pending commit started
        last, rows = backend.load()
        self._accepted = self.version = self._origin = max(last, 1)  # there is no history before the origin
        for row in rows:
            self._load(row)

    def _load(self, row: Row) -> None:
        assert row.data is not None
        collection = self.collection(row.group, row.plural)
        key = key_of(row.namespace, row.name)
        stored = StoredObject(row.namespace, row.name, row.uid, row.version, row.data, row.created)
        collection.latest.put(key, stored)
        if collection.visible is not collection.latest:
            collection.visible.put(key, stored)

    def collection(self, group: str, plural: str) -> Collection:
        found = self._collections.get((group, plural))
        if found is None:
            found = Collection(group, plural, self._limits, self._origin, durable_at_once=self._backend.durable_at_once)
            found.forgets = self._forgets
            found.busy = (group, plural) in BUSY
            self._collections[group, plural] = found
        return found

    @property
    def durable_at_once(self) -> bool:
        return self._backend.durable_at_once

    def forget_read_changes(self) -> None:
        self._forgets = True
        for collection in self._collections.values():
            collection.forgets = True

    def changes(self, after: int) -> list[tuple[str, ObjectChange]]:
        """All durable changes later than a version, in their order, each with the plural of its kind."""
        found = [
            (collection.plural, change)
            for collection in self._collections.values()
            if collection.changes and collection.changes[-1].version > after
            for change in collection.since(after)
        ]
        found.sort(key=lambda each: each[1].version)
        return found

    def _next(self) -> int:
        if self._closed:
            raise ServiceUnavailable("the store is closed")
        self._accepted += 1
        return self._accepted

    def put(self, kind: Kind, document: Document, before: StoredObject | None) -> tuple[Document, StoredObject]:
        """Accepts a new state of an object; returns the document with its version, and the stored object."""
        version = self._next()
        document = arrange(document, version)
        data = encode(document)
        self._check_size(len(data))
        metadata = document["metadata"]
        collection = self.collection(kind.group, kind.plural)
        stored = StoredObject(
            metadata.get("namespace", ""),
            metadata["name"],
            metadata["uid"],
            version,
            data,
            before.created if before is not None else version,
            metadata.get("labels") or {},
            # Computed from the document only if field selectors are in use; otherwise from the bytes when needed. Those of
            # a custom kind may change.
            selectable_fields(kind, document) if collection.selected_by_field and not kind.custom else None,
        )
        self._publish(kind, collection, before, stored)
        return document, stored

    def put_content(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        uid: str,
        content: bytes | PodContent | EventContent,
        before: StoredObject | None,
        labels: Mapping[str, str] | None,
        fields: tuple[str, ...] | None = None,
    ) -> StoredObject:
        """Accepts a new state of an object that need not be encoded. Bytes are what follows its version, see `head_of`. Labels
        and selectable fields that are None are read from it when they are needed."""
        version = self._next()
        if isinstance(content, bytes):
            content = head_of(kind.storage, namespace, name, uid, version) + content
            self._check_size(len(content))
        else:
            self._check_size(content.size)
        collection = self.collection(kind.group, kind.plural)
        created = before.created if before is not None else version
        stored = StoredObject(namespace, name, uid, version, content, created, labels, fields)
        self._publish(kind, collection, before, stored)
        return stored

    def replace(
        self, kind: Kind, before: StoredObject, content: bytes | PodContent, fields: tuple[str, ...] | None = None
    ) -> StoredObject:
        """Accepts a new state, with the same labels, of an object that need not be encoded."""
        return self.put_content(
            kind, before.namespace, before.name, before.uid, content, before, before._labels, fields
        )

    def _check_size(self, size: int) -> None:
        if size > MAX_OBJECT:
            self._accepted -= 1  # nothing was accepted
            raise TooLarge("etcdserver: request is too large")

    def _publish(self, kind: Kind, collection: Collection, before: StoredObject | None, stored: StoredObject) -> None:
        if not (collection.busy or kind.churns):
            self.settings += 1
        key = key_of(stored.namespace, stored.name)
        collection.latest.put(key, stored)
        self._accept(collection, collection.change(key, before, stored, stored.version, self._now()))

    def remove(self, kind: Kind, before: StoredObject) -> StoredObject:
        """Accepts the removal of an object; returns its last state with the version of the removal."""
        version = self._next()
        collection = self.collection(kind.group, kind.plural)
        if not (collection.busy or kind.churns):
            self.settings += 1
        key = key_of(before.namespace, before.name)
        collection.latest.remove(key)
        change = collection.change(key, before, None, version, self._now())
        self._accept(collection, change)
        assert change.event.object is not None
        return change.event.object

    def _accept(self, collection: Collection, change: ObjectChange) -> None:
        if self._backend.durable_at_once:
            self.version = change.version
            collection.publish(change)
        else:
            self._unsent.append((collection, change))

    async def settled(self) -> None:
        """Returns when all writes accepted so far are durable and visible to readers."""
        if not (self._unsent or self._sent):
            return
        loop = asyncio.get_running_loop()
        if self._unsent and not self._sending:
            # Together with what the other requests that have arrived write: each commit waits for the disk once.
            self._sending = True
            loop.call_soon(self._send)
        writer: asyncio.Future[None] = loop.create_future()
        self._writers.append((self._accepted, writer))
        await writer

    def _send(self) -> None:
        self._sending = False
        unsent, self._unsent = self._unsent, []
        if not unsent:  # lost by a commit that failed meanwhile
            return
        if not self._sent:
            self._began = self._now()
        self._sent += unsent
        self._backend.commit([_row(*entry) for entry in unsent], unsent[-1][1].version, self)

    def durable(self, version: int) -> None:
        sent, writers = self._sent, self._writers
        self._failure = ""
        self._began = self._now()
        self.version = version
        while sent and sent[0][1].version <= version:
            collection, change = sent.popleft()
            collection.publish(change)
        while writers and writers[0][0] <= version:
            _, writer = writers.popleft()
            if not writer.done():
                writer.set_result(None)

    def failed(self, error: OSError) -> None:
        """Rolls back the writes that were lost and those accepted since, which may build on them."""
        self._failure = str(error)
        lost = [*self._sent, *self._unsent]
        self._sent.clear()
        self._unsent = []
        self._backend.resume()
        self.settings += 1  # some of them may be lost
        for collection, change in lost:
            stored = collection.visible.objects.get(change.key)
            if stored is None:
                collection.latest.remove(change.key)
            else:
                collection.latest.put(change.key, stored)
        writers, self._writers = self._writers, deque()
        for _, writer in writers:
            if not writer.done():
                writer.set_exception(ServiceUnavailable(f"the store cannot write its data: {error}"))

    @property
    def fault(self) -> str:
        """Why writes do not become durable; empty when they do."""
        if self._closed:
            return "the store is closed"
        waited = self._now() - self._began
        if self._sent and waited > _STUCK_COMMIT:
            return f"a write to disk has been under way for {waited:.0f} s"
        return self._failure

    async def close(self) -> None:
        self._closed = True
        with suppress(ServiceUnavailable):  # the writers have received it
            await self.settled()
        for collection in self._collections.values():
            collection.close()
        self._backend.close()


def _row(collection: Collection, change: ObjectChange) -> Row:
    stored = change.after or change.before
    assert stored is not None
    return Row(
        stored.created,
        change.version,
        collection.group,
        collection.plural,
        stored.namespace,
        stored.name,
        stored.uid,
        change.after.data if change.after is not None else None,
    )


class Memory:
    """The back end that stores nothing: a write counts as durable when it is accepted."""

    durable_at_once = True

    def load(self) -> tuple[int, Iterator[Row]]:
        return 0, iter(())

    def commit(self, rows: Sequence[Row], version: int, listener: CommitListener) -> None:
        raise AssertionError("writes to memory are durable at once")

    def resume(self) -> None:
        pass

    def close(self) -> None:
        pass
