"""One simulation from start to report: inputs are applied, scenarios played, time passes, the outcome is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from wharfinger.api.kinds.builtin import EVENTS
from wharfinger.api.manifests import Manifest
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.client.memory import gc_seldom
from wharfinger.simulate import applying, report, runner
from wharfinger.simulate.inputs import Inputs
from wharfinger.simulate.scenario import Scenario
from wharfinger.simulate.world import World

Progress = Callable[[str, int, int], None]
"""(what is going on, how much of it is done, how much there is)"""

_TURNS = 16  # of the loop between two words on progress


@dataclass(slots=True)
class Options:
    seed: int = 0
    user: str = ""
    duration: float | None = None  # let that much time pass; None: until idle
    progress: Progress | None = None


def simulate(inputs: Inputs, options: Options, scenarios: Sequence[Scenario] | None = None) -> Document:
    """Plays everything in a world of its own and gives the SimulationReport."""
    chosen = [scenario for scenario, _ in inputs.scenarios] if scenarios is None else scenarios
    with gc_seldom():
        world = World(inputs.configuration, start=inputs.start(), seed=options.seed)
        try:
            return world.loop.complete(_play(world, inputs, options, chosen))
        finally:
            world.close()


async def _play(world: World, inputs: Inputs, options: Options, scenarios: Sequence[Scenario]) -> Document:
    results = runner.Results()
    await prepare(world, inputs.manifests)
    for scenario in scenarios:
        for namespace in _namespaces(scenario):
            await world.ensure_namespace(namespace)
    await apply_manifests(world, inputs.manifests, options, results)
    if options.progress is not None:
        world.loop.each_turn = _teller(world, options.progress)
    for scenario in scenarios:
        await runner.run(scenario, world, results)
    if options.duration is None:
        await world.settle()
    else:
        await world.advance(options.duration)
    return await _report(world, results)


def _teller(world: World, progress: Progress) -> Callable[[], None]:
    """Tells now and then how far things are: pods that still wait for a node, and then what time it is."""
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


async def prepare(world: World, manifests: Sequence[Manifest]) -> None:
    """Starts every part of a world into which these manifests are to be applied."""
    await world.create_nodes()
    world.start(manifests)
    await world.loop.still()


async def fill(world: World, inputs: Inputs) -> list[runner.Rejection]:
    """Applies the manifests to a world in which nothing runs; what was refused."""
    results = runner.Results()
    await apply_manifests(world, inputs.manifests, Options(), results)
    return results.rejections


async def apply_manifests(
    world: World, manifests: Sequence[Manifest], options: Options, results: runner.Results
) -> None:
    client = world.client(options.user, lambda warning: None)
    for number, manifest in enumerate(manifests):
        if number % 1000 == 0 and options.progress is not None:
            options.progress("applying", number, len(manifests))
        document = manifest.document
        resource = world.registry.resource_of(document)
        if resource is not None and resource.namespaced:
            await world.ensure_namespace(applying.namespace_of(document, resource))
        results.rejections += await runner.request(
            document, options.user, applying.apply(client, document, world.registry)
        )


def _namespaces(scenario: Scenario) -> list[str]:
    found: dict[str, None] = {}
    for step in scenario.steps:
        for document in step.apply:
            metadata = document.get("metadata")
            if document.get("kind") != "Namespace" and isinstance(metadata, dict) and metadata.get("namespace"):
                found[str(metadata["namespace"])] = None
    return list(found)


async def _report(world: World, results: runner.Results) -> Document:
    scheduler = world.scheduler
    objects = world.final_objects()
    reasons = {}
    for document in objects:
        if scheduler is not None and document.get("kind") == "Pod" and not (document.get("spec") or {}).get("nodeName"):
            key = (document["metadata"].get("namespace", ""), document["metadata"]["name"])
            reasons[key] = scheduler.diagnosis(key)
    return report.build(
        now=world.clock.now(),
        objects=objects,
        events=world.objects(EVENTS),
        reasons=reasons,
        schedulers=scheduler.engine.profiles if scheduler is not None else (),
        results=results,
    )
