"""The ledger: one counter of versions over all kinds, the writes in their order, and when they become durable.

A write is taken at once, so that the next one builds on it. Readers see it, and its writer is answered, when the back
end has it on disk. The back end works beside the event loop: what comes while it is busy it writes together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from wharfinger.api.errors import ServiceUnavailable
from wharfinger.api.registry import Document, Kind
from wharfinger.store.collection import Collection, Limits, ObjectChange
from wharfinger.store.objects import StoredObject, arrange, encode, key_of
from wharfinger.store.selection import selectable_fields

_SLOW = 10.0  # seconds after which a commit counts as stuck


class Row(msgspec.Struct, frozen=True, gc=False):
    """One object as a back end keeps it; without data, its removal."""

    created: int
    version: int
    group: str
    plural: str
    namespace: str
    name: str
    uid: str
    data: bytes | None


class CommitListener(Protocol):
    """Who hears from a back end, in the event loop and in the order of commits."""

    def durable(self, version: int) -> None:
        """Everything up to this version is on disk."""
        ...

    def failed(self, error: OSError) -> None:
        """What was not said to be durable is not, and never will be."""
        ...


class Backend(Protocol):
    """Where rows go."""

    durable_at_once: bool

    def load(self) -> tuple[int, Iterator[Row]]:
        """The last version, and all objects."""
        ...

    def commit(self, rows: Sequence[Row], version: int, told: CommitListener) -> None:
        """Begins to make rows durable, all or none, after those given before. Where that fails, those given since, which
        may build on them, are dropped too until `resume`."""
        ...

    def resume(self) -> None:
        """Whoever was told of a failure has forgotten what was lost."""
        ...

    def close(self) -> None: ...


class Ledger:
    def __init__(self, backend: Backend, limits: Limits, now: Callable[[], float]) -> None:
        self._backend = backend
        self._limits = limits
        self._now = now
        self._collections: dict[tuple[str, str], Collection] = {}
        self._unsent: list[tuple[Collection, ObjectChange]] = []  # taken, and not yet given to the back end
        self._sent: deque[tuple[Collection, ObjectChange]] = deque()  # given to it, and not yet durable
        self._writers: deque[tuple[int, asyncio.Future[None]]] = deque()  # who waits until a version is durable
        self._closed = False
        self._failure = ""  # why the last commit failed
        self._began = 0.0  # since when the oldest of what is not yet durable has waited
        last, rows = backend.load()
        self._taken = self.version = self._origin = max(last, 1)  # the past before the origin is unknown
        for row in rows:
            self._loaded(row)

    def _loaded(self, row: Row) -> None:
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
            self._collections[group, plural] = found
        return found

    def _next(self) -> int:
        if self._closed:
            raise ServiceUnavailable("the store is closed")
        self._taken += 1
        return self._taken

    def put(self, kind: Kind, document: Document, before: StoredObject | None) -> tuple[Document, StoredObject]:
        """Takes a new state of an object; the answer is the document with its version, and its stored form."""
        version = self._next()
        document = arrange(document, version)
        metadata = document["metadata"]
        collection = self.collection(kind.group, kind.plural)
        stored = StoredObject(
            metadata.get("namespace", ""),
            metadata["name"],
            metadata["uid"],
            version,
            encode(document),
            before.created if before is not None else version,
            metadata.get("labels") or {},
            # Worked out from the document at hand only where someone selects by them; else from the bytes if need be.
            selectable_fields(kind, document) if collection.selected_by_field else None,
        )
        collection.latest.put(key_of(stored.namespace, stored.name), stored)
        self._take(collection, collection.change(before, stored, version, self._now()))
        return document, stored

    def remove(self, kind: Kind, before: StoredObject) -> StoredObject:
        """Takes the removal of an object; the answer is its last state, under the version of the removal."""
        version = self._next()
        collection = self.collection(kind.group, kind.plural)
        collection.latest.remove(key_of(before.namespace, before.name))
        change = collection.change(before, None, version, self._now())
        self._take(collection, change)
        assert change.event.object is not None
        return change.event.object

    def _take(self, collection: Collection, change: ObjectChange) -> None:
        if self._backend.durable_at_once:
            self.version = change.version
            collection.publish(change)
        else:
            self._unsent.append((collection, change))

    async def settled(self) -> None:
        """Returns when everything taken so far is durable and shown to readers."""
        if self._unsent:
            self._send()
        elif not self._sent:
            return
        writer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writers.append((self._taken, writer))
        await writer

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
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
        """Forgets writes that could not be made durable, and those taken since, which may build on them."""
        self._failure = str(error)
        lost = [*self._sent, *self._unsent]
        self._sent.clear()
        self._unsent = []
        self._backend.resume()
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
        """What keeps writes from becoming durable; empty when all is well."""
        if self._closed:
            return "the store is closed"
        waited = self._now() - self._began
        if self._sent and waited > _SLOW:
            return f"a write to disk has been under way for {waited:.0f} s"
        return self._failure

    async def close(self) -> None:
        self._closed = True
        with suppress(ServiceUnavailable):  # which the writers have been told
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
    """The back end that keeps nothing: a write is as durable as it will ever be when it is taken."""

    durable_at_once = True

    def load(self) -> tuple[int, Iterator[Row]]:
        return 0, iter(())

    def commit(self, rows: Sequence[Row], version: int, told: CommitListener) -> None:
        raise AssertionError("nothing waits for memory")

    def resume(self) -> None:
        pass

    def close(self) -> None:
        pass
