"""One scheduling cycle, as in upstream's schedule_one.go: decide on a node, then bind, preempt, or put back into the queue.

Part of the pure scheduling state (`wharfinger.scheduler.state`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal

from msgspec.structs import replace

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views import Pod
from wharfinger.engine import Engine
from wharfinger.engine.outcome import NO_NODES, Decision, Diagnosis
from wharfinger.framework.stand_ins import StandIn
from wharfinger.framework.status import Code, Status
from wharfinger.scheduler.instructions import Bind, CarryOut, ClearNomination, Count, Evict, Outbox, RecordEvent
from wharfinger.scheduler.queue import QueuedPod, SchedulingQueue
from wharfinger.scheduler.schedulable import SchedulableKinds

log = logging.getLogger(__name__)

Result = Literal["scheduled", "unschedulable", "error"]
"""How an attempt ended, under the names of upstream's metrics."""

NEEDS_NODES = "(no nodes)"  # filed like a plugin: the pod was refused because there was no node at all

_PREEMPTION = Count("preemption")


class SchedulingCycle:
    def __init__(self, engine: Engine, queue: SchedulingQueue, kinds: SchedulableKinds, outbox: Outbox) -> None:
        self.busy: set[ObjectKey] = set()  # items that are being bound, or for which others are being evicted
        self.evictions: dict[ObjectKey, Evict] = {}  # by the item for which others are being evicted
        self.diagnoses: dict[ObjectKey, Diagnosis] = {}  # of the last attempt, where no node fits
        self._engine = engine
        self._queue = queue
        self._kinds = kinds
        self._outbox = outbox

    def decide(self, item: QueuedPod) -> tuple[Decision, Status | None]:
        """The node for an item, which is assumed there at once, and whether plugins let it be."""
        pod = item.pod
        try:
            decision = self._engine.schedule(pod)
            return decision, None if decision.node is None else self._engine.assume(pod, decision.node)
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
            return self.fail(item, decision.error, now)
        assert decision.diagnosis is not None
        self.diagnoses[item.key] = decision.diagnosis
        return self._preempt(item, decision.diagnosis, now)

    def _bind(self, item: QueuedPod, node: str) -> Result:
        engine, pod, key = self._engine, item.pod, item.key
        self.busy.add(key)
        self.diagnoses.pop(key, None)
        self._outbox.append(Bind(item, node, engine.annotations(pod, node), engine.preparations(pod, node)))
        return "scheduled"

    def _reserve_failed(self, item: QueuedPod, status: Status, now: float) -> Result:
        """A plugin refused to reserve what its filter had accepted."""
        if status.code is Code.ERROR:
            return self.fail(item, status.message, now)
        message = f"0/{self._engine.tables.node_count} nodes are available: {status.message}."
        return self._refuse(item, message, {status.plugin}, now, keeps_nomination=False)

    def _preempt(self, item: QueuedPod, diagnosis: Diagnosis, now: float) -> Result:
        """No node fits: makes room by preemption if that helps."""
        pod, keeps_nomination = item.pod, bool(self._engine.profile(item.pod).at["postFilter"])
        plugins = diagnosis.plugins
        if keeps_nomination and self.may_preempt(pod):
            self._outbox.append(_PREEMPTION)
            result = self._engine.preempt(pod, diagnosis)
            if result.writes:
                self._outbox.append(CarryOut(item.key, result.writes))
            if result.node is not None:
                self._make_room(item, result.node, list(result.victims), diagnosis, now)
                self._report(pod, "Unschedulable", self.message(pod, diagnosis), nominated_node=result.node)
                return "unschedulable"
            keeps_nomination = not result.helps_nowhere
            # Those that refuse the pod only after evictions may accept it later, and those that spare pods may
            # no longer do so: then evictions help.
            plugins |= result.plugins
        return self._refuse(item, self.message(pod, diagnosis), plugins, now, keeps_nomination=keeps_nomination)

    def may_preempt(self, pod: Pod) -> bool:
        if not self._kinds.of(pod).may_preempt(pod):
            return False
        return not any(each.keeps_room_for(pod) for each in self._kinds.others.values())

    def _make_room(self, item: QueuedPod, node: str, victims: list[Pod], diagnosis: Diagnosis, now: float) -> None:
        """Until the victims are evicted the item is not retried, or it would choose others."""
        if not all(victim.terminating for victim in victims):
            self._withdraw_lower(item.pod, node, now)
        self._engine.set_nominated(item.pod, node)
        self.busy.add(item.key)
        eviction = self.evictions[item.key] = Evict(item, node, victims, diagnosis.plugins)
        self._outbox.append(eviction)

    def _withdraw_lower(self, pod: Pod, node: str, now: float) -> None:
        """Pods of lower priority that are nominated to the node lose that and are retried, as in upstream's executor."""
        priority = pod.spec.priority or 0
        for other in list(self._engine.tables.nominated.get(node, {}).values()):
            if other.priority < priority and not isinstance(other.pod, StandIn):
                self.withdraw_nomination(other.pod, now)

    def withdraw_nomination(self, pod: Pod, now: float) -> None:
        """The pod loses its nomination, and is retried."""
        self.end_nomination(pod)
        if isinstance(pod, StandIn):
            self._queue.retry(pod.metadata.key, now)
        elif pod.metadata.key in self._queue:
            current = self._kinds.pods.current(pod) or pod
            self._queue.update(_without_nomination(current), now, retry=True)

    def end_nomination(self, pod: Pod) -> None:
        """No room is kept for the pod any more, and its status does not say so."""
        self._engine.set_nominated(pod, None)
        if not isinstance(pod, StandIn):
            self._outbox.append(ClearNomination(pod))

    def _refuse(
        self, item: QueuedPod, message: str, plugins: Iterable[str], now: float, *, keeps_nomination: bool
    ) -> Result:
        self._queue.refuse(item, plugins, now)
        nominated = None if keeps_nomination else self._withdraw(item.pod)
        self._report(item.pod, "Unschedulable", message, nominated_node=nominated)
        return "unschedulable"

    def fail(self, item: QueuedPod, message: str, now: float) -> Result:
        self._queue.fail(item, now)
        self._report(item.pod, "SchedulerError", message, nominated_node=self._withdraw(item.pod))
        return "error"

    def _withdraw(self, pod: Pod) -> str | None:
        """No room is kept for the pod any more; returns what to do about the nominated node in its status."""
        nominated = pod.status.nominated_node_name or self._engine.nominated_node(pod)
        self._engine.set_nominated(pod, None)
        return "" if nominated else None

    # -- reporting

    def message(self, pod: Pod, diagnosis: Diagnosis) -> str:
        """The stock message, and what objects of other kinds than pods have to do with it."""
        notes = [note for each in self._kinds.others.values() if (note := each.note(pod, diagnosis))]
        return " ".join([diagnosis.message, *notes])

    def _report(self, pod: Pod, reason: str, message: str, *, nominated_node: str | None) -> None:
        self._outbox += self._kinds.of(pod).unschedulable(pod, reason, message, nominated_node)
        self.event(pod, "FailedScheduling", message)

    def event(self, pod: Pod, reason: str, message: str, *, type: Literal["Normal", "Warning"] = "Warning") -> None:
        schedulable = self._kinds.of(pod)
        about = schedulable.described(pod)
        if about is not None:
            self._outbox.append(RecordEvent(schedulable.resource, about, type, reason, message))


def _without_nomination(pod: Pod) -> Pod:
    return replace(pod, status=replace(pod.status, nominated_node_name=""))
