"""Time for live components: the wall clock as a value, and timers that do not keep a simulation busy.

Components wait with `asyncio.sleep`, so that their event loop alone knows time. What merely keeps things fresh (lease
renewal, resync, garbage-collection sweeps, expiry) waits inside `background()`: a simulation is idle when only such
timers are left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

_BACKGROUND: ContextVar[bool] = ContextVar("wharfinger_background_timer", default=False)


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.time()


class LoopClock:
    """The wall clock of a loop whose time is virtual: a start, and what the loop has lived through since."""

    def __init__(self, start: float, loop: asyncio.AbstractEventLoop) -> None:
        self._start = start - loop.time()
        self._loop = loop

    def now(self) -> float:
        return self._start + self._loop.time()


@contextmanager
def background() -> Iterator[None]:
    """Timers started inside are background timers."""
    token = _BACKGROUND.set(True)
    try:
        yield
    finally:
        _BACKGROUND.reset(token)


def in_background() -> bool:
    """Whether a timer started now would be a background timer; the virtual loop asks this of a timer's context."""
    return _BACKGROUND.get()


async def background_sleep(seconds: float) -> None:
    with background():
        await asyncio.sleep(seconds)


def call_later(delay: float, callback: Callable[[], None], *, background: bool) -> asyncio.TimerHandle:
    """Calls back after `delay`. What the callback starts is in the foreground again, whichever way it was called."""

    def fire() -> None:
        _BACKGROUND.set(False)  # in the timer's own copy of the context
        callback()

    token = _BACKGROUND.set(background)
    try:
        return asyncio.get_running_loop().call_later(delay, fire)
    finally:
        _BACKGROUND.reset(token)
