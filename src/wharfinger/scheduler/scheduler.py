"""The live scheduler: follows the API server, and schedules one item after the other.

One task makes the decisions; binding, status patches and evictions run beside it. What to do is decided by the scheduling
state (`wharfinger.scheduler.state`) and carried out by the executor (`wharfinger.scheduler.executor`).
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.api.keys import ObjectKey
from wharfinger.api.registry import Registry
from wharfinger.api.selectors import Requirements
from wharfinger.api.views import Pod
from wharfinger.client.activity import ACTIVITY
from wharfinger.client.events import EventRecorder
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock, background, background_sleep
from wharfinger.engine import Engine
from wharfinger.framework.events import ClusterEvent
from wharfinger.scheduler.configuration import SchedulerConfiguration
from wharfinger.scheduler.executor import Executor
from wharfinger.scheduler.feed import Feed
from wharfinger.scheduler.pods import PodItems
from wharfinger.scheduler.queue import QueuedPod
from wharfinger.scheduler.schedulable import SchedulableKinds, SchedulerContext, schedulables
from wharfinger.scheduler.state import SchedulingState

if TYPE_CHECKING:
    from wharfinger.scheduler.metrics import SchedulerMetrics

FLUSH_SECONDS = 30.0
SLICE = 32  # decisions in a row before other tasks run; a count and not a time, so that runs repeat exactly
HOPELESS = 5  # refusals in a row after which a simulation no longer waits for the next attempt


class SchedulerOptions(msgspec.Struct, frozen=True):
    """Settings of the process, beside the scheduler configuration."""

    seed: int = 0  # breaks ties between equal nodes
    nodes: Requirements = ()  # only the nodes that these labels select are ours
    bind_concurrency: int = 64
    owns_process: bool = False  # whether it may tune the garbage collector
    writes: bool = True  # False: for questions about a cluster; what it finds to do is left to the one that decides
    rng: random.Random | None = None  # varies the waits of informers after failures


class Scheduler:
    """Without `metrics`, nothing is counted."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        configuration: SchedulerConfiguration,
        registry: Registry,
        options: SchedulerOptions | None = None,
        *,
        recorder: EventRecorder | None = None,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        self._options = options = options or SchedulerOptions()
        self.metrics = metrics
        self.engine = Engine(configuration.profiles, seed=options.seed, kubernetes=configuration.kubernetes)
        self.engine.tables.clock = clock.now
        self._informers = InformerSet(client, rng=options.rng)
        self._feed = Feed(self._informers, registry, self.engine, self, nodes=options.nodes)
        kinds = SchedulableKinds(
            PodItems(SchedulerContext(client, clock, self.engine, self._feed.pods)),
            (
                each(SchedulerContext(client, clock, self.engine, self._feed.others.get(each.resource.kind)))
                for each in schedulables()
            ),
        )
        if metrics is not None:
            metrics.collect_from(kinds)
        self.state = SchedulingState(
            self.engine,
            kinds,
            initial_backoff=configuration.initial_backoff,
            max_backoff=configuration.max_backoff,
            limited=bool(options.nodes),
        )
        self._executor = Executor(
            self.state,
            client,
            clock,
            registry,
            recorder=recorder,
            metrics=metrics,
            bind_concurrency=options.bind_concurrency,
            writes=options.writes,
        )

    # -- running

    async def run(self, turn: Callable[[], Awaitable[object]] | None = None) -> None:
        """Schedules until cancelled. With `turn`, it follows the API server but decides nothing until that returns and it
        has caught up with what another scheduler may have bound before."""
        try:
            if turn is not None:
                await self._informers.start_for(turn)
            await self.load()
            if self._options.owns_process:
                # What was loaded stays: the collector need not traverse it again and again.
                gc.collect()
                gc.freeze()
            self._executor.carry_out()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._executor.run())
                group.create_task(self._flush())
                group.create_task(self._schedule())
        finally:
            await self.stop()

    async def load(self) -> None:
        """Follows the API server until everything it holds is known."""
        self._informers.start()
        await self._informers.wait_synced()
        self.state.synced()

    async def stop(self) -> None:
        self._executor.stop()
        await self._informers.stop()

    async def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for _ in range(SLICE):
                item = self.state.next(loop.time())
                if item is None:
                    break
                self._schedule_one(item, loop.time())
            if item is None:
                await self._wait(loop)
            else:
                await asyncio.sleep(0)

    def _schedule_one(self, item: QueuedPod, now: float) -> None:
        if ACTIVITY.counted is not None:
            kind = self.state.kinds.of(item.pod)
            ACTIVITY.record("scheduler", f"{kind.resource.kind} {kind.title(item.pod)}")
        metrics, profile, began = self.metrics, item.pod.spec.scheduler_name, time.perf_counter()
        decision, assumed = self.state.cycle.decide(item)
        if metrics is not None:
            metrics.algorithm_seconds.observe(time.perf_counter() - began)
        result = self.state.cycle.conclude(item, decision, assumed, now)
        self._executor.carry_out()
        if metrics is not None:
            metrics.attempts[result, profile].inc()
            metrics.attempt_seconds[result, profile].observe(time.perf_counter() - began)

    async def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Until something is queued, or the first back-off ends."""
        work, queue = self._executor.work, self.state.queue
        work.clear()
        until = queue.next_backoff()
        timer = None
        if until is not None:
            if any(not item.failed or item.refusals < HOPELESS for item in queue.backing_off()):
                timer = loop.call_at(until, work.set)
            else:
                with background():
                    timer = loop.call_at(until, work.set)
        try:
            await work.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await background_sleep(FLUSH_SECONDS)
            self.state.flush(loop.time())
            self._executor.carry_out()
            if self.metrics is not None:
                for place, count in self.state.queue.counts().items():
                    self.metrics.pending[(place,)].set(count)

    def is_behind(self) -> bool:
        """Whether bindings are decided that wait to be sent."""
        return self._executor.is_behind

    # -- events of the feed

    def pending(self, old: Pod | None, new: Pod | None) -> None:
        self.state.pending(old, new, _now())
        self._executor.carry_out()

    def assigned(self, pod: Pod) -> None:
        self.state.assigned(pod)
        self._executor.carry_out()

    def changed(self, kind: str, old: Any, new: Any) -> None:
        self.state.changed(kind, old, new, _now())
        self._executor.carry_out()

    def happened(self, event: ClusterEvent) -> None:
        self._executor.object_changed(event.kind, *_key(event.old if event.new is None else event.new))
        self.state.happened(event, _now())
        self._executor.carry_out()

    # -- questions

    @property
    def ready(self) -> bool:
        """Whether it knows the cluster, so that it can schedule as soon as it is its turn."""
        return self._informers.synced

    @property
    def active(self) -> int:
        """How many items are about to be scheduled."""
        return self.state.queue.active

    @property
    def pods_known(self) -> int:
        return len(self._feed.pods)

    def pod(self, namespace: str, name: str) -> Pod | None:
        return self._feed.pods.get(name, namespace)

    def pods(self) -> Iterable[Pod]:
        """All pods that the scheduler knows."""
        return self._feed.pods

    def diagnosis(self, key: ObjectKey) -> dict[str, int]:
        """For a pod that waits: how many nodes refused it for which reason."""
        return self.state.diagnosis(key)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _key(known: Any) -> ObjectKey:
    """The key of a view or a document."""
    if isinstance(known, Mapping):
        metadata = known["metadata"]
        return metadata.get("namespace") or "", metadata["name"]
    return known.metadata.namespace, known.metadata.name
