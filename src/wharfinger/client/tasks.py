"""Tasks that run until they are stopped."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ClassVar

ON_DEMAND = "on demand"  # the name of tasks that end by themselves, and that a restart does not bring back


async def cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancels tasks and waits until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def running(work: Coroutine[object, object, None], name: str) -> AsyncIterator[None]:
    """Runs a task inside of the context."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        await cancel([task])


class OwnedTask(ABC):
    """Base of what runs in a task of its own, from `start` to `stop`."""

    task_name: ClassVar[str]
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self.task_name)

    async def stop(self) -> None:
        if self._task is not None:
            await cancel([self._task])

    @abstractmethod
    async def _run(self) -> None: ...
