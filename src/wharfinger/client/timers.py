"""Time for live components: the wall clock as a value, and background timers, which do not keep a simulation busy.

Components wait with `asyncio.sleep`, so that only the event loop knows the time. Periodic upkeep (lease renewal, resync,
garbage collection, expiry) waits inside `background()`: a simulation is idle when only such timers are left. The retry of
a write that the API refused is work only if something has changed that may let it in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

_BACKGROUND: ContextVar[bool] = ContextVar("wharfinger_background_timer", default=False)

_REFUSED: ContextVar[bool] = ContextVar("wharfinger_refused_retry", default=False)


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.time()


class LoopClock:
    """The wall clock of a loop with virtual time: a start time plus the time that has passed on the loop."""

    def __init__(self, start: float, loop: asyncio.AbstractEventLoop) -> None:
        self._start = start - loop.time()
        self._time = loop.time

    def now(self) -> float:
        return self._start + self._time()


@contextmanager
def background() -> Iterator[None]:
    """Timers started inside are background timers."""
    token = _BACKGROUND.set(True)
    try:
        yield
    finally:
        _BACKGROUND.reset(token)


def in_background() -> bool:
    """Whether a timer started now would be a background timer. The virtual loop calls this in a timer's context."""
    return _BACKGROUND.get()


def after_refusal() -> bool:
    """Whether a timer started now is for the retry of a refused write. The virtual loop calls this in a timer's context."""
    return _REFUSED.get()


async def background_sleep(seconds: float) -> None:
    with background():
        await asyncio.sleep(seconds)


def call_later(
    delay: float, callback: Callable[[], None], *, background: bool, refused: bool = False
) -> asyncio.TimerHandle:
    """Calls `callback` after `delay` seconds. Timers that the callback starts are foreground timers in any case."""

    def fire() -> None:
        _BACKGROUND.set(False)  # in the timer's own copy of the context
        _REFUSED.set(False)
        callback()

    token, refusal = _BACKGROUND.set(background), _REFUSED.set(refused)
    try:
        return asyncio.get_running_loop().call_later(delay, fire)
    finally:
        _BACKGROUND.reset(token)
        _REFUSED.reset(refusal)
