"""Our scheduler in a thread of this process, with a client that loses answers: the server did what it was asked, but the
scheduler does not learn of it."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

from wharfinger.api.configuration import load_configuration
from wharfinger.api.errors import ServiceUnavailable
from wharfinger.api.kinds import registry
from wharfinger.api.requests import ApiRequest
from wharfinger.client.connect import connect
from wharfinger.client.http import HttpClient
from wharfinger.client.interface import Client, WatchEvent
from wharfinger.client.timers import SystemClock
from wharfinger.scheduler import profiles
from wharfinger.scheduler.scheduler import Scheduler, SchedulerOptions

T = TypeVar("T")


class LossyClient(Client):
    def __init__(self, client: HttpClient, seed: int) -> None:
        self._client = client
        self._chance = random.Random(seed)
        self.share = 0.0  # of the answers to writes that get lost
        self.lost = 0
        self._under_way: set[asyncio.Future[Any]] = set()

    async def send(self, request: ApiRequest[T]) -> T:
        """What was sent arrives, whatever becomes of the sender."""
        sent = asyncio.ensure_future(self._client.send(request))
        self._under_way.add(sent)
        sent.add_done_callback(self._under_way.discard)
        answer = await asyncio.shield(sent)
        if request.verb not in ("get", "list") and self._chance.random() < self.share:
            self.lost += 1
            raise ServiceUnavailable("the answer was lost")
        return answer

    def stream(self, request: ApiRequest[WatchEvent[T]]) -> AsyncIterator[WatchEvent[T]]:
        return self._client.stream(request)

    async def close(self) -> None:
        """Returns when all that was sent has arrived: in a cluster, the lease keeps the next scheduler from starting before."""
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._client.close()


class FaultyScheduler:
    def __init__(self, kubeconfig: Path, seed: int) -> None:
        self._kubeconfig = kubeconfig
        self._seed = seed
        self._share = 0.0
        self._before = 0
        self._client: LossyClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._running = threading.Event()

    @property
    def lost(self) -> int:
        """How many answers were lost."""
        return self._before + (self._client.lost if self._client is not None else 0)

    def lose(self, share: float) -> None:
        self._share = share
        if self._client is not None:
            self._client.share = share

    def start(self) -> None:
        """Returns when it runs: one that is stopped before would go on beside its successor."""
        self._running.clear()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._running.wait(120)

    def stop(self) -> None:
        """Ends at once, whatever it is doing."""
        if self._thread is not None and self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join(120)
            assert not self._thread.is_alive()
        self._thread = None
        self._before, self._client = self.lost, None

    def restart(self) -> None:
        self.stop()
        self.start()

    async def _run(self) -> None:
        self._client = client = LossyClient(connect(str(self._kubeconfig)), self._seed + self._before)
        client.share = self._share
        configuration = profiles.load({}, ("default-scheduler",), load_configuration({}))
        scheduler = Scheduler(client, SystemClock(), configuration, registry(), SchedulerOptions(seed=self._seed))
        self._loop, self._task = asyncio.get_running_loop(), asyncio.create_task(scheduler.run())
        self._running.set()
        try:
            await self._task
        except asyncio.CancelledError:
            pass
        finally:
            await client.close()
