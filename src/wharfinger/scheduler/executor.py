"""The executor: carries out the instructions of the scheduling state and reports the results back to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.registry import Registry
from wharfinger.client.events import EventRecorder
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock
from wharfinger.framework.events import POD
from wharfinger.scheduler.binder import Binder
from wharfinger.scheduler.confirmation import took_effect
from wharfinger.scheduler.evictions import Evictor
from wharfinger.scheduler.instructions import (
    Bind,
    CarryOut,
    ClearNomination,
    Count,
    Evict,
    Forget,
    Instruction,
    PatchPodStatus,
    PatchStatus,
    RecordEvent,
    Wake,
)
from wharfinger.scheduler.object_statuses import ObjectStatusWriter
from wharfinger.scheduler.pod_statuses import PodStatusWriter
from wharfinger.scheduler.preparations import PreparationFailed, Preparer
from wharfinger.scheduler.schedulable import KeptRoom
from wharfinger.scheduler.state import SchedulingState

if TYPE_CHECKING:
    from wharfinger.scheduler.metrics import SchedulerMetrics

log = logging.getLogger(__name__)


class Executor:
    def __init__(
        self,
        state: SchedulingState,
        client: Client,
        clock: Clock,
        registry: Registry,
        *,
        recorder: EventRecorder | None = None,
        metrics: SchedulerMetrics | None = None,
        bind_concurrency: int,
        writes: bool = True,
    ) -> None:
        self._writes = writes
        self.work = asyncio.Event()  # set when there may be something to schedule
        self._state = state
        self._recorder = recorder
        self._metrics = metrics
        self._binder = Binder(self._bind, bind_concurrency)
        self._preparer = Preparer(client, registry)
        self._evictor = Evictor(client, clock, recorder)
        self._pod_statuses = PodStatusWriter(client, clock)
        self._object_statuses = ObjectStatusWriter(client, clock, self._start, self._carry_out_all)
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            Wake: lambda wake: self.work.set(),
            Bind: self._on_bind,
            Evict: self._on_evict,
            PatchPodStatus: self._on_patch_pod_status,
            ClearNomination: lambda clear: self._pod_statuses.withdraw(clear.pod),
            PatchStatus: self._object_statuses.submit,
            RecordEvent: self._on_record_event,
            Forget: self._on_forget,
            CarryOut: lambda work: self._start(self._write(work)),
            Count: _counting(metrics),
        }

    def carry_out(self) -> None:
        """Starts everything that the state has asked for since the last call, unless nothing is to be written."""
        if self._state.outbox:
            instructions = self._state.outbox.take()
            if self._writes:
                self._carry_out_all(instructions)

    def _carry_out_all(self, instructions: Iterable[Instruction]) -> None:
        handlers = self._handlers
        for instruction in instructions:
            handlers[type(instruction)](instruction)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._binder.run())
            group.create_task(self._pod_statuses.run())

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    @property
    def is_behind(self) -> bool:
        """Whether bindings wait to be sent."""
        return self._binder.is_behind

    def object_changed(self, kind: str, namespace: str, name: str) -> None:
        """An object was added, updated or deleted; preparations may wait for that."""
        self._preparer.changed(kind, namespace, name)

    # -- binding

    def _on_bind(self, binding: Bind) -> None:
        self._pod_statuses.forget(binding.item.key)
        if binding.preparations:
            self._start(self._prepare(binding))
        else:
            self._binder.submit(binding)

    async def _prepare(self, binding: Bind) -> None:
        """A pod that waits here takes no place in the binder, so that slow provisioning does not hold up others."""
        try:
            await self._preparer.carry_out(binding.preparations, partial(self._tell, binding))
        except PreparationFailed as error:
            await self._preparer.undo(binding.preparations)
            self._bind_failed(binding, str(error))
        except Exception as error:
            log.exception("preparing the binding of pod %s/%s failed", *binding.item.key)
            self._bind_failed(binding, f"binding rejected: {error}")
        else:
            self._binder.submit(binding)

    def _tell(self, binding: Bind, reason: str, message: str) -> None:
        if self._recorder is not None:
            item = binding.item.pod
            schedulable = self._state.kinds.of(item)
            if (about := schedulable.described(item)) is not None:
                self._recorder.event(schedulable.resource, about, "Normal", reason, message)

    async def _bind(self, binding: Bind) -> None:
        item = binding.item
        schedulable = self._state.kinds.of(item.pod)
        try:
            await schedulable.bind(item.pod, binding.node, binding.annotations)
        except ApiError as error:
            if await took_effect(error, partial(schedulable.is_on, item.pod, binding.node)):
                self._bound(binding)
                return
            if binding.preparations:
                await self._preparer.undo(binding.preparations)
            self._bind_failed(binding, f"binding rejected: {error}", gone=isinstance(error, NotFound))
        except Exception as error:
            log.exception("binding of pod %s/%s failed", *item.key)
            self._bind_failed(binding, f"binding rejected: {error}")
        else:
            self._bound(binding)

    def _bound(self, binding: Bind) -> None:
        item, now = binding.item, _now()
        if self._metrics is not None:
            self._metrics.pod_attempts.observe(item.attempts)
            self._metrics.sli_seconds[(str(min(item.attempts, 16)),)].observe(now - item.arrived)
        self._state.bound(binding, now)
        self.carry_out()

    def _bind_failed(self, binding: Bind, message: str, *, gone: bool = False) -> None:
        failed = self._state.bind_failed(binding, message, _now(), gone=gone)
        if failed and self._metrics is not None:
            self._metrics.attempts["error", binding.item.pod.spec.scheduler_name].inc()
        self.carry_out()

    # -- evictions

    def _on_evict(self, eviction: Evict) -> None:
        if self._metrics is not None:
            self._metrics.preemption_victims.observe(len(eviction.victims))
        self._start(self._evict(eviction))

    async def _evict(self, eviction: Evict) -> None:
        pod, node = eviction.item.pod, eviction.node
        room = await self._keep_room(eviction)
        if room is KeptRoom.RESERVED:
            self._state.room_reserved(eviction)
        done = room is not KeptRoom.TAKEN and await self._evictor.evict(pod, eviction.victims, node)
        if room is KeptRoom.RESERVED and not done:
            for each in self._state.kinds.others.values():
                await each.evictions_failed(pod)
        self._state.evicted(eviction, _now(), done=done)
        self.carry_out()

    async def _keep_room(self, eviction: Evict) -> KeptRoom:
        for each in self._state.kinds.others.values():
            room = await each.keep_room(eviction.item.pod, eviction.node, eviction.victims)
            if room is not KeptRoom.OPEN:
                return room
        return KeptRoom.OPEN

    # -- the rest

    async def _write(self, work: CarryOut) -> None:
        if not await self._preparer.write_all(work.writes, lambda write: self._state.object_gone(write, _now())):
            self._state.writes_failed(work.key, _now())
            self.carry_out()

    def _on_patch_pod_status(self, patch: PatchPodStatus) -> None:
        self._pod_statuses.unschedulable(patch.pod, patch.reason, patch.message, patch.nominated_node)

    def _on_record_event(self, event: RecordEvent) -> None:
        if self._recorder is not None:
            self._recorder.event(event.resource, event.about, event.type, event.reason, event.message)

    def _on_forget(self, forget: Forget) -> None:
        self._pod_statuses.forget(forget.key)
        self._preparer.changed(POD, *forget.key)

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _counting(metrics: SchedulerMetrics | None) -> Callable[[Count], None]:
    if metrics is None:
        return lambda count: None
    counters = {
        "pod_added": metrics.incoming["active", "PodAdd"],
        "foreign_pod": metrics.foreign,
        "preemption": metrics.preemption_attempts,
    }
    return lambda count: counters[count.metric].inc()
