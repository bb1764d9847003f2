"""Binding, pipelined: decisions go on while earlier ones are written."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from wharfinger.scheduler.instructions import Bind


class Binder:
    """Runs `bind`, which must not raise, for each instruction in order of submission, some of them at a time."""

    def __init__(self, bind: Callable[[Bind], Awaitable[None]], concurrency: int) -> None:
        self._bind = bind
        self._concurrency = concurrency
        self._submitted: deque[Bind] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()

    @property
    def is_behind(self) -> bool:
        """Whether bindings wait for a place."""
        return bool(self._submitted)

    def submit(self, binding: Bind) -> None:
        self._submitted.append(binding)
        while self._idle:
            worker = self._idle.popleft()
            if not worker.done():
                worker.set_result(None)
                break

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._concurrency):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            while not self._submitted:
                turn = asyncio.get_running_loop().create_future()
                self._idle.append(turn)
                await turn
            await self._bind(self._submitted.popleft())
