"""Drives a scheduling state with events alone: no event loop, no clock, no API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec.structs import replace

from wharfinger.api.views import Node, Pod
from wharfinger.engine import Engine
from wharfinger.framework.events import NODE, POD, Action, ClusterEvent
from wharfinger.scheduler.instructions import Bind, Evict, Instruction
from wharfinger.scheduler.pods import PodItems
from wharfinger.scheduler.schedulable import SchedulableKinds, SchedulerContext
from wharfinger.scheduler.state import SchedulingState

T = TypeVar("T")


class Objects:
    """Objects of one kind, as an informer would know them."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str], Any] = {}

    def get(self, name: str, namespace: str = "") -> Any:
        return self.by_key.get((namespace, name))

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self.by_key.values()))


class Driver:
    def __init__(self, *nodes: Node, engine: Engine | None = None, others: Any = (), limited: bool = False) -> None:
        """`others` are classes of schedulables besides pods."""
        self.now = 0.0
        self.engine = engine or Engine()
        self.pods = Objects()
        self.objects = {each.resource.kind: Objects() for each in others}
        made = [each(self._context(self.objects[each.resource.kind])) for each in others]
        self.state = SchedulingState(
            self.engine, SchedulableKinds(PodItems(self._context(self.pods)), made), limited=limited
        )
        for each in nodes:
            self.engine.set_node(each)
        self.state.synced()
        self.instructions: list[Instruction] = self.state.outbox.take()

    def _context(self, objects: Objects) -> SchedulerContext:
        nobody: Any = None  # no requests are made
        return SchedulerContext(nobody, nobody, self.engine, objects)

    # -- events

    def node(self, node: Node) -> None:
        self.engine.set_node(node)
        self._happened(ClusterEvent(NODE, Action.ADD, None, node))

    def pod(self, *pods: Pod) -> None:
        """Pods without a node are added or updated."""
        for new in pods:
            old = self.pods.by_key.get(new.metadata.key)
            self.pods.by_key[new.metadata.key] = new
            self.state.pending(old, new, self.now)
        self._gather()

    def delete(self, pod: Pod) -> None:
        known = self.pods.by_key.pop(pod.metadata.key)
        self.engine.remove_pod(*known.metadata.key)
        if known.spec.node_name:
            self._happened(ClusterEvent(POD, Action.DELETE, known, None))
        else:
            self.state.pending(known, None, self.now)
            self._gather()

    def run_on(self, pod: Pod) -> None:
        """A pod is reported bound."""
        old = self.pods.by_key.get(pod.metadata.key)
        self.pods.by_key[pod.metadata.key] = pod
        self.engine.set_pod(pod)
        if old is not None:
            self.state.pending(old, None, self.now)
        self.state.assigned(pod)
        self._happened(ClusterEvent(POD, Action.ADD, None, pod))

    def change(self, kind: str, new: Any) -> None:
        """An object of another kind is added or updated."""
        old = self.objects[kind].by_key.get(new.metadata.key)
        self.objects[kind].by_key[new.metadata.key] = new
        self.engine.apply(kind, new)
        self.state.changed(kind, old, new, self.now)
        self._happened(ClusterEvent(kind, Action.ADD if old is None else Action.UPDATE_OTHER, old, new))

    def _happened(self, event: ClusterEvent) -> None:
        self.state.happened(event, self.now)
        self._gather()

    # -- scheduling

    def schedule(self) -> list[str]:
        """Schedules whatever is ready; the results in order."""
        results = []
        while (item := self.state.next(self.now)) is not None:
            decision, assumed = self.state.cycle.decide(item)
            results.append(f"{item.pod.metadata.name} {self.state.cycle.conclude(item, decision, assumed, self.now)}")
        self._gather()
        return results

    def bound(self, binding: Bind) -> None:
        """The API server accepts a binding and reports it."""
        self.state.bound(binding, self.now)
        pod = self.pods.by_key[binding.item.key]
        self.run_on(replace(pod, spec=replace(pod.spec, node_name=binding.node)))

    def bind_failed(self, binding: Bind, *, gone: bool = False) -> None:
        self.state.bind_failed(binding, "binding rejected: no", self.now, gone=gone)
        self._gather()

    def evicted(self, eviction: Evict, *, done: bool = True) -> None:
        self.state.evicted(eviction, self.now, done=done)
        self._gather()

    # -- instructions

    def _gather(self) -> None:
        self.instructions += self.state.outbox.take()

    def taken(self, kind: type[T]) -> list[T]:
        """The instructions of a type since the last call; the others stay."""
        found = [each for each in self.instructions if isinstance(each, kind)]
        self.instructions = [each for each in self.instructions if not isinstance(each, kind)]
        return found

    def one(self, kind: type[T]) -> T:
        (found,) = self.taken(kind)
        return found
