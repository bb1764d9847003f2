"""The base of controllers: a queue of keys, workers that reconcile them, and retries after errors.

A controller watches through informers whose handlers add keys to its queue.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

from wharfinger.api.errors import ApiError, Conflict, Forbidden, Invalid
from wharfinger.client.activity import ACTIVITY
from wharfinger.client.backoff import Backoff
from wharfinger.client.informer import Informer, InformerSet
from wharfinger.client.workqueue import QueueClosed, WorkQueue

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

SLICE = 64  # keys in a row before other tasks run, for work that never has to wait
CONFLICT_LIMIT = 1.0  # seconds; after a conflict the informer catches up soon, so the back-off stays short


class Observer(Protocol):
    """Receives what metrics report about controllers."""

    def added(self, controller: str) -> None: ...
    def reconciled(self, controller: str, seconds: float, outcome: str) -> None:
        """`outcome` is success, conflict or error."""
        ...


class Controller(ABC, Generic[K]):
    """Subclasses set `name`, connect informers to `self.queue` in their constructor, and implement `reconcile`.

    `reconcile` returns when nothing more is to be done for the key now; `self.queue.add_after` schedules a later call.
    """

    name: str
    workers: int = 1
    needs: Sequence[Informer[Any]] | None = None  # the informers that must have synced; None: all of them

    def __init__(self, *, observer: Observer | None = None) -> None:
        self.observer = observer
        self.queue: WorkQueue[K] = WorkQueue(on_add=self._added)

    @abstractmethod
    async def reconcile(self, key: K) -> None: ...

    async def prepare(self) -> None:
        """Runs after the informers have synced and before the first key; retried after an ApiError."""
        return

    async def run(self) -> None:
        """Processes keys until cancelled or until the queue is shut down. The informers must have synced."""
        await self._prepare()
        workers = [asyncio.create_task(self._work(), name=f"{self.name} worker {i}") for i in range(self.workers)]
        try:
            await asyncio.gather(*workers)
        finally:
            await _end(workers)

    async def _prepare(self) -> None:
        backoff = Backoff(0.1, 30.0, jitter=0.0)
        while True:
            try:
                return await self.prepare()
            except ApiError as error:
                delay = backoff.next()
                log.warning("%s: cannot start, retrying in %.1f s: %s", self.name, delay, error)
                await asyncio.sleep(delay)

    async def _work(self) -> None:
        for number in count(1):
            try:
                key = await self.queue.get()
            except QueueClosed:
                return
            try:
                await self._attempt(key)
            finally:
                self.queue.done(key)
            if number % SLICE == 0:
                await asyncio.sleep(0)

    async def _attempt(self, key: K) -> None:
        loop = asyncio.get_running_loop()
        started, outcome = loop.time(), "success"
        ACTIVITY.record(self.name, key)
        try:
            await self.reconcile(key)
        except Conflict as error:
            outcome = "conflict"
            delay = self.queue.retry(key, limit=CONFLICT_LIMIT)
            log.debug("%s: conflict on %s, retrying in %.3f s: %s", self.name, key, delay, error)
        except ApiError as error:
            outcome = "error"
            refused = isinstance(error, Forbidden | Invalid)
            delay = self.queue.retry(key, at_least=error.retry_after or 0.0, refused=refused)
            log.warning("%s: %s failed, retrying in %.3f s: %s", self.name, key, delay, error)
        except Exception:
            outcome = "error"
            delay = self.queue.retry(key)
            log.exception("%s: %s failed, retrying in %.3f s", self.name, key, delay)
        else:
            self.queue.forget(key)
        if self.observer is not None:
            self.observer.reconciled(self.name, loop.time() - started, outcome)

    def _added(self, key: K) -> None:
        if self.observer is not None:
            self.observer.added(self.name)


async def run_controllers(
    controllers: Sequence[Controller[Any]],
    informers: InformerSet,
    acquire: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Starts the informers and runs the controllers until cancelled, each once the informers it needs have synced.

    A kind that the server does not serve thus delays only the controllers that need it. With `acquire` (of a lease), the
    queues fill meanwhile but no key is processed before it returns and the informers have relisted.
    """
    tasks: list[asyncio.Task[None]] = []
    try:
        if acquire is None:
            informers.start()
        else:
            await informers.start_for(acquire)
        tasks += [
            asyncio.create_task(_run_when_synced(controller, informers), name=controller.name)
            for controller in controllers
        ]
        await asyncio.gather(*tasks)
    finally:
        await _end(tasks)
        for controller in controllers:
            controller.queue.shut_down()
        await informers.stop()


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels tasks, and waits for them. One that is being cancelled already is let finish: a second cancellation would
    interrupt what it does to end, such as stopping its informers."""
    for task in tasks:
        if not task.cancelling():
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _run_when_synced(controller: Controller[Any], informers: InformerSet) -> None:
    for informer in informers if controller.needs is None else controller.needs:
        await informer.wait_synced()
    await controller.run()
