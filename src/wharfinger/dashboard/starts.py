"""When waiting pods would start: simulated in a worker now and then, and kept for all who ask meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from wharfinger.api.registry import Document

FRESH = 15.0  # seconds for which an answer is kept at least
PAUSE = 10  # times as long as the simulation took, an answer is kept: large clusters are simulated less often


class WaitingStarts:
    """`simulate` gives the answer of a worker. One simulation runs at a time, however many ask."""

    def __init__(self, simulate: Callable[[], Awaitable[list[Document]]]) -> None:
        self._simulate = simulate
        self._lock = asyncio.Lock()
        self._found: list[Document] = []
        self._until = 0.0

    async def get(self) -> list[Document]:
        async with self._lock:
            if time.monotonic() >= self._until:
                began = time.monotonic()
                self._found = await self._simulate()
                done = time.monotonic()
                self._until = done + max(FRESH, PAUSE * (done - began))
            return self._found
