"""A watch: the events of one kind after a version, read from the kind's history at the watcher's own pace.

A watch stores only its position in the history. A watch that falls behind the history ends with Expired.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from wharfinger.api.errors import Expired, ServerTimeout
from wharfinger.store.collection import Collection, ObjectChange
from wharfinger.store.interests import WaitingWatch
from wharfinger.store.objects import ADDED, BOOKMARK, DELETED, MODIFIED, StoredObject, StoreEvent
from wharfinger.store.selection import ObjectSelector
from wharfinger.store.versions import ConversionNeeded

Present = Callable[[StoredObject], StoredObject]
"""Converts an object into the served version that the watcher requested."""
PresentAll = Callable[[Sequence[StoredObject]], Awaitable[list[StoredObject]]]
"""The same for several objects, where somebody else has to be asked."""


class Versioned(Protocol):
    @property
    def version(self) -> int: ...


def too_large(version: int, current: int) -> ServerTimeout:
    return ServerTimeout(
        f"Too large resource version: {version}, current: {current}",
        details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
        retry_after=1,
    )


class Watch:
    """An asynchronous iterator of events; `batch` returns all that are ready."""

    def __init__(
        self,
        collection: Collection,
        source: Versioned,
        selection: ObjectSelector,
        prefix: str = "",
        *,
        after: int | None,
        initial_events: bool = False,
        bookmark_every: float | None = None,
        present: Present | None = None,
        present_all: PresentAll | None = None,
    ) -> None:
        self._collection = collection
        self._source = source
        self._selection = selection
        self._prefix = prefix
        self._present = present
        self._plain = selection.empty and not prefix and present is None
        self._present_all = present_all
        # Whether somebody may have to be asked for the version in which the first objects are selected.
        self._selects_later = present_all is not None and selection.converts
        self._bookmark_every = bookmark_every
        self._bookmark_timer: asyncio.TimerHandle | None = None
        self._quiet_since = 0.0  # when it began to wait for a change
        self._closed = False
        self._waiting: WaitingWatch | None = None
        self._interest = selection.interest(prefix) if collection.finds_watches else None
        self._initial: list[StoreEvent] = []
        self._after = after or 0  # changes up to this version have been seen
        if initial_events or not after:
            if self._after > source.version:
                raise too_large(self._after, source.version)
            self._after = source.version
            self._initial = self._state(initial_events)
        elif self._after < collection.compacted:
            raise self._too_old()
        self._next = collection.number_after(self._after)
        self._concerning: deque[int] = deque()  # numbers of the changes that concern the watch...
        self._known = 0  # ...among those before this number
        collection.readers.add(self)

    def _state(self, marked: bool) -> list[StoreEvent]:
        """The current state as events, in reverse order because they are popped from the end."""
        selection, index = self._selection, self._collection.visible
        objects = (index.objects[key] for key in selection.keys(index, self._prefix))
        events = [
            StoreEvent(ADDED, self._shown(stored), stored.version)
            for stored in objects
            if selection.empty or self._selects_later or selection.matches(stored)
        ]
        if marked:
            events.append(StoreEvent(BOOKMARK, None, self._after, initial_events_end=True))
        events.reverse()
        return events

    def _shown(self, stored: StoredObject) -> StoredObject:
        return stored if self._present is None else self._present(stored)

    def _too_old(self) -> Expired:
        return Expired(f"too old resource version: {self._after} ({self._collection.compacted})")

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> StoreEvent:
        event = await self._event()
        return event if self._present_all is None else (await self._converted([event], self._present_all))[0]

    async def _event(self) -> StoreEvent:
        """The next event, which may have to be converted."""
        while True:
            try:
                event = self._ready()
            except ConversionNeeded as needed:
                await needed.resolve()
                continue
            if event is not None:
                return event
            if self._closed or self._collection.closed:
                raise StopAsyncIteration
            await self._change()
            if self._bookmark_every is not None and self._idle():
                return self.bookmark()

    async def _change(self) -> None:
        """Waits for a change that may concern the watch, its end, or the time of the next bookmark."""
        loop = asyncio.get_running_loop()
        waiting = WaitingWatch(loop)
        self._waiting = waiting
        self._collection.await_change(waiting, self._interest)
        if self._bookmark_every is not None:
            self._quiet_since = loop.time()
            if self._bookmark_timer is None:
                self._bookmark_timer = loop.call_later(self._bookmark_every, self._bookmark_due, loop)
        try:
            await waiting.woken
        finally:
            self._collection.give_up(waiting, self._interest)
            if self._interest is not None:
                self._concerning, self._known = waiting.numbers, self._collection.end
                self._skip()

    def _bookmark_due(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wakes the watch if nothing has changed for long enough. One timer serves many waits: starting and cancelling one
        for each costs more than finding the change."""
        self._bookmark_timer = None
        if self._waiting is None or self._waiting.woken.done() or self._bookmark_every is None:
            return  # the next wait starts a timer
        due = self._quiet_since + self._bookmark_every
        if loop.time() < due:
            self._bookmark_timer = loop.call_at(due, self._bookmark_due, loop)
        else:
            self._waiting.wake()

    def _skip(self) -> None:
        """Goes on to the next change that concerns the watch, or to the first one of which that is not known."""
        if self._next < self._known:
            self._next = self._concerning[0] if self._concerning else self._known

    async def batch(self, most: int = 500) -> list[StoreEvent]:
        """Waits for events and returns all that are ready; an empty list is the end of the watch."""
        if self._plain and self._present_all is None:
            return await self._plain_batch(most)
        try:
            events = [await self._event()]
        except StopAsyncIteration:
            return []
        events += self._take(most - 1)
        return events if self._present_all is None else await self._converted(events, self._present_all)

    async def _plain_batch(self, most: int) -> list[StoreEvent]:
        """The same of a watch to which every change is an event, as those of informers are."""
        while not (events := self._take(most)):
            if self._closed or self._collection.closed:
                break
            await self._change()
            if self._bookmark_every is not None and self._idle():
                return [self.bookmark()]
        return events

    async def _converted(self, events: Sequence[StoreEvent], present_all: PresentAll) -> list[StoreEvent]:
        """Events with their objects in the requested version."""
        objects = await present_all([event.object for event in events if event.object is not None])
        shown = iter(objects)
        return [event if event.object is None else replace(event, object=next(shown)) for event in events]

    def ready(self, most: int) -> list[StoreEvent]:
        """The next events that need not be awaited, at most so many."""
        return self._take(most) if self._present_all is None else []

    def _take(self, most: int) -> list[StoreEvent]:
        if self._plain and not self._initial:
            return self._take_plain(most)
        events: list[StoreEvent] = []
        while len(events) < most:
            try:
                event = self._ready()
            except ConversionNeeded:
                break  # the next one is awaited
            if event is None:
                break
            events.append(event)
        return events

    def _take_plain(self, most: int) -> list[StoreEvent]:
        """As `_take`, of a watch to which every change is an event."""
        collection = self._collection
        position = self._next - collection.first
        if position < 0:
            raise self._too_old()
        changes = collection.changes[position : position + most]
        self._next += len(changes)
        after = self._after
        events = [change.event for change in changes if change.version > after]
        if changes:
            self._after = max(after, changes[-1].version)
        return events

    def bookmark(self) -> StoreEvent:
        """A bookmark at the current position: all changes up to its version have been seen."""
        if self._idle() and not self._initial:
            self._after = max(self._after, self._source.version)
        return StoreEvent(BOOKMARK, None, self._after)

    @property
    def position(self) -> int:
        """The number of the next change in the history."""
        return self._next

    def close(self) -> None:
        """Ends the watch once the events that are ready have been read."""
        self._closed = True
        self._collection.readers.discard(self)
        if self._bookmark_timer is not None:
            self._bookmark_timer.cancel()
            self._bookmark_timer = None
        if self._waiting is not None:
            self._waiting.wake()

    def _idle(self) -> bool:
        return self._next == self._collection.end

    def _ready(self) -> StoreEvent | None:
        """The next event; None if there is none yet. Raises ConversionNeeded if that has to be found out first."""
        while self._initial:
            first = self._initial[-1]
            selected = not self._selects_later or first.object is None or self._selection.matches(first.object)
            self._initial.pop()
            if selected:
                return first
        collection = self._collection
        while True:
            position = self._next - collection.first
            if position < 0:
                raise self._too_old()
            if position >= len(collection.changes):
                return None
            change = collection.changes[position]
            event: StoreEvent | None = None
            if change.version > self._after:
                if change.key.startswith(self._prefix):
                    event = change.event if self._selection.empty else self._selected(change)
                self._after = change.version
            self._next += 1
            if self._concerning:
                self._concerning.popleft()
                self._skip()
            if event is None:
                continue
            if self._present is not None and event.object is not None:
                return StoreEvent(event.type, self._present(event.object), event.version)
            return event

    def _selected(self, change: ObjectChange) -> StoreEvent | None:
        """The event for a change: an object that starts to match is ADDED, one that no longer matches is DELETED."""
        before, after, version = change.before, change.after, change.version
        had = before is not None and self._selection.matches(before)
        has = after is not None and self._selection.matches(after)
        if has:
            kind = MODIFIED if had else ADDED
            return change.event if change.event.type == kind else StoreEvent(kind, after, version)
        if had and before is not None:
            return change.event if after is None else StoreEvent(DELETED, before.at_version(version), version)
        return None
