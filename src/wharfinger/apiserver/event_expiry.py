"""Events end an hour after they were last written, as in Kubernetes.

Versions tell the time: what is not newer than the version of an hour ago was last written before then. Of events found at
the start that is not known; their own times count.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from wharfinger.api.kinds.builtin import EVENTS
from wharfinger.api.times import BadTime, parse_time
from wharfinger.store.objects import StoredObject
from wharfinger.store.store import Store

LIFETIME = 3600.0
_EVERY = 60.0
_AT_ONCE = 500  # events looked at or removed before others get their turn


class _Metadata(msgspec.Struct):
    creationTimestamp: str = ""  # noqa: N815 - as on the wire


class _Series(msgspec.Struct):
    lastObservedTime: str | None = None  # noqa: N815


class _Times(msgspec.Struct):
    metadata: _Metadata
    lastTimestamp: str | None = None  # noqa: N815
    series: _Series | None = None


_decode = msgspec.json.Decoder(_Times).decode


class EventExpiry:
    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._found = store.version  # events up to this version were there at the start
        self._marks: deque[tuple[float, int]] = deque()  # times, and the versions then
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="expiry of events")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self.sweep()
            await asyncio.sleep(_EVERY)

    async def sweep(self) -> int:
        """Removes what has expired; how many events that were."""
        now = self._now()
        self._marks.append((now, self._store.version))
        old = 0  # up to this version, everything was last written more than a lifetime ago
        while self._marks and self._marks[0][0] <= now - LIFETIME:
            old = self._marks.popleft()[1]
        if old:
            self._marks.appendleft((now - LIFETIME, old))
        gone = 0
        held = list(self._store.scan(EVENTS))
        for start in range(0, len(held), _AT_ONCE):
            expired = [one for one in held[start : start + _AT_ONCE] if self._expired(one, old, now)]
            gone += await self._store.expire(EVENTS, expired)
            await asyncio.sleep(0)
        return gone

    def _expired(self, event: StoredObject, old: int, now: float) -> bool:
        if event.version <= old:
            return True
        return event.version <= self._found and _last_written(event, now) <= now - LIFETIME


def _last_written(event: StoredObject, now: float) -> float:
    """The latest of an event's own times that has passed."""
    times = _decode(event.data)
    texts = (times.metadata.creationTimestamp, times.lastTimestamp, times.series and times.series.lastObservedTime)
    found = []
    for text in texts:
        try:
            found.append(parse_time(text) if text else 0.0)
        except BadTime:
            continue
    return max((time for time in found if time <= now), default=now)
