"""The ledger: one counter of versions over all kinds, the writes in their order, and when they become durable.

A write is taken at once, so that the next one builds on it. Readers see it, and its writer is answered, when the back
end has it on disk. All writes that arrive while the back end is busy go to it together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from wharfinger.api.errors import ServiceUnavailable
from wharfinger.api.registry import Document, Kind
from wharfinger.store.collection import Change, Collection, Limits
from wharfinger.store.objects import Stored, arrange, encode, key_of
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


class Backend(Protocol):
    """Where rows go. A back end is used by one writer at a time."""

    durable_at_once: bool

    def load(self) -> tuple[int, Iterator[Row]]:
        """The last version, and all objects."""
        ...

    async def commit(self, rows: Iterable[Row], version: int) -> None:
        """Returns when all rows are durable; raises OSError, and keeps none of them, where that cannot be."""
        ...

    def close(self) -> None: ...


class Ledger:
    def __init__(self, backend: Backend, limits: Limits, now: Callable[[], float]) -> None:
        self._backend = backend
        self._limits = limits
        self._now = now
        self._collections: dict[tuple[str, str], Collection] = {}
        self._pending: list[tuple[Collection, Change]] = []
        self._writers: list[asyncio.Future[None]] = []
        self._committing: asyncio.Task[None] | None = None
        self._closed = False
        self._failure = ""  # why the last commit failed
        self._began = 0.0  # when the commit under way began
        last, rows = backend.load()
        self._taken = self.version = self._origin = max(last, 1)  # the past before the origin is unknown
        for row in rows:
            self._loaded(row)

    def _loaded(self, row: Row) -> None:
        assert row.data is not None
        collection = self.collection(row.group, row.plural)
        key = key_of(row.namespace, row.name)
        stored = Stored(row.namespace, row.name, row.uid, row.version, row.data, row.created)
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

    def put(self, kind: Kind, document: Document, before: Stored | None) -> tuple[Document, Stored]:
        """Takes a new state of an object; the answer is the document with its version, and its stored form."""
        version = self._next()
        document = arrange(document, version)
        metadata = document["metadata"]
        collection = self.collection(kind.group, kind.plural)
        stored = Stored(
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

    def remove(self, kind: Kind, before: Stored) -> Stored:
        """Takes the removal of an object; the answer is its last state, under the version of the removal."""
        version = self._next()
        collection = self.collection(kind.group, kind.plural)
        collection.latest.remove(key_of(before.namespace, before.name))
        change = collection.change(before, None, version, self._now())
        self._take(collection, change)
        assert change.event.object is not None
        return change.event.object

    def _take(self, collection: Collection, change: Change) -> None:
        if self._backend.durable_at_once:
            self.version = change.version
            collection.publish(change)
        else:
            self._pending.append((collection, change))

    async def settled(self) -> None:
        """Returns when everything taken so far is durable and shown to readers."""
        if not self._pending:
            return
        writer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writers.append(writer)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit(), name="store commits")
        await writer

    async def _commit(self) -> None:
        try:
            while self._pending:
                pending, self._pending = self._pending, []
                writers, self._writers = self._writers, []
                self._began = self._now()
                try:
                    await self._backend.commit([_row(*entry) for entry in pending], pending[-1][1].version)
                except OSError as error:
                    self._failure = str(error)
                    self._abandon(pending, writers, error)
                    continue
                self._failure = ""
                self.version = pending[-1][1].version
                for collection, change in pending:
                    collection.publish(change)
                for writer in writers:
                    if not writer.done():
                        writer.set_result(None)
        finally:
            self._committing = None

    @property
    def fault(self) -> str:
        """What keeps writes from becoming durable; empty when all is well."""
        if self._closed:
            return "the store is closed"
        waited = self._now() - self._began
        if self._committing is not None and waited > _SLOW:
            return f"a write to disk has been under way for {waited:.0f} s"
        return self._failure

    def _abandon(
        self, pending: list[tuple[Collection, Change]], writers: list[asyncio.Future[None]], error: OSError
    ) -> None:
        """Forgets writes that could not be made durable, and those taken since, which may build on them."""
        later, self._pending = self._pending, []
        writers, self._writers = writers + self._writers, []
        for collection, change in pending + later:
            stored = collection.visible.objects.get(change.key)
            if stored is None:
                collection.latest.remove(change.key)
            else:
                collection.latest.put(change.key, stored)
        for writer in writers:
            if not writer.done():
                writer.set_exception(ServiceUnavailable(f"the store cannot write its data: {error}"))

    async def close(self) -> None:
        self._closed = True
        while self._committing is not None:
            await asyncio.wait([self._committing])
        for collection in self._collections.values():
            collection.close()
        self._backend.close()


def _row(collection: Collection, change: Change) -> Row:
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

    async def commit(self, rows: Iterable[Row], version: int) -> None:
        raise AssertionError("nothing waits for memory")

    def close(self) -> None:
        pass
