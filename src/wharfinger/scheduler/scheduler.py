"""The live scheduler: takes pods off the queue, asks the engine, assumes, binds, and explains what it could not place.

One task makes decisions, one after the other; binding, status writes and evictions run beside it. All state is rebuilt
from the API server: a scheduler that starts anew comes to the same decisions.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Registry
from wharfinger.api.selectors import Requirements
from wharfinger.api.views import Pod
from wharfinger.client.events import EventRecorder
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock, background, background_sleep
from wharfinger.engine import Engine
from wharfinger.engine.outcome import NO_NODES, Decision, Diagnosis
from wharfinger.framework.events import NODE, POD, Action, ClusterEvent, WakeUp
from wharfinger.framework.prebinding import Preparation
from wharfinger.framework.status import Code, Status
from wharfinger.scheduler.binder import Binder, Job, pod_binder
from wharfinger.scheduler.configuration import SchedulerConfiguration
from wharfinger.scheduler.feed import Feed
from wharfinger.scheduler.metrics import SchedulerMetrics
from wharfinger.scheduler.preemptor import Preemptor
from wharfinger.scheduler.preparing import PreparationFailed, Preparer
from wharfinger.scheduler.queue import Key, Place, Queue, QueuedPod
from wharfinger.scheduler.writes import StatusWriter
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.plugin.reservation import RESERVATION
from wharfinger.systems.reservation.rules.reservations import is_fake, reservation_name
from wharfinger.systems.reservation.scheduling.guarantees import Room
from wharfinger.systems.reservation.scheduling.reservations import Reservations

log = logging.getLogger(__name__)

FLUSH_SECONDS = 30.0
SLICE = (
    32  # decisions in a row before watches and bindings get a turn; a number, not a time, so that runs repeat exactly
)
HOPELESS = 5  # failures in a row after which a simulation no longer waits for the next try
_NEEDS_NODES = "(no nodes)"  # filed like a plugin: what refused the pod is that there was no node at all


class Scheduler:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        configuration: SchedulerConfiguration,
        registry: Registry,
        *,
        seed: int = 0,
        recorder: EventRecorder | None = None,
        metrics: SchedulerMetrics | None = None,
        nodes: Requirements = (),
        bind_concurrency: int = 64,
        alone: bool = False,
        rng: random.Random | None = None,
    ) -> None:
        """`seed` settles ties, `rng` varies waits after failures, and `nodes` limits us to the nodes it selects; `alone`
        in its process, it may tune the garbage collector."""
        self.engine = Engine(configuration.profiles, seed=seed)
        self.queue = Queue(self._gate, configuration.initial_backoff, configuration.max_backoff)
        self.metrics = metrics or SchedulerMetrics(CollectorRegistry())
        self._limited = bool(nodes)
        self._alone = alone
        self._recorder = recorder
        self._informers = InformerSet(client, rng=rng)
        self._binding: dict[Key, Pod] = {}  # assumed pods whose binding is under way
        self._preempting: set[Key] = set()  # pods for which victims are being evicted
        self._diagnoses: dict[Key, Diagnosis] = {}
        self._work = asyncio.Event()
        self._interests = _interests(self.engine)
        self._known_listeners: dict[tuple[str, Action], Mapping[str, None]] = {}
        self._bind = pod_binder(client)
        self._binder = Binder(bound=self._bound, failed=self._bind_failed, concurrency=bind_concurrency)
        self._statuses = StatusWriter(client, clock)
        self._preparer = Preparer(client, registry)
        self._preemptor = Preemptor(client, clock, recorder)
        self._tasks: set[asyncio.Task[None]] = set()
        self.reservations = Reservations(client, clock, self.engine, recorder, self._beside)
        self._owners_woken: set[int] = set()  # owner classes of reservations that came or changed
        self._synced = False
        self._feed = Feed(
            self._informers,
            registry,
            self.engine,
            pending=self._pending,
            happened=self._happened,
            assigned=self._assigned,
            nodes=nodes,
            changed={RESERVATION: self._reservation},
        )
        self.reservations.informer = self._feed.others.get(RESERVATION)

    # -- running

    async def run(self, turn: Callable[[], Awaitable[object]] | None = None) -> None:
        """Schedules until cancelled. With `turn`, it follows the API server and decides nothing before that returns and
        it has caught up with what another may have bound until then."""
        try:
            if turn is not None:
                await self._informers.start_for(turn)
            await self._schedule()
        finally:
            await self.stop()

    async def _schedule(self) -> None:
        await self.load()
        if self._alone:
            # What was loaded stays: the collector need not walk it again and again.
            gc.collect()
            gc.freeze()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._binder.run())
            group.create_task(self._statuses.run())
            group.create_task(self._flush())
            group.create_task(self._decide())

    async def load(self) -> None:
        """Follows the API server until everything it holds is known; from then on it may act."""
        self._informers.start()
        await self._informers.wait_synced()
        self._synced = True
        self.reservations.loaded()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._informers.stop()

    @property
    def ready(self) -> bool:
        """Whether it knows the cluster, so that it can schedule as soon as it is its turn."""
        return self._informers.synced

    async def _decide(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            item = self.queue.pop(loop.time())
            if item is None:
                await self._wait(loop)
                continue
            for _ in range(SLICE):
                self._attempt(item, loop.time())
                item = self.queue.pop(loop.time())
                if item is None:
                    break
            else:
                self._attempt(item, loop.time())
            await asyncio.sleep(0)

    async def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Until something is queued, or the first back-off ends."""
        self._work.clear()
        until = self.queue.next_backoff()
        timer = None
        if until is not None:
            hopeful = any(not item.failed or item.refusals < HOPELESS for item in self.queue.backing_off())
            if hopeful:
                timer = loop.call_at(until, self._work.set)
            else:
                with background():
                    timer = loop.call_at(until, self._work.set)
        try:
            await self._work.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _flush(self) -> None:
        """Pods that waited long are tried again even without an event."""
        loop = asyncio.get_running_loop()
        while True:
            await background_sleep(FLUSH_SECONDS)
            self.queue.flush_unschedulable(loop.time())
            self._work.set()
            for place, count in self.queue.counts().items():
                self.metrics.pending[(place,)].set(count)

    # -- one pod

    def _attempt(self, item: QueuedPod, now: float) -> None:
        pod, began = item.pod, time.perf_counter()
        try:
            decision = self.engine.schedule(pod)
            status = None if decision.node is None else self.engine.assume(pod, decision.node)
        except Exception as error:
            log.exception("scheduling of pod %s/%s broke", *item.key)
            decision, status = Decision(error=f"{type(error).__name__}: {error}"), None
        self.metrics.algorithm_seconds.observe(time.perf_counter() - began)
        if decision.node is not None and status is not None:
            if status.ok:
                self._go(item, decision.node, began)
            else:
                self._refuse_late(item, status, now, began)
        elif decision.error == NO_NODES:
            self._refuse(item, NO_NODES, {_NEEDS_NODES}, now, began, keeps_nomination=False)
        elif decision.error:
            self._fail(item, decision.error, now, began)
        else:
            assert decision.diagnosis is not None
            self._diagnoses[item.key] = decision.diagnosis
            self._no_room(item, decision.diagnosis, now, began)

    def _go(self, item: QueuedPod, node: str, began: float) -> None:
        pod = item.pod
        self._binding[item.key] = pod
        self._diagnoses.pop(item.key, None)
        self._statuses.forget(item.key)
        bind = self.reservations.bind if is_fake(pod) else self._bind
        job = Job(item, node, self.engine.annotations(pod, node), bind)
        preparations = self.engine.preparations(pod, node)
        if preparations:
            self._beside(self._prepare(job, preparations))
        else:
            self._binder.submit(job)
        self._observe("scheduled", pod, began)

    async def _prepare(self, job: Job, preparations: list[tuple[str, Preparation]]) -> None:
        """Brings about what must be so before the pod is bound, then has it bound."""
        try:
            await self._preparer.carry_out(preparations)
        except PreparationFailed as error:
            self._bind_failed(job, error)
        except Exception as error:
            log.exception("preparing the binding of pod %s/%s broke", *job.item.key)
            self._bind_failed(job, error)
        else:
            self._binder.submit(job)

    def _refuse_late(self, item: QueuedPod, status: Status, now: float, began: float) -> None:
        """A plugin would not reserve what it had offered."""
        if status.code is Code.ERROR:
            self._fail(item, status.message, now, began)
        else:
            self._refuse(
                item,
                f"0/{self.engine.tables.node_count} nodes are available: {status.message}.",
                {status.plugin},
                now,
                began,
                keeps_nomination=False,
            )

    def _no_room(self, item: QueuedPod, diagnosis: Diagnosis, now: float, began: float) -> None:
        """No node fits: make room by preemption if that helps, and wait for something to change."""
        pod, keeps_nomination = item.pod, bool(self.engine.profile(item.pod).at["postFilter"])
        if keeps_nomination and not self._waits_for_reservation(pod):
            self.metrics.preemption_attempts.inc()
            result = self.engine.preempt(pod, diagnosis)
            if result.node is not None:
                self.metrics.preemption_victims.observe(len(result.victims))
                self._make_room(item, result.node, result.victims, diagnosis)
                self._tell(pod, "Unschedulable", diagnosis.message, nominated_node=result.node)
                self._observe("unschedulable", pod, began)
                return
            keeps_nomination = not result.hopeless
        self._refuse(item, diagnosis.message, diagnosis.plugins, now, began, keeps_nomination=keeps_nomination)

    def _waits_for_reservation(self, pod: Pod) -> bool:
        """Whether nobody needs to be evicted: for a reservation that may not, or a pod for which others went already."""
        if is_fake(pod):
            return pod.spec.preemption_policy == "Never"
        return self.reservations.guaranteed(pod)

    def _make_room(self, item: QueuedPod, node: str, victims: Iterable[Pod], diagnosis: Diagnosis) -> None:
        """Evicts beside the decisions. Until that is done the pod is not tried again, or it would choose new victims."""
        pod, chosen = item.pod, list(victims)
        if not all(victim.terminating for victim in chosen):
            self._withdraw_lower(pod, node)
        self.engine.set_nominated(pod, node)
        self._preempting.add(item.key)

        async def evict() -> None:
            room = await self.reservations.guarantee(pod, node)
            if room is Room.RESERVED:
                self.engine.set_nominated(pod, None)  # from here on its reservation keeps the room
            gone = room is not Room.TAKEN and await self._preemptor.evict(pod, chosen, node)
            self._preempting.discard(item.key)
            now = asyncio.get_running_loop().time()
            current = self._current(pod)
            if current is None or current.spec.node_name:
                return
            item.pod = current
            if gone:
                self.queue.refuse(item, diagnosis.plugins, now)
                # Victims without a grace period are gone already, and their events have passed.
                self.queue.retry(item.key, now)
            else:
                self.engine.set_nominated(pod, None)
                self.queue.fail(item, now)
            self._work.set()

        self._beside(evict())

    def _withdraw_lower(self, pod: Pod, node: str) -> None:
        """Less important pods that were to get room on the node look elsewhere at once, as upstream's executor has it."""
        now, priority = asyncio.get_running_loop().time(), pod.spec.priority or 0
        for other in list(self.engine.tables.nominated.get(node, {}).values()):
            if other.priority < priority and not is_fake(other.pod):
                self.engine.set_nominated(other.pod, None)
                self._statuses.withdraw(other.pod)
                if other.key in self.queue:
                    self.queue.update(_without_nomination(self._current(other.pod) or other.pod), now, retry=True)

    def _denominate(self, pod: Pod) -> str | None:
        """No room is kept for the pod any more; what its status is to say of that."""
        self.engine.set_nominated(pod, None)
        return "" if pod.status.nominated_node_name else None

    def _refuse(
        self,
        item: QueuedPod,
        message: str,
        plugins: Iterable[str],
        now: float,
        began: float,
        *,
        keeps_nomination: bool,
    ) -> None:
        self.queue.refuse(item, plugins, now)
        nominated = None if keeps_nomination else self._denominate(item.pod)
        self._tell(item.pod, "Unschedulable", message, nominated_node=nominated)
        self._observe("unschedulable", item.pod, began)

    def _fail(self, item: QueuedPod, message: str, now: float, began: float) -> None:
        self.queue.fail(item, now)
        self._tell(item.pod, "SchedulerError", message, nominated_node=self._denominate(item.pod))
        self._observe("error", item.pod, began)

    def _tell(self, pod: Pod, reason: str, message: str, *, nominated_node: str | None = None) -> None:
        if is_fake(pod):
            self.reservations.unschedulable(pod, reason, message)
        else:
            self._statuses.unschedulable(pod, reason, message, nominated_node)
        self._event(pod, "FailedScheduling", message)

    def _event(self, pod: Pod, reason: str, message: str) -> None:
        if is_fake(pod):
            self.reservations.event(pod, reason, message)
        elif self._recorder is not None:
            self._recorder.event(PODS, pod, "Normal" if reason == "Scheduled" else "Warning", reason, message)

    def _observe(self, result: str, pod: Pod, began: float) -> None:
        profile = pod.spec.scheduler_name
        self.metrics.attempts[result, profile].inc()
        self.metrics.attempt_seconds[result, profile].observe(time.perf_counter() - began)

    # -- binding

    def _bound(self, job: Job) -> None:
        self._binding.pop(job.item.key, None)
        key = job.item.key
        self.metrics.pod_attempts.observe(job.item.attempts)
        waited = asyncio.get_running_loop().time() - job.item.arrived
        self.metrics.sli_seconds[(str(min(job.item.attempts, 16)),)].observe(waited)
        pod = job.item.pod
        self.engine.commit(pod)
        what = reservation_name(pod) if is_fake(pod) else f"{key[0]}/{key[1]}"
        self._event(pod, "Scheduled", f"Successfully assigned {what} to {job.node}")
        self._look_for_successor(pod)

    def _bind_failed(self, job: Job, error: Exception) -> None:
        """The pod takes no room any more; others may use it, and the pod is tried again after its back-off."""
        item, pod = job.item, job.item.pod
        self._binding.pop(item.key, None)
        current = self._current(pod)
        bound = self.reservations.holds(pod) if is_fake(pod) else current is not None and bool(current.spec.node_name)
        if not bound:
            self.engine.forget(pod)
            self._happened(ClusterEvent(POD, Action.DELETE, pod, None))
        if isinstance(error, NotFound) or bound or current is None:
            self._look_for_successor(pod)
            return
        now = asyncio.get_running_loop().time()
        item.pod = current
        self.queue.fail(item, now)
        prepared = not isinstance(error, PreparationFailed)
        said = f"binding rejected: {error}" if prepared else str(error)
        self._tell(current, "SchedulerError", said, nominated_node=self._denominate(current))
        self.metrics.attempts["error", pod.spec.scheduler_name].inc()
        self._work.set()

    def _look_for_successor(self, pod: Pod) -> None:
        """A pod of the same name that came while this one was being bound was passed over then."""
        found = None if is_fake(pod) else self._feed.pods.get(pod.metadata.name, pod.metadata.namespace)
        if found is not None and found.metadata.uid != pod.metadata.uid:
            if not found.spec.node_name and not found.terminal:
                self._pending(None, found)

    def _current(self, pod: Pod) -> Pod | None:
        """The pod as the API server has it now, if it is still the same one."""
        if is_fake(pod):
            return self.reservations.current(pod)
        found = self._feed.pods.get(pod.metadata.name, pod.metadata.namespace)
        return found if found is not None and found.metadata.uid == pod.metadata.uid else None

    # -- what the feed tells

    def _reservation(self, old: Reservation | None, new: Reservation | None) -> None:
        """A reservation came, changed or went: it may need a node, may have let go of one, or may let its owners in."""
        reservations = self.reservations
        before = None if old is None else reservations.pending(old)
        after = None if new is None else reservations.pending(new)
        if before is not None and (after is None or before.metadata.key != after.metadata.key):
            self._pending(before, None)
            reservations.forget(before.metadata.uid)
            before = None
        if after is not None:
            self._pending(before, after)
        released = reservations.released(old, new)
        if released is not None:
            self._happened(ClusterEvent(POD, Action.DELETE, released, None))
        if new is not None and new.holds:
            reservations.holding(new)
            if self._synced:
                reservations.resize(new)
                if new.phase == "Waiting":
                    reservations.room_made()
            self._wake_owners(new)

    def _wake_owners(self, reservation: Reservation) -> None:
        """Owners are tried again, whatever refused them; once for many reservations that come together."""
        holding = self.reservations.ledger.holdings.get(reservation.metadata.uid)
        if holding is None or holding.owners is None or not len(self.queue):
            return
        if not self._owners_woken:
            asyncio.get_running_loop().call_soon(self._retry_owners)
        self._owners_woken.add(holding.owners)

    def _retry_owners(self) -> None:
        woken, self._owners_woken = self._owners_woken, set()
        now, classes = asyncio.get_running_loop().time(), self.reservations.ledger.classes
        for item in list(self.queue):
            if item.place is Place.UNSCHEDULABLE and not woken.isdisjoint(classes.of(item.pod)):
                self.queue.retry(item.key, now)
        self._work.set()

    def _gate(self, pod: Pod) -> str:
        status = self.engine.pre_enqueue(pod)
        return "" if status.ok else status.message or status.plugin

    def _pending(self, old: Pod | None, new: Pod | None) -> None:
        """A pod without a node came, changed, or is no longer one (bound, ended or gone)."""
        if new is None:
            assert old is not None
            self.queue.remove(old.metadata.key)
            self._preparer.changed(POD, *old.metadata.key)
            self._statuses.forget(old.metadata.key)
            self._diagnoses.pop(old.metadata.key, None)
            self.engine.set_nominated(old, None)
            return
        key = new.metadata.key
        if new.spec.scheduler_name not in self.engine.profiles or key in self._binding or key in self._preempting:
            return
        if new.terminating:
            self.queue.remove(key)
            return
        now = asyncio.get_running_loop().time()
        if old is None or key not in self.queue:
            if new.status.nominated_node_name:
                self.engine.set_nominated(new, new.status.nominated_node_name)
            self.queue.add(new, now)
            self.metrics.incoming["active", "PodAdd"].inc()
        else:
            if old.status.nominated_node_name != new.status.nominated_node_name:
                self.engine.set_nominated(new, new.status.nominated_node_name or None)
            self.queue.update(new, now, retry=_scheduling_changed(old, new))
        self._work.set()

    def _assigned(self, pod: Pod) -> None:
        """A pod was bound, by us or by someone else."""
        if not self._synced or pod.spec.scheduler_name in self.engine.profiles:
            return
        if self._limited and pod.spec.node_name in self.engine.tables.row_of:
            self.metrics.foreign.inc()
            message = (
                f"{pod.spec.scheduler_name} bound this pod onto node {pod.spec.node_name}, which is scheduled by us"
            )
            self._event(pod, "ForeignPod", message)

    def _happened(self, event: ClusterEvent) -> None:
        """Wakes the pods that an event can help, and what waits for the object."""
        known = event.old if event.new is None else event.new
        self._preparer.changed(event.kind, *_named(known))
        if not self._synced:
            return
        self.reservations.room_made()
        if not len(self.queue):
            return
        now = asyncio.get_running_loop().time()
        if event.kind == NODE and event.action is Action.ADD:
            self.queue.wake((_NEEDS_NODES,), lambda pod, plugin: True, now)
        names = self._listeners(event.kind, event.action)
        if names:
            self.queue.wake(names, lambda pod, plugin: self.engine.wakes(pod, (plugin,), event), now)
        self._work.set()

    def _listeners(self, kind: str, action: Action) -> Mapping[str, None]:
        """The plugins whose refusal such an event can change, each once."""
        found = self._known_listeners.get((kind, action))
        if found is None:
            interested = self._interests.get(kind, ())
            found = dict.fromkeys(name for name, wake_up in interested if action & wake_up.action)
            self._known_listeners[kind, action] = found
        return found

    # -- questions

    @property
    def active(self) -> int:
        """How many pods are about to be tried."""
        return self.queue.active

    @property
    def pods_known(self) -> int:
        return len(self._feed.pods)

    def pod(self, namespace: str, name: str) -> Pod | None:
        return self._feed.pods.get(name, namespace)

    def diagnosis(self, key: Key) -> dict[str, int]:
        """For a pod that waits: how many nodes refused it for what."""
        found = self._diagnoses.get(key)
        counted: Counter[str] = Counter()
        for status in found.statuses.values() if found is not None else ():
            counted.update(status.reasons)
        return dict(counted)

    def _beside(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _interests(engine: Engine) -> Mapping[str, list[tuple[str, WakeUp]]]:
    """By kind of object: the plugins that listen, and to what."""
    found: dict[str, list[tuple[str, WakeUp]]] = {}
    for profile in engine.profiles.values():
        for name, plugin in profile.plugins.items():
            for wake_up in plugin.wake_ups():
                found.setdefault(wake_up.kind, []).append((name, wake_up))
    return found


def _named(known: Any) -> tuple[str, str]:
    """Namespace and name of an object, in whichever form it was told."""
    if isinstance(known, Mapping):
        metadata = known["metadata"]
        return metadata.get("namespace") or "", metadata["name"]
    return known.metadata.namespace, known.metadata.name


def _without_nomination(pod: Pod) -> Pod:
    return replace(pod, status=replace(pod.status, nominated_node_name=""))


def _scheduling_changed(old: Pod, new: Pod) -> bool:
    """Whether an update touched anything but the status: our own condition must not wake the pod."""
    return old.spec != new.spec or (old.metadata.labels, old.metadata.annotations) != (
        new.metadata.labels,
        new.metadata.annotations,
    )
