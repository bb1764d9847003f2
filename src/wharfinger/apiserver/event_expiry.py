"""Events expire one hour after they were last written, as in Kubernetes, or earlier if there are very many.

A cluster with many pods that come and go writes more events in an hour than anybody reads. Beyond `MOST` of them, the oldest
of the namespaces with the most events go first, so that no namespace takes away the events of others.

The age of an event follows from its resource version: the store's version is recorded every minute, and everything up to the
version of an hour ago has expired. For events from before the start of the server, their own timestamps are used.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from wharfinger.api.kinds.builtin import EVENTS
from wharfinger.api.times import BadTime, parse_time
from wharfinger.client.memory import return_freed_memory
from wharfinger.client.tasks import OwnedTask
from wharfinger.store.objects import StoredObject
from wharfinger.store.store import Store

LIFETIME = 3600.0
MOST = 15_000  # events that are kept
_INTERVAL = 60.0  # seconds
_BATCH = 500  # events handled before other tasks get to run


class _EventMetadata(msgspec.Struct):
    creationTimestamp: str = ""  # noqa: N815 - as on the wire


class _EventSeries(msgspec.Struct):
    lastObservedTime: str | None = None  # noqa: N815


class _EventTimes(msgspec.Struct):
    metadata: _EventMetadata
    lastTimestamp: str | None = None  # noqa: N815
    series: _EventSeries | None = None


_decode = msgspec.json.Decoder(_EventTimes).decode


class EventExpiry(OwnedTask):
    task_name = "expiry of events"

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._initial = store.version  # events up to this version existed before the start
        self._marks: deque[tuple[float, int]] = deque()  # times with the store's version at that time

    async def _run(self) -> None:
        while True:
            await self.sweep()
            return_freed_memory()  # what expired is scattered over the heap
            await asyncio.sleep(_INTERVAL)

    async def sweep(self) -> int:
        """Removes expired events; returns their number."""
        now = self._now()
        self._marks.append((now, self._store.version))
        old = 0  # everything up to this version was written more than a lifetime ago
        while self._marks and self._marks[0][0] <= now - LIFETIME:
            old = self._marks.popleft()[1]
        if old:
            self._marks.appendleft((now - LIFETIME, old))
        removed = 0
        kept: list[StoredObject] = []
        events = list(self._store.scan(EVENTS))
        for start in range(0, len(events), _BATCH):
            expired: list[StoredObject] = []
            for one in events[start : start + _BATCH]:
                (expired if self._expired(one, old, now) else kept).append(one)
            removed += await self._store.expire(EVENTS, expired)
            await asyncio.sleep(0)
        surplus = _surplus(kept)
        for start in range(0, len(surplus), _BATCH):
            removed += await self._store.expire(EVENTS, surplus[start : start + _BATCH])
            await asyncio.sleep(0)
        return removed

    def _expired(self, event: StoredObject, old: int, now: float) -> bool:
        if event.version <= old:
            return True
        return event.version <= self._initial and _last_written(event, now) <= now - LIFETIME


def _surplus(events: Sequence[StoredObject]) -> list[StoredObject]:
    """Those beyond `MOST`: the oldest of the namespaces with the most."""
    if len(events) <= MOST:
        return []
    by_namespace: dict[str, list[StoredObject]] = {}
    for event in events:
        by_namespace.setdefault(event.namespace, []).append(event)
    share = _equal_share(map(len, by_namespace.values()), MOST)
    surplus = []
    for found in by_namespace.values():
        found.sort(key=lambda event: event.version)
        surplus += found[: max(0, len(found) - share)]
    return surplus


def _equal_share(counts: Iterable[int], total: int) -> int:
    """How many each may keep at most so that all together keep no more than `total`."""
    left = sorted(counts)
    share = 0
    for position, count in enumerate(left):
        share = total // (len(left) - position)
        if count > share:
            break
        total -= count
    return share


def _last_written(event: StoredObject, now: float) -> float:
    """The latest of an event's timestamps that is not in the future."""
    times = _decode(event.data)
    texts = (times.metadata.creationTimestamp, times.lastTimestamp, times.series and times.series.lastObservedTime)
    found = []
    for text in texts:
        try:
            found.append(parse_time(text) if text else 0.0)
        except BadTime:
            continue
    return max((time for time in found if time <= now), default=now)
