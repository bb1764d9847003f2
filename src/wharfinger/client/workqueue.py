"""A queue of keys to process: deduplicated, never processed twice at the same time, retried with exponential back-off.

The semantics are those of client-go's `util/workqueue`: a key added while it is being processed is processed again
afterwards.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from wharfinger.client.timers import call_later
from wharfinger.client.waiters import wake_next

K = TypeVar("K", bound=Hashable)

BASE_DELAY, LIMIT_DELAY = 0.005, 60.0  # seconds: the first retry delay and the longest


class QueueClosed(Exception):
    """The queue was shut down and is empty."""


class _DueKeys(Generic[K]):
    """Keys that are added at the same time."""

    __slots__ = ("keys", "timer", "when")

    def __init__(self, when: float) -> None:
        self.when = when
        self.keys: dict[K, None] = {}  # ordered
        self.timer: asyncio.TimerHandle | None = None


class WorkQueue(Generic[K]):
    """First in, first out. `done` must be called for a key before the key is handed out again."""

    def __init__(
        self,
        *,
        base: float = BASE_DELAY,
        limit: float = LIMIT_DELAY,
        on_add: Callable[[K], None] | None = None,
    ) -> None:
        self._base = base
        self._limit = limit
        self._on_add = on_add
        self._ready: deque[K] = deque()
        self._wanted: set[K] = set()  # in `_ready`, or added again while being processed
        self._in_process: set[K] = set()
        self._failures: dict[K, int] = {}
        self._later: dict[tuple[K, bool, bool], _DueKeys[K]] = {}  # by key, background and refused
        self._due: dict[tuple[float, bool, bool], _DueKeys[K]] = {}  # by time, background and refused
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        """The number of keys that are ready."""
        return len(self._ready)

    @property
    def in_process(self) -> int:
        return len(self._in_process)

    def add(self, key: K) -> None:
        if self._closed or key in self._wanted:
            return
        self._wanted.add(key)
        if self._on_add is not None:
            self._on_add(key)
        if key not in self._in_process:
            self._ready.append(key)
            wake_next(self._waiters)

    def add_after(self, key: K, delay: float, *, background: bool = False, refused: bool = False) -> None:
        """Adds the key after `delay` seconds, unless an earlier addition is already pending.

        A `background` wait (expiry, resync) does not keep a simulation busy; one after a write that was `refused` does
        only if something else has changed since.
        """
        if self._closed:
            return
        if delay <= 0:
            self.add(key)
            return
        slot = (key, background, refused)
        when = asyncio.get_running_loop().time() + delay
        pending = self._later.get(slot)
        if pending is not None:
            if pending.when <= when:
                return
            self._withdraw(slot)
        # Keys that are due at the same time, as all are in a simulation that have waited equally long, share a timer.
        batch = self._due.get((when, background, refused))
        if batch is None:
            batch = self._due[when, background, refused] = _DueKeys(when)

            def fire(batch: _DueKeys[K] = batch) -> None:
                batch.timer = None  # it refers to the batch, too, and collections of cycles are rare
                self._due.pop((batch.when, background, refused), None)
                for each in batch.keys:
                    del self._later[each, background, refused]
                for each in batch.keys:
                    self.add(each)

            batch.timer = call_later(delay, fire, background=background, refused=refused)
        batch.keys[key] = None
        self._later[slot] = batch

    def _withdraw(self, slot: tuple[K, bool, bool]) -> None:
        batch = self._later.pop(slot)
        del batch.keys[slot[0]]
        if not batch.keys:
            self._due.pop((batch.when, *slot[1:]), None)
            if batch.timer is not None:
                batch.timer.cancel()

    def retry(self, key: K, *, limit: float | None = None, at_least: float = 0.0, refused: bool = False) -> float:
        """Adds the key after a delay that doubles with each failure since `forget`; returns the delay.

        Once the delay has reached its limit, the key no longer keeps a simulation busy; see `retry_now`.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        cap = self._limit if limit is None else limit
        delay = max(at_least, min(cap, self._base * 2.0 ** min(failures, 40)))
        self.add_after(key, delay, background=delay >= cap, refused=refused)
        return delay

    def retry_now(self) -> int:
        """Adds the keys whose delay has reached its limit without waiting for it; returns how many there are."""
        waiting = [slot for slot in self._later if slot[1] and slot[0] in self._failures] if self._failures else []
        for slot in waiting:
            self._withdraw(slot)
            self.add(slot[0])
        return len(waiting)

    def forget(self, key: K) -> None:
        """Resets the back-off of a key that succeeded."""
        if self._failures:
            self._failures.pop(key, None)

    async def get(self) -> K:
        """Waits for the next key; raises QueueClosed once the queue is shut down and empty."""
        while not self._ready:
            if self._closed:
                raise QueueClosed
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                elif not waiter.cancelled():
                    wake_next(self._waiters)  # pass the key on to another worker
                raise
        key = self._ready.popleft()
        self._wanted.discard(key)
        self._in_process.add(key)
        return key

    def done(self, key: K) -> None:
        self._in_process.discard(key)
        if key in self._wanted:
            self._ready.append(key)
            wake_next(self._waiters)

    def shut_down(self) -> None:
        """Stops accepting keys; workers drain the ready ones and then get QueueClosed."""
        self._closed = True
        for batch in self._due.values():
            if batch.timer is not None:
                batch.timer.cancel()
        self._due.clear()
        self._later.clear()
        while self._waiters:
            wake_next(self._waiters)
