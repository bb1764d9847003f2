"""Plays a trace: the real control plane in virtual time, with the nodes and pods of the trace instead of workloads.

Controllers that create or remove pods by themselves do not run, because the trace says what was created and removed.
Everything happens in the order of the trace, and before the next thing happens the control plane has finished with the
last one.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import count

from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import NAMESPACES, NODES, PODS, PRIORITY_CLASSES
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.api.views import Node, Pod, view
from wharfinger.client.memory import gc_rare
from wharfinger.node.annotations import SHUTDOWN_AFTER
from wharfinger.replay.decisions import DecisionWatch
from wharfinger.replay.measuring import PodLife, ReplayMeter, shapes_of
from wharfinger.replay.runs import ReplayConfiguration, ReplayOptions, ReplayRun
from wharfinger.replay.trace import NodePeriod, Trace, TracedObject, TracedPod, TraceMoment
from wharfinger.scenario import applying, runner
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.inputs import BadInput, faults_at
from wharfinger.store.collection import ObjectChange
from wharfinger.store.objects import StoredObject
from wharfinger.system import ordered_systems

CONTROLLERS = tuple(
    f"-{name}"
    for name in (
        "replicaset",
        "replicationcontroller",
        "deployment",
        "statefulset",
        "daemonset",
        "job",
        "cronjob",
        "horizontalpodautoscaling",
        "garbagecollector",
        "podgc",
        "ttlafterfinished",
        "endpoint",
        "endpointslice",
        "endpointslicemirroring",
    )
)
SAMPLES = 160  # points of each curve
SAME_TIME = 5.0  # seconds between a preemption here and in the record that are taken for the same one
MOST_RESUBMISSIONS = 20
PROBED = 5.0  # seconds before its binding in which the decision about a pod may have been made
MOST_PROBED = 64  # pods after each change

Action = Callable[[], Awaitable[None]]


def play(
    trace: Trace, configured: ReplayConfiguration, expected: Mapping[ObjectKey, str], options: ReplayOptions
) -> ReplayRun:
    """Replays a trace once. `expected` has the nodes that pods got elsewhere; what differs is explained."""
    with gc_rare():
        world = SimulatedCluster(
            configured.configuration, start=trace.start, seed=options.seed, controllers=("*", *CONTROLLERS)
        )
        try:
            player = TracePlayer(world, trace, configured, expected, options)
            return world.loop.complete(player.run())
        finally:
            world.close()


def recorded_nodes(trace: Trace) -> dict[ObjectKey, str]:
    """Where pods ran according to the trace, as far as a decision led there."""
    return {(pod.namespace, pod.name): pod.node for pod in trace.pods if pod.node and not pod.present}


class TracePlayer:
    def __init__(
        self,
        world: SimulatedCluster,
        trace: Trace,
        configured: ReplayConfiguration,
        expected: Mapping[ObjectKey, str],
        options: ReplayOptions,
    ) -> None:
        self._world = world
        self._trace = trace
        self._configured = configured
        self._options = options
        self._client = world.client("", lambda warning: None)
        self._agenda: list[tuple[TraceMoment, int, Action]] = []
        self._numbers = count()
        self._work: dict[ObjectKey, TracedPod] = {}  # by the current name
        self._ending: set[ObjectKey] = set()  # pods that we end ourselves
        self._bound: dict[ObjectKey, float] = {}
        self._lives: dict[ObjectKey, PodLife] = {}
        self._names: dict[ObjectKey, ObjectKey] = {}  # of a resubmitted pod: its first name
        self._held: dict[ObjectKey, tuple[Pod, float]] = {}  # pods that arrived but are submitted later
        self._version = 0
        self._preemptions = 0
        self._prices: dict[str, float] = {}
        sized = [view(pod.document, Pod) for pod in trace.pods]
        self._meter = ReplayMeter(trace.start, *shapes_of(sized))
        self._watch = DecisionWatch(expected, options.ties, options.check)
        self._notes: list[str] = []
        last = trace.last_moment() - trace.start
        self._end = trace.start + (last if options.until is None else options.until)
        self._open_end = options.until is None and trace.end is None  # until the last pod has left
        self._next_sample = trace.start

    async def run(self) -> ReplayRun:
        world = self._world
        world.on_scheduler = self._watch.follow
        self._plan()
        await self._begin()
        world.start()
        await world.loop.still()
        self._catch_up()
        await self._play()
        await self._to(self._end)
        self._conclude()
        return ReplayRun(
            self._configured.name,
            self._options.seed,
            self._trace.start,
            self._meter.elapsed,
            self._lives,
            self._meter,
            self._watch,
            self._preemptions,
            self._notes,
        )

    # -- the agenda

    def _plan(self) -> None:
        """Everything that the trace says will happen. What was there at the start is done by `_begin`."""
        start = self._trace.start
        for change in self._trace.objects:
            if change.at.time > start:
                self._at(change.at, partial(self._object, change))
        ends = {(period.name, period.start.time) for period in self._trace.nodes}
        for period in self._trace.nodes:
            if period.start.time > start:
                self._at(period.start, partial(self._node, period))
            if period.end is not None and (period.name, period.end.time) not in ends:
                self._at(period.end, partial(self._node_gone, period))
        for pod in self._trace.pods:
            if not pod.present:
                submitted = self._submitted(pod)
                if submitted > pod.arrival:
                    self._at(pod.arrival, partial(self._hold, pod))
                self._at(submitted, partial(self._arrive, pod))

    def _submitted(self, pod: TracedPod) -> TraceMoment:
        """When the scheduler gets to know a pod."""
        if self._options.check and pod.bound is not None:
            return pod.bound
        return pod.submitted or pod.arrival

    def _at(self, moment: TraceMoment, action: Action) -> None:
        heapq.heappush(self._agenda, (moment, next(self._numbers), action))

    async def _play(self) -> None:
        total = done = 0
        while self._agenda:
            moment, _, action = self._agenda[0]
            if moment.time > self._end:
                if not self._open_end:
                    return
                self._end = moment.time
            heapq.heappop(self._agenda)
            await self._to(moment.time)
            await action()
            await self._world.loop.still()
            self._catch_up()
            self._probe(moment.time)
            done += 1
            if self._options.progress is not None and done % 64 == 0:
                total = done + len(self._agenda)
                self._options.progress(f"replaying {self._configured.name}", done, total)

    async def _to(self, time: float) -> None:
        """Lets time pass, with a sample wherever one is due."""
        step = max((self._end - self._trace.start) / SAMPLES, 1e-3)
        while self._next_sample <= time:
            await self._pass(self._next_sample)
            self._meter.sample(self._next_sample, self._measures())
            self._next_sample += step
        await self._pass(time)

    async def _pass(self, time: float) -> None:
        moment = time - self._trace.start
        if moment > self._world.loop.time():
            await self._world.loop.moment(moment)
            self._catch_up()
        self._meter.advance(time)

    def _measures(self) -> dict[str, float]:
        found: dict[str, float] = {"preemptions": self._preemptions}
        for system in ordered_systems():
            found.update(system.report().measures(self._world.objects))
        return found

    # -- what happens

    async def _begin(self) -> None:
        """What there was at the start, and what the configuration adds."""
        start = self._trace.start
        first = [each for each in self._trace.objects if each.at.time <= start]
        first.sort(key=lambda each: each.document.get("kind") not in (NAMESPACES.kind, PRIORITY_CLASSES.kind))
        for change in first:
            await self._object(change)
        problems: list[str] = []
        for manifest in self._configured.manifests:
            await self._namespace(manifest.document)
            applied = applying.apply(self._client, manifest.document, self._world.registry)
            for refused in await runner.request(manifest.document, "", applied):
                faults = [str(fault) for fault in faults_at(manifest.source, refused.faults)]
                problems += faults or [f"{manifest.source}: {refused.message}"]
        if problems:
            raise BadInput(problems)
        for period in self._trace.nodes:
            if period.start.time <= start:
                await self._node(period)
        for pod in self._trace.pods:
            if pod.present:
                await self._arrive(pod)

    async def _namespace(self, document: Document) -> None:
        resource = self._world.registry.resource_of(document)
        if resource is not None and resource.namespaced:
            await self._world.ensure_namespace(applying.namespace_of(document, resource))

    async def _object(self, change: TracedObject) -> None:
        resource = self._world.registry.resource_of(change.document)
        if resource is None:
            self._note(f"{change.document.get('kind')} objects of the trace are not known here and left out")
            return
        name = change.document["metadata"]["name"]
        namespace = applying.namespace_of(change.document, resource)
        try:
            if change.deleted:
                await self._client.delete(resource, name, namespace)
            elif change.at.time <= self._trace.start and change.document["metadata"].get("uid"):
                await self._namespace(change.document)
                if self._world.store.peek(resource, name, namespace) is None:
                    await self._world.store.restore(resource, change.document)
            else:
                await self._namespace(change.document)
                await applying.apply(self._client, change.document, self._world.registry)
        except NotFound:
            return
        except ApiError as error:
            self._note(f"{change.source}: {resource.kind} {name} is refused: {error.message}")

    async def _node(self, period: NodePeriod) -> None:
        """A node comes, or is changed."""
        self._prices[period.name] = period.price
        document = period.document
        try:
            if self._world.store.peek(NODES, period.name) is None:
                await self._client.create(NODES, document)
                return
            labels = dict.fromkeys(self._labels(period.name)) | (document["metadata"].get("labels") or {})
            spec = {"unschedulable": None, "taints": None, **(document.get("spec") or {})}
            change = {"metadata": {"labels": labels}, "spec": spec}
            await self._client.patch(NODES, period.name, change, type=PatchType.MERGE)
            status = {key: value for key, value in (document.get("status") or {}).items() if key != "images"}
            await self._client.patch(NODES, period.name, {"status": status}, type=PatchType.MERGE, subresource="status")
        except ApiError as error:
            raise BadInput([f"{period.source}: node {period.name} is refused: {error.message}"]) from error

    def _labels(self, name: str) -> Mapping[str, str]:
        stored = self._world.store.peek(NODES, name)
        return {} if stored is None else stored.labels

    async def _node_gone(self, period: NodePeriod) -> None:
        try:
            await self._client.delete(NODES, period.name)
        except NotFound:
            return

    async def _hold(self, pod: TracedPod) -> None:
        """A pod is there, and the scheduler does not decide about it yet."""
        self._held[pod.namespace, pod.name] = (view(pod.document, Pod), self._submitted(pod).time - PROBED)

    def _probe(self, now: float) -> None:
        """Asks what the scheduler would decide now about pods that were placed soon after."""
        for pod, since in list(self._held.values())[:MOST_PROBED] if self._options.check else ():
            if now >= since:
                self._watch.probe(pod)

    async def _arrive(self, pod: TracedPod) -> None:
        key = (pod.namespace, pod.name)
        life = self._lives[key] = PodLife(pod.arrival.time)
        self._names[key] = key
        self._work[key] = pod
        self._held.pop(key, None)
        try:
            await self._submit(_stopping_as_recorded(pod))
        except ApiError as error:
            life.refused = error.message
            del self._work[key]
            return
        if pod.departure is not None and (pod.present or not pod.node or pod.bound is None):
            # Of a pod that never ran, or whose decision is not in the trace, the times are taken as they are.
            self._plan_end(key, pod, 0.0)

    async def _submit(self, document: Document) -> None:
        await self._world.ensure_namespace(document["metadata"].get("namespace") or "default")
        await self._ensure_priority(document)
        if (document.get("spec") or {}).get("nodeName") and document["metadata"].get("uid"):
            await self._world.store.restore(PODS, document)
            return
        await self._client.create(PODS, document, document["metadata"].get("namespace") or "default")

    async def _ensure_priority(self, document: Document) -> None:
        """A priority needs a class; a table has only the number."""
        spec = document["spec"]
        await self._world.ensure_priority_class({**document, "metadata": {**document["metadata"], "uid": "trace"}})
        if isinstance(spec.get("priority"), int) and spec["priority"] and not spec.get("priorityClassName"):
            name = f"trace-{spec['priority']}".replace("--", "-minus-")
            if self._world.store.peek(PRIORITY_CLASSES, name) is None:
                made = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind}
                await self._client.create(
                    PRIORITY_CLASSES, {**made, "metadata": {"name": name}, "value": spec["priority"]}
                )
            spec["priorityClassName"] = name

    # -- ends

    def _plan_end(self, key: ObjectKey, pod: TracedPod, late: float) -> None:
        """The end of a pod that was bound `late` seconds later than in the trace. One that is not late ends in the
        recorded order."""
        if pod.run_time is not None:
            when = TraceMoment(self._bound[key] + pod.run_time, pod.arrival.order)
            self._at(when, lambda: self._leave(key))
        elif pod.departure is not None:
            if pod.stopping is not None and pod.stopping < pod.departure:
                grace = pod.departure.time - pod.stopping.time
                self._at(_later(pod.stopping, late), lambda: self._stop(key, grace))
            self._at(_later(pod.departure, late), lambda: self._leave(key))

    async def _stop(self, key: ObjectKey, grace: float) -> None:
        """The deletion begins; the pod holds its resources until it leaves."""
        if key not in self._work or key in self._ending:
            return
        self._ending.add(key)
        try:
            change = {"metadata": {"annotations": {SHUTDOWN_AFTER: "never"}}}
            await self._client.patch(PODS, key[1], change, key[0], type=PatchType.MERGE)
            await self._client.delete(PODS, key[1], key[0], grace_period=int(grace) + 3600)
        except NotFound:
            return

    async def _leave(self, key: ObjectKey) -> None:
        if key not in self._work:
            return
        self._ending.add(key)
        try:
            await self._client.delete(PODS, key[1], key[0], grace_period=0)
        except NotFound:
            return

    # -- what the control plane did

    def _catch_up(self) -> None:
        """Reads what has changed since the last call."""
        store = self._world.store
        now = self._trace.start + self._world.loop.time()
        self._meter.advance(now)
        for plural, change in store.changes(self._version):
            self._version = change.version
            if plural == PODS.plural:
                self._pod_changed(change, now)
            elif plural == NODES.plural:
                if change.after is not None:
                    self._meter.set_node(change.after.view(Node), self._prices.get(change.after.name, 0.0))
                elif change.before is not None:
                    self._meter.remove_node(change.before.name)
        self._meter.waiting = len(self._held) + len(self._work) - len(self._bound)

    def _pod_changed(self, change: ObjectChange, now: float) -> None:
        stored = change.after if change.after is not None else change.before
        assert stored is not None, "a change is about an object"
        key = (stored.namespace, stored.name)
        if key not in self._work:
            return
        life = self._lives[self._names[key]]
        pod = stored.view(Pod)
        if change.after is None:
            self._pod_gone(key, life, now)
            return
        if pod.terminal:
            self._meter.remove(key)
        elif pod.spec.node_name:
            self._meter.place(key, pod)
            if key not in self._bound:
                self._bound_now(key, pod, life, now)
        if _preempted(pod) and not (change.before is not None and _preempted(change.before.view(Pod))):
            self._preemptions += 1
            life.preemptions += 1

    def _bound_now(self, key: ObjectKey, pod: Pod, life: PodLife, now: float) -> None:
        self._bound[key] = now
        if not life.node:
            life.bound, life.node = now, pod.spec.node_name
        traced = self._work[key]
        if traced.run_time is not None:
            self._plan_end(key, traced, 0.0)
        elif traced.bound is not None and traced.node and not traced.present:
            late = now - traced.bound.time
            self._plan_end(key, traced, late if late > SAME_TIME else 0.0)

    def _pod_gone(self, key: ObjectKey, life: PodLife, now: float) -> None:
        self._meter.remove(key)
        traced = self._work.pop(key)
        was_bound = self._bound.pop(key, None)
        life.gone = now
        if key in self._ending:
            self._ending.discard(key)
        elif was_bound is not None and self._goes_on(traced, now) and life.resubmissions < MOST_RESUBMISSIONS:
            # It lost its node earlier than in the record: its owner would create another one.
            life.resubmissions += 1
            life.gone = None
            self._resubmit(key, traced, now - was_bound)

    def _goes_on(self, traced: TracedPod, now: float) -> bool:
        if traced.run_time is not None or traced.departure is None:
            return True
        return (traced.stopping or traced.departure).time - now > SAME_TIME

    def _resubmit(self, key: ObjectKey, traced: TracedPod, ran: float) -> None:
        first = self._names[key]
        name = f"{first[1]}-again-{self._lives[first].resubmissions}"
        metadata = {k: v for k, v in traced.document["metadata"].items() if k not in ("uid", "creationTimestamp")}
        spec = {k: v for k, v in traced.document["spec"].items() if k != "nodeName"}
        document = {
            **{k: v for k, v in traced.document.items() if k != "status"},
            "metadata": {**metadata, "name": name},
            "spec": spec,
        }
        again = TracedPod(document, traced.arrival, traced.run_time, traced.departure, owner=traced.owner)
        now = self._trace.start + self._world.loop.time()

        async def submit() -> None:
            new = (again.namespace, again.name)
            self._names[new], self._work[new] = first, again
            try:
                await self._submit(document)
            except ApiError as error:
                del self._work[new]
                self._note(f"{again.title} could not be created again: {error.message}")
                return
            if again.run_time is None and again.departure is not None:
                self._plan_end(new, again, 0.0)

        self._at(TraceMoment(now, traced.arrival.order), submit)

    # -- the end

    def _conclude(self) -> None:
        scheduler = self._world.scheduler
        if not self._meter.samples or self._meter.samples[-1]["seconds"] < self._end - self._trace.start:
            self._meter.sample(self._end, self._measures())
        for key in self._work:
            life = self._lives[self._names[key]]
            if key in self._bound or life.node or scheduler is None:
                continue
            stored = self._world.store.peek(PODS, key[1], key[0])
            life.message = _waiting_for(stored)
        for part in self._world.broken():
            self._note(part)

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)


def _stopping_as_recorded(pod: TracedPod) -> Document:
    """If it is evicted, it takes as long to stop as it took in the record."""
    if pod.stopping is None or pod.departure is None:
        return pod.document
    seconds = max(0.0, pod.departure.time - pod.stopping.time)
    metadata = pod.document["metadata"]
    notes = {**(metadata.get("annotations") or {}), SHUTDOWN_AFTER: f"{seconds:.3f}s"}
    return {**pod.document, "metadata": {**metadata, "annotations": notes}}


def _later(moment: TraceMoment, seconds: float) -> TraceMoment:
    return TraceMoment(moment.time + seconds, moment.order)


def _preempted(pod: Pod) -> bool:
    condition = pod.status.condition("DisruptionTarget")
    return condition is not None and condition.reason == "PreemptionByScheduler"


def _waiting_for(stored: StoredObject | None) -> str:
    if stored is None:
        return ""
    condition = stored.view(Pod).status.condition("PodScheduled")
    return "" if condition is None else condition.message
