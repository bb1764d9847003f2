"""The scheduling state: events and results in, instructions out. Pure: no clock, no I/O, no event loop.

It holds the engine and the queue and decides what happens to each item: bind it, evict others for it, or report that it
cannot be placed. Times are seconds of any steady clock and are passed in. The state is rebuilt from the API server: a
scheduler that restarts comes to the same decisions.

The order of the methods is the way of an item, as in upstream's schedule_one.go:

    changed, pending -> next -> decide -> conclude -> bound | bind_failed | evicted
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views import Pod
from wharfinger.engine import Engine
from wharfinger.engine.outcome import NO_NODES, Decision, Diagnosis
from wharfinger.framework.events import NODE, POD, Action, ClusterEvent
from wharfinger.framework.stand_ins import StandIn
from wharfinger.framework.status import Code, Status
from wharfinger.scheduler.instructions import (
    WAKE,
    Bind,
    ClearNomination,
    Count,
    Evict,
    Forget,
    Instruction,
    RecordEvent,
)
from wharfinger.scheduler.queue import Place, QueuedPod, SchedulingQueue
from wharfinger.scheduler.schedulable import Schedulable
from wharfinger.scheduler.wake_ups import Listeners

log = logging.getLogger(__name__)

Result = Literal["scheduled", "unschedulable", "error"]
"""How an attempt ended, under the names of upstream's metrics."""

NEEDS_NODES = "(no nodes)"  # filed like a plugin: the pod was refused because there was no node at all

_POD_ADDED = Count("pod_added")
_PREEMPTION = Count("preemption")
_FOREIGN = Count("foreign_pod")


class SchedulingState:
    def __init__(
        self,
        engine: Engine,
        pods: Schedulable,
        others: Sequence[Schedulable] = (),
        *,
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
        limited: bool = False,
    ) -> None:
        """`limited` says that only some nodes are ours, so that pods which other schedulers bind there are reported."""
        self.engine = engine
        self.queue = SchedulingQueue(self._gate, initial_backoff, max_backoff)
        self._pods = pods
        self.schedulables = {each.resource.kind: each for each in others}  # besides pods, by kind
        self._limited = limited
        self._acting = False  # whether everything is known and it is our turn to act
        self._busy: set[ObjectKey] = set()  # items that are being bound, or for which others are being evicted
        self._diagnoses: dict[ObjectKey, Diagnosis] = {}
        self._listeners = Listeners(engine)
        self._waking: dict[Schedulable, None] = {}  # those that may have pods to retry
        self._instructions: list[Instruction] = []

    def take(self) -> list[Instruction]:
        """The instructions since the last call."""
        taken, self._instructions = self._instructions, []
        return taken

    # -- events

    def synced(self) -> None:
        """Every object is known; from now on we act."""
        self._acting = True
        for each in self.schedulables.values():
            self._instructions += each.synced()

    def pending(self, old: Pod | None, new: Pod | None, now: float) -> None:
        """An item without a node was added or updated, or is no longer one: bound, finished or deleted."""
        if new is None:
            assert old is not None
            self._leave(old)
            return
        key = new.metadata.key
        if new.spec.scheduler_name not in self.engine.profiles or key in self._busy:
            return
        if new.terminating:
            self.queue.remove(key)
            return
        nominated = new.status.nominated_node_name
        if old is None or key not in self.queue:
            if nominated:
                self.engine.set_nominated(new, nominated)
            self.queue.add(new, now)
            self._instructions.append(_POD_ADDED)
        else:
            if old.status.nominated_node_name != nominated:
                self.engine.set_nominated(new, nominated or None)
            self.queue.update(new, now, retry=_scheduling_changed(old, new))
        self._instructions.append(WAKE)

    def _leave(self, item: Pod) -> None:
        key = item.metadata.key
        self.queue.remove(key)
        self._diagnoses.pop(key, None)
        self.engine.set_nominated(item, None)
        self._instructions.append(Forget(key))

    def assigned(self, pod: Pod) -> None:
        """A pod was bound, by us or by another scheduler."""
        if not self._acting or not self._limited or pod.spec.scheduler_name in self.engine.profiles:
            return
        node = pod.spec.node_name
        if node in self.engine.tables.row_of:
            self._instructions.append(_FOREIGN)
            message = f"{pod.spec.scheduler_name} bound this pod onto node {node}, which is scheduled by us"
            self._event(pod, "ForeignPod", message)

    def changed(self, kind: str, old: Any, new: Any, now: float) -> None:
        """An object of a kind other than Pod and Node was added, updated or deleted. The engine knows already."""
        schedulable = self.schedulables.get(kind)
        if schedulable is None:
            return
        change = schedulable.changed(old, new)
        before, after = change.before, change.after
        if before is not None and (after is None or before.metadata.key != after.metadata.key):
            self.pending(before, None, now)
            before = None
        if after is not None:
            self.pending(before, after, now)
        if change.released is not None:
            self.happened(ClusterEvent(POD, Action.DELETE, change.released, None), now)
        self._instructions += change.instructions
        self._waking[schedulable] = None
        self._instructions.append(WAKE)

    def happened(self, event: ClusterEvent, now: float) -> None:
        """Something changed in the cluster: retries the items that it can help."""
        if not self._acting:
            return
        for each in self.schedulables.values():
            self._instructions += each.room_changed()
        if not len(self.queue):
            return
        if event.kind == NODE and event.action is Action.ADD:
            self.queue.wake((NEEDS_NODES,), lambda pod, plugin: True, now)
        plugins = self._listeners.of(event)
        if plugins:
            self.queue.wake(plugins, lambda pod, plugin: self.engine.wakes(pod, (plugin,), event), now)
        self._instructions.append(WAKE)

    def flush(self, now: float) -> None:
        """Retries items that waited long without an event."""
        self.queue.flush_unschedulable(now)
        self._instructions.append(WAKE)

    # -- one item

    def next(self, now: float) -> QueuedPod | None:
        """The item to schedule next. It leaves the queue; `decide` and `conclude` follow."""
        if self._waking:
            self._retry_woken(now)
        return self.queue.pop(now)

    def _retry_woken(self, now: float) -> None:
        """Retries pods that changed objects let in, whatever refused them; once for many objects."""
        waking, self._waking = self._waking, {}
        for each in waking:
            wakes = each.wakes()
            if wakes is None:
                continue
            for item in list(self.queue):
                if item.place is Place.UNSCHEDULABLE and wakes(item.pod):
                    self.queue.retry(item.key, now)

    def decide(self, item: QueuedPod) -> tuple[Decision, Status | None]:
        """The node for an item, which is assumed there at once, and whether plugins let it be."""
        pod = item.pod
        try:
            decision = self.engine.schedule(pod)
            return decision, None if decision.node is None else self.engine.assume(pod, decision.node)
        except Exception as error:
            log.exception("scheduling pod %s/%s failed", *item.key)
            return Decision(error=f"{type(error).__name__}: {error}"), None

    def conclude(self, item: QueuedPod, decision: Decision, assumed: Status | None, now: float) -> Result:
        """Binds the item, or makes room for it, or puts it back into the queue."""
        if decision.node is not None and assumed is not None:
            if assumed.ok:
                return self._bind(item, decision.node)
            return self._reserve_failed(item, assumed, now)
        if decision.error == NO_NODES:
            return self._refuse(item, NO_NODES, {NEEDS_NODES}, now, keeps_nomination=False)
        if decision.error:
            return self._fail(item, decision.error, now)
        assert decision.diagnosis is not None
        self._diagnoses[item.key] = decision.diagnosis
        return self._preempt(item, decision.diagnosis, now)

    def _bind(self, item: QueuedPod, node: str) -> Result:
        engine, pod, key = self.engine, item.pod, item.key
        self._busy.add(key)
        self._diagnoses.pop(key, None)
        self._instructions.append(Bind(item, node, engine.annotations(pod, node), engine.preparations(pod, node)))
        return "scheduled"

    def _reserve_failed(self, item: QueuedPod, status: Status, now: float) -> Result:
        """A plugin refused to reserve what its filter had accepted."""
        if status.code is Code.ERROR:
            return self._fail(item, status.message, now)
        message = f"0/{self.engine.tables.node_count} nodes are available: {status.message}."
        return self._refuse(item, message, {status.plugin}, now, keeps_nomination=False)

    def _preempt(self, item: QueuedPod, diagnosis: Diagnosis, now: float) -> Result:
        """No node fits: makes room by preemption if that helps."""
        pod, keeps_nomination = item.pod, bool(self.engine.profile(item.pod).at["postFilter"])
        if keeps_nomination and self._may_preempt(pod):
            self._instructions.append(_PREEMPTION)
            result = self.engine.preempt(pod, diagnosis)
            if result.node is not None:
                self._make_room(item, result.node, list(result.victims), diagnosis, now)
                self._report(pod, "Unschedulable", diagnosis.message, nominated_node=result.node)
                return "unschedulable"
            keeps_nomination = not result.hopeless
        return self._refuse(item, diagnosis.message, diagnosis.plugins, now, keeps_nomination=keeps_nomination)

    def _may_preempt(self, pod: Pod) -> bool:
        if not self.schedulable(pod).may_preempt(pod):
            return False
        return not any(each.keeps_room_for(pod) for each in self.schedulables.values())

    def _make_room(self, item: QueuedPod, node: str, victims: list[Pod], diagnosis: Diagnosis, now: float) -> None:
        """Until the victims are evicted the item is not retried, or it would choose others."""
        if not all(victim.terminating for victim in victims):
            self._withdraw_lower(item.pod, node, now)
        self.engine.set_nominated(item.pod, node)
        self._busy.add(item.key)
        self._instructions.append(Evict(item, node, victims, diagnosis.plugins))

    def _withdraw_lower(self, pod: Pod, node: str, now: float) -> None:
        """Pods of lower priority that are nominated to the node lose that and are retried, as in upstream's executor."""
        priority = pod.spec.priority or 0
        for other in list(self.engine.tables.nominated.get(node, {}).values()):
            if other.priority < priority and not isinstance(other.pod, StandIn):
                self.engine.set_nominated(other.pod, None)
                self._instructions.append(ClearNomination(other.pod))
                if other.key in self.queue:
                    current = self._pods.current(other.pod) or other.pod
                    self.queue.update(_without_nomination(current), now, retry=True)

    def _refuse(
        self, item: QueuedPod, message: str, plugins: Iterable[str], now: float, *, keeps_nomination: bool
    ) -> Result:
        self.queue.refuse(item, plugins, now)
        nominated = None if keeps_nomination else self._withdraw(item.pod)
        self._report(item.pod, "Unschedulable", message, nominated_node=nominated)
        return "unschedulable"

    def _fail(self, item: QueuedPod, message: str, now: float) -> Result:
        self.queue.fail(item, now)
        self._report(item.pod, "SchedulerError", message, nominated_node=self._withdraw(item.pod))
        return "error"

    def _withdraw(self, pod: Pod) -> str | None:
        """No room is kept for the pod any more; returns what to do about the nominated node in its status."""
        self.engine.set_nominated(pod, None)
        return "" if pod.status.nominated_node_name else None

    # -- results

    def bound(self, binding: Bind, now: float) -> None:
        """The item was bound."""
        pod = binding.item.pod
        self._busy.discard(binding.item.key)
        self.engine.commit(pod)
        title = self.schedulable(pod).title(pod)
        self._event(pod, "Scheduled", f"Successfully assigned {title} to {binding.node}", type="Normal")
        self._look_for_successor(pod, now)

    def bind_failed(self, binding: Bind, message: str, now: float, *, gone: bool = False) -> bool:
        """The item was not bound, or its preparations failed: the assumed item is forgotten, so that others may use the
        room. Returns whether it is retried after its back-off, which it is unless the object is `gone`."""
        item, pod = binding.item, binding.item.pod
        schedulable = self.schedulable(pod)
        self._busy.discard(item.key)
        current, bound = schedulable.current(pod), schedulable.bound(pod)
        if not bound:
            self.engine.forget(pod)
            # As upstream's handleBindingCycleError: to those that wait, it is as if a pod on the node was deleted.
            left = replace(pod, spec=replace(pod.spec, node_name=binding.node))
            self.happened(ClusterEvent(POD, Action.DELETE, left, None), now)
        if gone or bound or current is None:
            self._look_for_successor(pod, now)
            return False
        item.pod = current
        self._fail(item, message, now)
        self._instructions.append(WAKE)
        return True

    def room_reserved(self, eviction: Evict) -> None:
        """What the evictions free is kept for the item by other means than its nomination."""
        self.engine.set_nominated(eviction.item.pod, None)

    def evicted(self, eviction: Evict, now: float, *, done: bool) -> None:
        """The victims are gone or terminating, or, if not `done`, some could not be evicted."""
        item, pod = eviction.item, eviction.item.pod
        self._busy.discard(item.key)
        current = self.schedulable(pod).current(pod)
        if current is None or current.spec.node_name:
            self._look_for_successor(pod, now)
            return
        item.pod = current
        if done:
            self.queue.refuse(item, eviction.refused_by, now)
            # Victims without a grace period are gone already, and their events have passed.
            self.queue.retry(item.key, now)
        else:
            self.engine.set_nominated(pod, None)
            self.queue.fail(item, now)
        self._instructions.append(WAKE)

    def _look_for_successor(self, pod: Pod, now: float) -> None:
        """Queues an item that replaced this one under the same name while this one was busy."""
        found = self.schedulable(pod).successor(pod)
        if found is not None:
            self.pending(None, found, now)

    # -- reporting

    def _report(self, pod: Pod, reason: str, message: str, *, nominated_node: str | None) -> None:
        self._instructions += self.schedulable(pod).unschedulable(pod, reason, message, nominated_node)
        self._event(pod, "FailedScheduling", message)

    def _event(self, pod: Pod, reason: str, message: str, *, type: Literal["Normal", "Warning"] = "Warning") -> None:
        schedulable = self.schedulable(pod)
        about = schedulable.described(pod)
        if about is not None:
            self._instructions.append(RecordEvent(schedulable.resource, about, type, reason, message))

    # -- questions

    def diagnosis(self, key: ObjectKey) -> dict[str, int]:
        """For an item that waits: how many nodes refused it for which reason."""
        found = self._diagnoses.get(key)
        counted: Counter[str] = Counter()
        for status in found.statuses.values() if found is not None else ():
            counted.update(status.reasons)
        return dict(counted)

    def _gate(self, pod: Pod) -> str:
        status = self.engine.pre_enqueue(pod)
        return "" if status.ok else status.message or status.plugin

    def schedulable(self, item: Pod) -> Schedulable:
        """What the item is an item of."""
        return self.schedulables[item.kind] if isinstance(item, StandIn) else self._pods


def _without_nomination(pod: Pod) -> Pod:
    return replace(pod, status=replace(pod.status, nominated_node_name=""))


def _scheduling_changed(old: Pod, new: Pod) -> bool:
    """Whether an update touched more than the status: our own condition must not wake the pod."""
    return old.spec != new.spec or (old.metadata.labels, old.metadata.annotations) != (
        new.metadata.labels,
        new.metadata.annotations,
    )
