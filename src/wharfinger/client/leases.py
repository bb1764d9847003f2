"""Leader election with a Lease, compatible with client-go's election records.

The leader relies only on its own monotonic clock: it stops leading, and its fenced client stops writing, before another
candidate may take the lease, even if the process was suspended meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from wharfinger.api.errors import AlreadyExists, ApiError, Conflict, NotFound
from wharfinger.api.kinds.builtin import LEASES
from wharfinger.api.registry import Document
from wharfinger.api.times import format_micro_time
from wharfinger.client.interface import Client
from wharfinger.client.tasks import cancel
from wharfinger.client.timers import Clock, background_sleep

log = logging.getLogger(__name__)

_LEAST_PAUSE = 0.01  # seconds; the timer and the lease use different clocks


class NotLeading(ApiError):
    """This process does not hold the lease, so it must not write."""

    code, reason = 503, "NotLeading"


def steady_time() -> float:
    """Seconds on a monotonic clock that also advances while the machine is suspended.

    Not the event loop's time: uvloop caches that for an iteration, so it is stale after a suspension.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def process_identity() -> str:
    """Returns a unique name for this process, different from that of its successor."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4()}"


class Leader:
    """One candidate. `run(lead)` waits for the lease and runs `lead` while it holds the lease.

    If a leader stops without releasing its lease, a candidate acquires it at most `lease_duration` plus one
    `retry_period` (plus request latency) after the last renewal: it checks the lease at least once per retry period, and
    again at the moment when the lease expires.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        identity: str,
        clock: Clock,
        *,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        steady: Callable[[], float] = steady_time,
        rng: random.Random | None = None,
    ) -> None:
        if not lease_duration > renew_deadline > retry_period * 1.2 > 0:
            raise ValueError(
                "leader election needs leaseDuration > renewDeadline > 1.2 × retryPeriod > 0, "
                f"not {lease_duration}, {renew_deadline}, {retry_period}"
            )
        self.identity = identity
        self.holder = ""  # the last known holder
        self._client = client
        self._name = name
        self._namespace = namespace
        self._path = f"{namespace}/{name}"  # for messages
        self._clock = clock
        self._duration = lease_duration
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        self._steady = steady
        self._rng = rng or random.Random()
        self._deadline = float("-inf")
        self._lease: Document | None = None  # as last read or written
        self._changed_at = 0.0  # when its current content was first seen
        self._ends_at = float("inf")  # when a lease held by another candidate expires

    @property
    def leading(self) -> bool:
        return self._steady() < self._deadline

    def check(self) -> None:
        """Raises NotLeading unless this process is the leader now. Called before every write."""
        if not self.leading:
            raise NotLeading(f"not the leader: the lease {self._path} is not held by {self.identity}")

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Runs `lead` in every term and cancels it when the term ends.

        Returns when `lead` returns. The lease is released then, and on cancellation.
        """
        while not await self.term(lead):
            pass

    async def term(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Waits for the lease and leads for one term, until `lead` returns (True) or the lease is lost (False)."""
        await self._acquire()
        work = asyncio.ensure_future(lead())
        renewal = asyncio.create_task(self._renew(), name=f"lease {self._name}")
        try:
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                return True
            log.warning("lost the lease %s", self._path)
            return False
        finally:
            # All tasks of `lead` must have ended before the lease is released.
            await cancel((work, renewal))
            if self.leading:
                await self._release()
            self._deadline = float("-inf")

    async def _acquire(self) -> None:
        while not await self._try(self._take):
            pause = self._retry_period * (0.6 + 0.4 * self._rng.random())  # jitter keeps candidates apart
            left = self._ends_at - self._steady()
            await background_sleep(max(_LEAST_PAUSE, left) if 0 < left < pause else pause)
        log.info("%s acquired the lease %s", self.identity, self._path)

    async def _renew(self) -> None:
        """Returns when the lease is lost: acquired by another candidate, or not renewed in time."""
        while True:
            await background_sleep(self._retry_period)
            if not self.leading:
                return
            if not await self._try(self._extend) and self.holder != self.identity:
                self._deadline = float("-inf")
                return

    async def _try(self, step: Callable[[], Awaitable[bool]]) -> bool:
        try:
            async with asyncio.timeout(self._renew_deadline / 2):
                return await step()
        except ApiError as error:
            log.info("lease %s: %s", self._path, error)
        except TimeoutError:
            log.info("lease %s: request timed out", self._path)
        return False

    async def _extend(self) -> bool:
        assert self._lease is not None
        try:
            return await self._write(self._lease)
        except Conflict:
            # The lease was changed by another client, or the response to our own write was lost.
            self._observe(await self._client.get(LEASES, self._name, self._namespace))
        except NotFound:
            return await self._create()
        return self.holder == self.identity and await self._write(self._lease)

    async def _take(self) -> bool:
        try:
            found = await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            return await self._create()
        if self._lease is None or self._lease.get("spec") != found.get("spec"):
            self._changed_at = self._steady()
        self._observe(found)
        self._ends_at = float("inf")  # a failed write is retried at the usual interval
        if self.holder not in ("", self.identity):
            ends_at = self._changed_at + float(found["spec"].get("leaseDurationSeconds") or 0)
            if self._steady() < ends_at:
                self._ends_at = ends_at
                return False
        return await self._write(found)

    async def _create(self) -> bool:
        sent = self._steady()
        document: Document = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": self._spec({}),
        }
        try:
            self._won(await self._client.create(LEASES, document, self._namespace), sent)
        except AlreadyExists:
            return False
        return True

    async def _write(self, current: Document) -> bool:
        # The server rejects this if the lease changed since `current`. Our term starts when the request is sent, so that
        # it ends before other candidates, which count from when they see the change, consider it expired.
        sent = self._steady()
        document = {**current, "spec": {**current.get("spec", {}), **self._spec(current.get("spec", {}))}}
        self._won(await self._client.update(LEASES, document, self._namespace), sent)
        return True

    def _spec(self, old: dict[str, Any]) -> dict[str, Any]:
        now = format_micro_time(self._clock.now())
        renewing = old.get("holderIdentity") == self.identity
        transitions = int(old.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._duration)),
            "acquireTime": old.get("acquireTime", now) if renewing else now,
            "renewTime": now,
            "leaseTransitions": transitions if renewing or not old else transitions + 1,
        }

    def _won(self, lease: Document, sent: float) -> None:
        self._observe(lease)
        self._changed_at = sent
        self._deadline = sent + self._renew_deadline

    def _observe(self, lease: Document) -> None:
        self._lease = lease
        self.holder = str(lease.get("spec", {}).get("holderIdentity") or "")

    async def _release(self) -> None:
        """Releases the lease, so that others need not wait for it to expire."""
        lease, self._deadline = self._lease, float("-inf")
        if lease is None:
            return
        now = format_micro_time(self._clock.now())
        free = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now}
        try:
            async with asyncio.timeout(self._retry_period):
                self._observe(await self._client.update(LEASES, {**lease, "spec": free}, self._namespace))
        except (ApiError, TimeoutError) as error:
            log.info("cannot release the lease %s: %s", self._path, error)


async def stand_by_and_lead(leader: Leader, work: Callable[[Callable[[], Awaitable[object]]], Awaitable[None]]) -> bool:
    """One term of leadership, including the wait for it. Returns whether the work ended by itself."""
    turn = asyncio.Event()
    working = asyncio.ensure_future(work(turn.wait))

    async def reign() -> None:
        turn.set()
        await working

    election = asyncio.ensure_future(leader.term(reign))
    try:
        await asyncio.wait({working, election}, return_when=asyncio.FIRST_COMPLETED)
        if working.done() and not turn.is_set():
            working.result()
            return True
        return await election
    finally:
        election.cancel()  # stops the work first, then releases the lease
        await asyncio.gather(election, return_exceptions=True)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
