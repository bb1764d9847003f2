"""One simulation from start to report: applies the input, runs scenarios, lets time pass, and builds the report."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

import msgspec

from wharfinger.api.encoded import EncodedObjects
from wharfinger.api.kinds.builtin import EVENTS, NODES, PODS
from wharfinger.api.manifests import Manifest
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.api.views import Node, Pod
from wharfinger.client.memory import gc_paused_while_loading, gc_rare
from wharfinger.scenario import applying, runner
from wharfinger.scenario.document import Scenario
from wharfinger.simulate import report
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.inputs import BadInput, Inputs, faults_at
from wharfinger.simulate.loading import restore
from wharfinger.simulate.timeline import Happening, Timeline
from wharfinger.simulate.utilisation import PoolUse, utilisation
from wharfinger.store.contents import EventContent, EventPattern
from wharfinger.store.objects import StoredObject

Progress = Callable[[str, int, int], None]
"""Called with the current activity, how much of it is done, and the total."""

_TURNS = 16  # iterations of the loop between two progress reports


class SimulationOptions(msgspec.Struct):
    seed: int = 0
    user: str = ""
    duration: float | None = None  # how much time passes; None: until idle
    progress: Progress | None = None
    once: bool = False  # the manifests are not needed again: each is released when it has been applied
    timeline: Callable[[Happening], None] | None = None  # gets what happens, when it happens
    watcher: Callable[[SimulatedCluster, Scenario], runner.StepWatcher] | None = None
    """Makes what checks the invariants of a scenario that names some."""


class _Findings(msgspec.Struct):
    """What a report is built from. Objects are kept encoded, so that a large cluster and its report need not fit into
    memory together."""

    now: float
    objects: EncodedObjects
    events: EncodedObjects
    unscheduled: list[Document]
    used: list[PoolUse]
    results: runner.Results


def simulate(inputs: Inputs, options: SimulationOptions, scenarios: Sequence[Scenario] | None = None) -> Document:
    """Runs everything in a new simulated cluster and returns the SimulationReport. If the inputs are used `once`, as by a
    command, it has its objects and events as `EncodedObjects`."""
    chosen = [scenario for scenario, _ in inputs.scenarios] if scenarios is None else scenarios
    with gc_rare():
        findings = _found(inputs, options, chosen)
        if not options.once:
            gc.collect()  # the cluster is not referenced any more, but has reference cycles
        return _report(findings, encoded=options.once)


def _found(inputs: Inputs, options: SimulationOptions, scenarios: Sequence[Scenario]) -> _Findings:
    world = SimulatedCluster(inputs.configuration, start=inputs.start(), seed=options.seed)
    try:
        return world.loop.complete(_play(world, inputs, options, scenarios))
    finally:
        world.close()


async def _play(
    world: SimulatedCluster, inputs: Inputs, options: SimulationOptions, scenarios: Sequence[Scenario]
) -> _Findings:
    results = runner.Results()
    watcher = None
    if options.watcher is not None and len(scenarios) == 1 and scenarios[0].invariants:
        watcher = options.watcher(world, scenarios[0])
    with gc_paused_while_loading():
        manifests = await prepare(world, inputs, options, results)
    for scenario in scenarios:
        for namespace in _namespaces(scenario):
            await world.ensure_namespace(namespace)
    timeline = None if options.timeline is None else Timeline(world, options.timeline)
    if timeline is None and not scenarios:
        world.store.forget_read_changes()  # without faults, nobody reads them again
    if timeline is not None:
        timeline.start()
    try:
        await apply_manifests(world, manifests, options, results, required=bool(scenarios))
        if options.progress is not None:
            world.loop.each_turn = _teller(world, options.progress)
        for scenario in scenarios:
            await runner.run(scenario, world, results, watcher)
        if options.duration is None:
            await world.settle()
        else:
            await world.advance(options.duration)
    finally:
        if timeline is not None:
            await timeline.stop()
    return _findings(world, results)


def _teller(world: SimulatedCluster, progress: Progress) -> Callable[[], None]:
    """Reports progress now and then: the pods that still wait for a node, then the virtual time."""
    turns = count()

    def tell() -> None:
        if next(turns) % _TURNS:
            return
        waiting, pods = world.waiting()
        if waiting:
            progress("scheduling", pods - waiting, pods)
        else:
            progress(f"at {format_time(world.clock.now())}, changes", world.store.version, 0)

    return tell


async def prepare(
    world: SimulatedCluster,
    inputs: Inputs,
    options: SimulationOptions,
    results: runner.Results,
    change: Sequence[Manifest] = (),
    *,
    scheduler: bool = True,
) -> list[Manifest]:
    """Restores the snapshot among the inputs, then starts all components, or all but the scheduler. Returns the
    manifests that are left to be applied; `change` will be applied later."""
    world.note_owners([*inputs.manifests, *change])
    world.unseen_kinds = inputs.unseen_kinds
    rest = await restore(world, inputs.manifests if options.once else list(inputs.manifests), results)
    await world.create_nodes()
    world.start(scheduler=scheduler)
    await world.loop.still()
    return rest


async def fill(world: SimulatedCluster, inputs: Inputs) -> list[runner.Rejection]:
    """Loads and applies the manifests, and lets controllers and nodes do what they do at once, so that pods of workloads
    exist and conditions are reported. Nothing is scheduled, and no time passes. Returns what was refused."""
    results, options = runner.Results(), SimulationOptions()
    rest = await prepare(world, inputs, options, results, scheduler=False)
    await apply_manifests(world, rest, options, results)
    await world.loop.still()
    return results.rejections


async def apply_manifests(
    world: SimulatedCluster,
    manifests: list[Manifest],
    options: SimulationOptions,
    results: runner.Results,
    *,
    required: bool = False,
) -> None:
    """Records refusals; if scenarios rely on the manifests (`required`), they are failures, too. Otherwise raises
    BadInput if objects are invalid, with the faults of all of them."""
    problems: list[str] = []
    client = world.client(options.user, lambda warning: None)
    waiting = manifests[::-1]
    if options.once:
        manifests.clear()
    total = len(waiting)
    for number in range(total):
        if number % 1000 == 0 and options.progress is not None:
            options.progress("applying", number, total)
        manifest = waiting.pop()
        document = manifest.document
        resource = world.registry.resource_of(document)
        if resource is not None and resource.namespaced:
            await world.ensure_namespace(applying.namespace_of(document, resource))
            if resource == PODS:
                await world.ensure_priority_class(document)
        refused = await runner.request(document, options.user, applying.apply(client, document, world.registry))
        if required:
            results.failures += [(str(manifest.source), runner.refusal(each)) for each in refused]
        else:
            problems += [str(fault) for each in refused for fault in faults_at(manifest.source, each.faults)]
        results.rejections += refused
    if problems:
        raise BadInput(problems)


def _namespaces(scenario: Scenario) -> list[str]:
    found: dict[str, None] = {}
    for step in scenario.steps:
        for document in step.apply:
            metadata = document.get("metadata")
            if document.get("kind") != "Namespace" and isinstance(metadata, dict) and metadata.get("namespace"):
                found[str(metadata["namespace"])] = None
    return list(found)


def _findings(world: SimulatedCluster, results: runner.Results) -> _Findings:
    pods, nodes = world.store.scan(PODS), world.store.scan(NODES)
    return _Findings(
        now=world.clock.now(),
        objects=_final_objects(world),
        events=_events(world),
        unscheduled=list(_unscheduled(world, pods)),
        used=utilisation((each.view(Node) for each in nodes), (each.view(Pod) for each in pods)),
        results=results,
    )


def _final_objects(world: SimulatedCluster) -> EncodedObjects:
    """In the order of the report."""
    found = sorted(
        world.changed_objects(), key=lambda each: (each[0].group, each[0].kind, each[1].namespace, each[1].name)
    )
    return EncodedObjects((kind.kind, stored) for kind, stored in found)


def _events(world: SimulatedCluster) -> EncodedObjects:
    times: dict[tuple[EventPattern, str], str] = {}

    def order(stored: StoredObject) -> tuple[str, str, str]:
        content = stored.content
        if not isinstance(content, EventContent):
            return _when(stored.data), stored.namespace, stored.name
        key = (content.pattern, content.time)
        if key not in times:
            times[key] = _when(stored.data)
        return times[key], stored.namespace, stored.name

    return EncodedObjects((EVENTS.kind, stored) for stored in sorted(world.store.scan(EVENTS), key=order))


class _EventMeta(msgspec.Struct, rename="camel", gc=False):
    creation_timestamp: str | None = None


class _EventOrder(msgspec.Struct, rename="camel", gc=False):
    metadata: _EventMeta
    last_timestamp: str | None = None
    event_time: str | None = None


_event_order = msgspec.json.Decoder(_EventOrder).decode


def _when(data: bytes) -> str:
    """When an event happened last."""
    event = _event_order(data)
    return event.last_timestamp or event.event_time or event.metadata.creation_timestamp or ""


def _unscheduled(world: SimulatedCluster, pods: Iterable[StoredObject]) -> Iterator[Document]:
    scheduler = world.scheduler
    for stored in pods:
        if not stored.view(Pod).spec.node_name:
            reasons = {} if scheduler is None else scheduler.diagnosis((stored.namespace, stored.name))
            names = () if scheduler is None else tuple(scheduler.engine.profiles)
            found = report.why_pending(stored.document(), reasons, names)
            if found is not None:
                yield found


def _report(findings: _Findings, *, encoded: bool) -> Document:
    return report.build(
        now=findings.now,
        objects=findings.objects if encoded else list(findings.objects),
        events=findings.events if encoded else list(findings.events),
        unscheduled=findings.unscheduled,
        used=findings.used,
        results=findings.results,
    )
