"""The scheduling queue: which pending pod is scheduled next, and when a refused one is retried.

A pod is in one of three places: *active* (by priority, then arrival), *backing off* (by the end of its back-off), or
*unschedulable* (filed under the plugins that refused it, until an event that could change their answer; pods with
scheduling gates are there, too). Pure: the time is passed in.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views import Pod

FLUSH_AFTER = 300.0
"""Seconds after which an unschedulable pod is retried even without an event, so that none is ever forgotten."""


class Place(Enum):
    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"


@dataclass(slots=True, eq=False)
class QueuedPod:
    pod: Pod
    priority: int
    arrived: float  # when it was first queued, for metrics
    attempts: int = 0
    refusals: int = 0  # unsuccessful attempts in a row; they determine the length of the back-off
    queued_at: float = 0.0  # when it was put into its current place
    refused_by: frozenset[str] = frozenset()
    failed: bool = False  # the last attempt ended in an error, not in a refusal: its back-off is never cut short
    place: Place = Place.ACTIVE
    token: int = 0  # number of its valid heap entry; entries with other numbers are stale

    @property
    def key(self) -> ObjectKey:
        return self.pod.metadata.key


@dataclass(slots=True)
class SchedulingQueue:
    """`gated` returns the plugin for which a pod may not be scheduled yet (scheduling gates); empty if it may."""

    gated: Callable[[Pod], str]
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    _pods: dict[ObjectKey, QueuedPod] = field(default_factory=dict)
    _active: list[tuple[int, int, int, QueuedPod]] = field(default_factory=list)
    _backoff: list[tuple[float, int, int, QueuedPod]] = field(default_factory=list)
    _unschedulable: dict[ObjectKey, QueuedPod] = field(default_factory=dict)
    _by_plugin: dict[str, dict[ObjectKey, QueuedPod]] = field(default_factory=dict)
    _sequence: int = 0

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._pods

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    def get(self, key: ObjectKey) -> QueuedPod | None:
        return self._pods.get(key)

    @property
    def unschedulable(self) -> int:
        """How many pods wait for an event, gated ones included."""
        return len(self._unschedulable)

    @property
    def active(self) -> int:
        """About how many pods are active; stale entries are counted, too."""
        return len(self._active)

    def backing_off(self) -> Iterator[QueuedPod]:
        return (entry[3] for entry in self._backoff if not self._stale(entry))

    def counts(self) -> dict[str, int]:
        """How many pods are in each place, under the names of upstream's `scheduler_pending_pods`."""
        counted = dict.fromkeys((place.value for place in Place), 0)
        for item in self._pods.values():
            counted[item.place.value] += 1
        return counted

    def add(self, pod: Pod, now: float) -> QueuedPod:
        """Queues a pod, or updates one that is queued already."""
        known = self._pods.get(pod.metadata.key)
        if known is not None:
            self.update(pod, now, retry=False)
            return known
        item = QueuedPod(pod, pod.spec.priority or 0, arrived=now)
        self._pods[item.key] = item
        self._enter(item, now)
        return item

    def update(self, pod: Pod, now: float, *, retry: bool) -> None:
        """The pod was updated; `retry` says that this could make it schedulable."""
        item = self._pods.get(pod.metadata.key)
        if item is None:
            return
        priority = pod.spec.priority or 0
        moved = priority != item.priority
        item.pod, item.priority = pod, priority
        if item.place is Place.GATED or (item.place is Place.UNSCHEDULABLE and retry):
            self._retry(item, now)
        elif item.place is Place.ACTIVE and moved:
            self._push_active(item, now)

    def check_gates(self) -> None:
        """Asks about gated pods again: what they wait for may have been there before they were."""
        for item in [each for each in self._unschedulable.values() if each.place is Place.GATED]:
            self._retry(item, item.queued_at)

    def remove(self, key: ObjectKey) -> None:
        """The pod is gone or bound: it leaves the queue wherever it is."""
        item = self._pods.pop(key, None)
        if item is not None:
            self._unfile(item)
            item.token = -1

    def pop(self, now: float) -> QueuedPod | None:
        """The next pod to schedule. It leaves the queue, and comes back by `refuse` or `fail` unless it is bound."""
        self.flush_backoff(now)
        item = self._pop_active() or self._pop_early(now)
        if item is None:
            return None
        del self._pods[item.key]
        item.token = -1
        item.attempts += 1
        return item

    def refuse(self, item: QueuedPod, plugins: Iterable[str], now: float) -> None:
        """No node fits: the pod waits for an event that could change the answer of one of these plugins."""
        item.refusals += 1
        item.failed = False
        item.refused_by = frozenset(plugins)
        if item.key in self._pods:
            return  # deleted and created again meanwhile
        self._pods[item.key] = item
        if self._gate(item, now):
            return
        self._file(item, Place.UNSCHEDULABLE, now)

    def fail(self, item: QueuedPod, now: float) -> None:
        """The attempt ended in an error, such as a failed bind: the pod is retried after its back-off."""
        item.refusals += 1
        item.failed = True
        if item.key in self._pods:
            return
        self._pods[item.key] = item
        if not self._gate(item, now):
            self._push_backoff(item, now)

    def wake(
        self,
        plugins: Iterable[str],
        helps: Callable[[Pod, str], bool],
        now: float,
        only: Collection[ObjectKey] | None = None,
    ) -> int:
        """Retries pods that these plugins refused, where the event `helps`; returns how many. `only` are the pods to
        consider, if not all."""
        if not self._unschedulable:
            return 0
        woken = 0
        for plugin in plugins:
            filed = self._by_plugin.get(plugin, {})
            for item in list(filed.values()) if only is None else [filed[key] for key in only if key in filed]:
                if item.place in (Place.UNSCHEDULABLE, Place.GATED) and helps(item.pod, plugin):
                    self._retry(item, now)
                    woken += 1
        return woken

    def retry(self, key: ObjectKey, now: float, *, failed: bool = False) -> None:
        """Retries one unschedulable pod. `failed` says that its attempt ended in an error after all."""
        item = self._unschedulable.get(key)
        if item is not None:
            item.failed = item.failed or failed
            self._retry(item, now)

    def flush_backoff(self, now: float) -> None:
        """Makes pods active whose back-off is over."""
        while self._backoff and (self._backoff[0][0] <= now or self._stale(self._backoff[0])):
            _, _, token, item = heapq.heappop(self._backoff)
            if token == item.token:
                self._push_active(item, now)

    def flush_unschedulable(self, now: float) -> None:
        """Retries pods that waited long without an event."""
        for item in list(self._unschedulable.values()):
            if item.place is Place.UNSCHEDULABLE and now - item.queued_at >= FLUSH_AFTER:
                self._retry(item, now)

    def next_backoff(self) -> float | None:
        """When the first back-off ends."""
        while self._backoff and self._stale(self._backoff[0]):
            heapq.heappop(self._backoff)
        return self._backoff[0][0] if self._backoff else None

    def _enter(self, item: QueuedPod, now: float) -> None:
        if not self._gate(item, now):
            self._push_active(item, now)

    def _gate(self, item: QueuedPod, now: float) -> bool:
        plugin = self.gated(item.pod)
        if not plugin:
            return False
        item.refused_by |= {plugin}
        self._file(item, Place.GATED, now)
        return True

    def _retry(self, item: QueuedPod, now: float) -> None:
        """Takes a pod out of the unschedulable ones; the rest of its back-off still applies."""
        self._unfile(item)
        if self._gate(item, now):
            return
        if item.refusals and self._backoff_end(item) > now:
            self._push_backoff(item, now)
        else:
            self._push_active(item, now)

    def _backoff_end(self, item: QueuedPod) -> float:
        return item.queued_at + self._backoff_length(item)

    def _backoff_length(self, item: QueuedPod) -> float:
        # The exponent is capped so that the power does not overflow.
        return min(self.max_backoff, self.initial_backoff * 2.0 ** min(max(item.refusals - 1, 0), 60))

    def _push_active(self, item: QueuedPod, now: float) -> None:
        item.place, item.queued_at, item.token = Place.ACTIVE, now, self._next()
        heapq.heappush(self._active, (-item.priority, item.token, item.token, item))

    def _push_backoff(self, item: QueuedPod, now: float) -> None:
        began = now if item.place is not Place.UNSCHEDULABLE else item.queued_at
        item.place, item.queued_at, item.token = Place.BACKOFF, began, self._next()
        heapq.heappush(self._backoff, (self._backoff_end(item), -item.priority, item.token, item))

    def _pop_active(self) -> QueuedPod | None:
        while self._active:
            _, _, token, item = heapq.heappop(self._active)
            if token == item.token:
                return item
        return None

    def _pop_early(self, now: float) -> QueuedPod | None:
        """With nothing active, a refused pod need not wait for the end of its back-off (SchedulerPopFromBackoffQ)."""
        kept, found = [], None
        while self._backoff:
            entry = heapq.heappop(self._backoff)
            if self._stale(entry):
                continue
            if entry[3].failed:
                kept.append(entry)
                continue
            found = entry[3]
            break
        for entry in kept:
            heapq.heappush(self._backoff, entry)
        return found

    def _file(self, item: QueuedPod, place: Place, now: float) -> None:
        item.place, item.queued_at, item.token = place, now, self._next()
        self._unschedulable[item.key] = item
        for plugin in item.refused_by:
            self._by_plugin.setdefault(plugin, {})[item.key] = item

    def _unfile(self, item: QueuedPod) -> None:
        if self._unschedulable.pop(item.key, None) is not None:
            for plugin in item.refused_by:
                self._by_plugin.get(plugin, {}).pop(item.key, None)

    def _stale(self, entry: tuple[float, int, int, QueuedPod]) -> bool:
        return entry[2] != entry[3].token

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence
