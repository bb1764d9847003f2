"""The scheduling state: events and results in, instructions out. Pure: no clock, no I/O, no event loop.

It holds the engine and the queue and decides what happens to each item: bind it, evict others for it, or report that it
cannot be placed. Times are seconds of any steady clock and are passed in. The state is rebuilt from the API server: a
scheduler that restarts comes to the same decisions.

The order of the methods is the way of an item:

    pending -> next -> cycle.decide -> cycle.conclude -> bound | bind_failed | evicted
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views import Pod
from wharfinger.engine import Engine
from wharfinger.framework.events import NODE, POD, Action, ClusterEvent, pod_changes
from wharfinger.framework.prebinding import Write
from wharfinger.framework.stand_ins import StandIn, priority_for_room
from wharfinger.framework.tables import PodOnNode
from wharfinger.scheduler.cycle import NEEDS_NODES, SchedulingCycle
from wharfinger.scheduler.instructions import WAKE, Bind, Count, Evict, Forget, Outbox
from wharfinger.scheduler.queue import Place, QueuedPod, SchedulingQueue
from wharfinger.scheduler.schedulable import Schedulable, SchedulableKinds
from wharfinger.scheduler.wake_ups import Listeners

_POD_ADDED = Count("pod_added")
_FOREIGN = Count("foreign_pod")


class SchedulingState:
    def __init__(
        self,
        engine: Engine,
        kinds: SchedulableKinds,
        *,
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
        limited: bool = False,
    ) -> None:
        """`limited` says that only some nodes are ours, so that pods which other schedulers bind there are reported."""
        self.engine = engine
        self.kinds = kinds
        self._others = tuple(kinds.others.values())
        self.queue = SchedulingQueue(self._gate, initial_backoff, max_backoff)
        self.outbox = Outbox()  # instructions that were not carried out yet
        self._returned: list[PodOnNode] = []  # assumed and nominated pods that gave their room back
        engine.returned = self._returned
        self.cycle = SchedulingCycle(engine, self.queue, kinds, self.outbox)
        self._listeners = Listeners(engine)
        self._limited = limited
        self.acting = False  # whether everything is known and it is our turn to act
        self._waking: dict[Schedulable, None] = {}  # those that may have pods to retry
        self._missed: set[ObjectKey] = (
            set()
        )  # items whose victims are being evicted, and that an event would have woken

    # -- events

    def synced(self) -> None:
        """Every object is known; from now on we act."""
        self.acting = True
        self.queue.check_gates()
        for each in self._others:
            self.outbox += each.synced()

    def pending(self, old: Pod | None, new: Pod | None, now: float) -> None:
        """An item without a node was added or updated, or is no longer one: bound, finished or deleted."""
        if new is None:
            assert old is not None
            self._leave(old, now)
            return
        key = new.metadata.key
        if new.spec.scheduler_name not in self.engine.profiles:
            return
        if new.terminating:
            self._withdraw(new, now)
            return
        if key in self.cycle.busy or self._just_bound(new):
            return
        nominated = new.status.nominated_node_name
        if old is None or key not in self.queue:
            if nominated:
                self.engine.set_nominated(new, nominated)
            self.queue.add(new, now)
            self.outbox.append(_POD_ADDED)
        else:
            if old.status.nominated_node_name != nominated:
                self.engine.set_nominated(new, nominated or None)
            self.queue.update(new, now, retry=_scheduling_changed(old, new))
        self._retry_for_returned(now)
        self.outbox.append(WAKE)

    def _just_bound(self, item: Pod) -> bool:
        """Whether we have bound the pod, and this is what it was before. As upstream, which skips assumed pods."""
        record = self.engine.tables.pods.get(item.metadata.key)
        if record is None or not record.assumed or isinstance(item, StandIn):
            return False
        return record.pod.metadata.uid == item.metadata.uid

    def _leave(self, item: Pod, now: float) -> None:
        key = item.metadata.key
        self.queue.remove(key)
        self.cycle.diagnoses.pop(key, None)
        self.engine.set_nominated(item, None)
        self._retry_for_returned(now)
        self.outbox.append(Forget(key))

    def _withdraw(self, item: Pod, now: float) -> None:
        """An item without a node is being deleted. If it is being bound, that will fail, and its room is free already, as in
        upstream's handleAssumedPodDeletion."""
        self.queue.remove(item.metadata.key)
        self.cycle.diagnoses.pop(item.metadata.key, None)
        record = self.engine.tables.pods.get(item.metadata.key)
        if record is None or record.assumed:
            self.engine.remove_pod(*item.metadata.key)
        self._retry_for_returned(now)

    def assigned(self, pod: Pod) -> None:
        """A pod was bound, by us or by another scheduler."""
        if not self.acting or not self._limited or pod.spec.scheduler_name in self.engine.profiles:
            return
        node = pod.spec.node_name
        if node in self.engine.tables.row_of:
            self.outbox.append(_FOREIGN)
            message = f"{pod.spec.scheduler_name} bound this pod onto node {node}, which is scheduled by us"
            self.cycle.event(pod, "ForeignPod", message)

    def changed(self, kind: str, old: Any, new: Any, now: float) -> None:
        """An object of a kind other than Pod and Node was added, updated or deleted. The engine knows already."""
        schedulable = self.kinds.others.get(kind)
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
        self._stand_in_changed(schedulable, old, new, now)
        self.outbox += change.instructions
        self._waking[schedulable] = None
        self.outbox.append(WAKE)

    def _stand_in_changed(self, schedulable: Schedulable, old: Any, new: Any, now: float) -> None:
        """To the others, an object on a node is a pod: its arrival may let in those that want to be near it, or fill a unit
        for those that wait for that."""
        before = None if old is None else schedulable.stand_in(old)
        after = None if new is None else schedulable.stand_in(new)
        if after is None or not after.spec.node_name:
            return
        if before is None or not before.spec.node_name:
            self.happened(ClusterEvent(POD, Action.ADD, None, after), now)
        else:
            action = pod_changes(before, after)
            if action is not Action.UPDATE_OTHER:
                self.happened(ClusterEvent(POD, action, before, after), now)

    def happened(self, event: ClusterEvent, now: float) -> None:
        """Something changed in the cluster: retries the items that it can help."""
        if self._returned:
            self._retry_for_returned(now)
        self._happened(event, now, lambda pod: True)

    def _happened(self, event: ClusterEvent, now: float, concerned: Callable[[Pod], bool]) -> None:
        """`concerned` says which items to consider."""
        if not self.acting:
            return
        for each in self._others:
            self.outbox += each.room_changed()
            if each.has_woken:
                self._waking[each] = None
        if event.kind == NODE and event.old is not None and self.engine.tables.nominated:
            self._retry_nominated(event.old.metadata.name, now, gone=event.new is None)
        for eviction in self.cycle.evictions.values():
            pod = eviction.item.pod
            if concerned(pod) and any(self._listeners.wakes(pod, each, event) for each in eviction.refused_by):
                self._missed.add(eviction.item.key)
        if not len(self.queue):
            return
        if event.kind == NODE and event.action is Action.ADD:
            self.queue.wake((NEEDS_NODES,), lambda pod, plugin: True, now)
        plugins = self._listeners.of(event) if self.queue.unschedulable else ()
        if plugins:
            wakes = self._listeners.wakes
            only = self._listeners.concerned(event)
            self.queue.wake(plugins, lambda pod, plugin: concerned(pod) and wakes(pod, plugin, event), now, only)
        self.outbox.append(WAKE)

    def _retry_nominated(self, node: str, now: float, *, gone: bool) -> None:
        """A node changed: the pods that wait for evictions from it may have to look elsewhere."""
        for record in list(self.engine.tables.nominated.get(node, {}).values()):
            if record.key in self.cycle.evictions:
                self._missed.add(record.key)
            if gone:
                self.cycle.withdraw_nomination(record.pod, now)
            else:
                self.queue.retry(record.key, now)

    def _retry_for_returned(self, now: float) -> None:
        """Room that an assumed or nominated pod gave back is to the others as if that pod was deleted from the node, as in
        upstream's handleBindingCycleError and for nominations that change."""
        while self._returned:
            self._gave_back(self._returned.pop(0), now)

    def _gave_back(self, record: PodOnNode, now: float) -> None:
        left = replace(record.pod, spec=replace(record.pod.spec, node_name=record.node_name))

        def concerned(item: Pod) -> bool:
            # Room of a nominated pod was off limits only for those that are not more important.
            if item.metadata.uid == left.metadata.uid:
                return False
            return record.assumed or priority_for_room(item) <= record.priority

        self._happened(ClusterEvent(POD, Action.DELETE, left, None), now, concerned)

    def flush(self, now: float) -> None:
        """Retries items that waited long without an event."""
        self.queue.flush_unschedulable(now)
        self.outbox.append(WAKE)

    # -- one item

    def next(self, now: float) -> QueuedPod | None:
        """The item to schedule next. It leaves the queue; the steps of `cycle` follow."""
        if self._waking:
            self._retry_woken(now)
        if self._returned:
            self._retry_for_returned(now)
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

    # -- results

    def bound(self, binding: Bind, now: float) -> None:
        """The item was bound."""
        pod = binding.item.pod
        self.cycle.busy.discard(binding.item.key)
        self.engine.commit(pod)
        title = self.kinds.of(pod).title(pod)
        self.cycle.event(pod, "Scheduled", f"Successfully assigned {title} to {binding.node}", type="Normal")
        self._look_for_successor(pod, now)

    def bind_failed(self, binding: Bind, message: str, now: float, *, gone: bool = False) -> bool:
        """The item was not bound, or its preparations failed: the assumed item is forgotten, so that others may use the
        room. Returns whether it is retried after its back-off, which it is unless the object is `gone`."""
        item, pod = binding.item, binding.item.pod
        schedulable = self.kinds.of(pod)
        self.cycle.busy.discard(item.key)
        current, bound = schedulable.current(pod), schedulable.bound(pod)
        if bound:
            # By another scheduler, or by us and its deletion has not been reported yet.
            self.engine.commit(pod)
        else:
            self.engine.forget(pod)
        # What plugins had reserved for the pod is free only now, even if the pod itself left its node before.
        left = replace(pod, spec=replace(pod.spec, node_name=binding.node))
        self.happened(ClusterEvent(POD, Action.DELETE, left, None), now)
        if gone or bound or current is None or current.terminating:
            self._look_for_successor(pod, now)
            return False
        item.pod = current
        self.cycle.fail(item, message, now)
        self.outbox.append(WAKE)
        return True

    def writes_failed(self, key: ObjectKey, now: float) -> None:
        """What plugins wanted changed for an item without a node was not written, or nobody knows whether it was: the event
        that the item waits for may never come."""
        self.queue.retry(key, now, failed=True)
        self.outbox.append(WAKE)

    def object_gone(self, write: Write, now: float) -> None:
        """There is no object that this write concerns. Watches may report that much later, or, after a relist, without what
        the object held, so the items that it can help are retried now."""
        known = self.engine.object_gone(write.kind, write.namespace, write.name)
        if known is not None:
            self.happened(ClusterEvent(write.kind, Action.DELETE, known, None), now)

    def room_reserved(self, eviction: Evict) -> None:
        """What the evictions free is kept for the item by other means than its nomination."""
        self.engine.set_nominated(eviction.item.pod, None)

    def evicted(self, eviction: Evict, now: float, *, done: bool) -> None:
        """The victims are gone or terminating, or, if not `done`, some could not be evicted."""
        item, pod = eviction.item, eviction.item.pod
        self.cycle.busy.discard(item.key)
        del self.cycle.evictions[item.key]
        missed = item.key in self._missed
        self._missed.discard(item.key)
        current = self.kinds.of(pod).current(pod)
        if current is None or current.spec.node_name or current.terminating:
            self._look_for_successor(pod, now)
            return
        item.pod = current
        if done:
            if self.engine.nominated_node(pod) == eviction.node and not current.status.nominated_node_name:
                # Not reported yet. Without it, the item would preempt again and again until it is.
                item.pod = replace(current, status=replace(current.status, nominated_node_name=eviction.node))
            self.queue.refuse(item, eviction.refused_by, now)
            # Victims that terminate wake it when they are gone. Events that have passed, such as those of victims without
            # a grace period, would not come again.
            if missed or _scheduling_changed(pod, current):
                self.queue.retry(item.key, now)
        else:
            self.cycle.end_nomination(pod)
            self.queue.fail(item, now)
        self.outbox.append(WAKE)

    def _look_for_successor(self, pod: Pod, now: float) -> None:
        """Queues an item that replaced this one under the same name while this one was busy."""
        found = self.kinds.of(pod).successor(pod)
        if found is not None:
            self.pending(None, found, now)

    # -- questions

    def diagnosis(self, key: ObjectKey) -> dict[str, int]:
        """For an item that waits: how many nodes refused it for which reason."""
        found = self.cycle.diagnoses.get(key)
        counted: Counter[str] = Counter()
        for status in found.statuses.values() if found is not None else ():
            counted.update(status.reasons)
        return dict(counted)

    def _gate(self, pod: Pod) -> str:
        status = self.engine.pre_enqueue(pod)
        return "" if status.ok else status.plugin


def _scheduling_changed(old: Pod, new: Pod) -> bool:
    """Whether an update touched more than our own condition, which must not wake the pod."""
    if old.status.resource_claim_statuses != new.status.resource_claim_statuses:
        return True  # the claims that were made from its templates
    return old.spec != new.spec or (old.metadata.labels, old.metadata.annotations) != (
        new.metadata.labels,
        new.metadata.annotations,
    )
