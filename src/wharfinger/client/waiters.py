"""Tasks that wait in a queue of futures for something to become free."""

from __future__ import annotations

import asyncio
from collections import deque


def wake_next(waiters: deque[asyncio.Future[None]]) -> None:
    """Resolves the first future that is not cancelled."""
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
            return
