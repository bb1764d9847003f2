"""Plays one history: drawn from a seed, or given as steps."""

from __future__ import annotations

import gc
import time
import zlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from wharfinger.api.configuration import load_configuration
from wharfinger.api.kinds import registry
from wharfinger.api.registry import Document
from wharfinger.api.times import parse_time
from wharfinger.client.memory import gc_rare
from wharfinger.fuzz.checking import NAMES, InvariantChecker, InvariantViolation, collecting_errors
from wharfinger.fuzz.generator import HistoryGenerator
from wharfinger.fuzz.history import PlainHistory
from wharfinger.fuzz.objects import NAMESPACES
from wharfinger.fuzz.profiles import FuzzProfile
from wharfinger.fuzz.steps import FuzzStep, rest
from wharfinger.scenario import runner
from wharfinger.scenario.document import DEFAULT_START
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.loop import Deadlock, NoProgress
from wharfinger.store import Store

DEFAULT_STEPS = 300
MOST_WRITES = 2_000  # in one step


class TooBusy(RuntimeError):
    """Components undo what others do, as fast as they can: one does not see yet what the other sees."""


@dataclass(slots=True)
class PlayedHistory:
    """What was done, and what went wrong. `violation` is the first one, at `steps[-1]`."""

    seed: int
    configuration: Document
    names: Sequence[str] = NAMES  # of the invariants that were checked
    steps: list[FuzzStep] = field(default_factory=list)
    violations: list[InvariantViolation] = field(default_factory=list)
    seconds: float = 0.0  # of processor time
    setup_steps: int = 0  # those that only set up the cluster, and...
    setup_seconds: float = 0.0  # ...their share of the time
    version: int = 0  # of the store at the end: equal histories have equal ones
    digest: int = 0
    labels: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> bool:
        return bool(self.violations)


def play_seed(seed: int, steps: int, profile: FuzzProfile, names: Sequence[str] = NAMES) -> PlayedHistory:
    """Draws and plays a history; it ends at the first violation."""
    with _own_garbage():
        return _play_seed(seed, steps, profile, names)


def _play_seed(seed: int, steps: int, profile: FuzzProfile, names: Sequence[str]) -> PlayedHistory:
    def source(history: PlainHistory) -> HistoryGenerator:
        return HistoryGenerator(seed, profile, history, registry())

    first = source(PlainHistory())
    played = PlayedHistory(seed, first.configuration(), names)
    with _world(played.configuration) as world:
        checker = InvariantChecker(world, names)
        generator = source(checker.history)

        async def play() -> None:
            began = time.process_time()
            await _begin(world)
            for step in generator.setup():
                if await _play(world, checker, step, played):
                    return
            await world.loop.still()
            played.setup_steps, played.setup_seconds = len(played.steps), time.process_time() - began
            while len(played.steps) < steps:
                step = generator.next()
                if await _play(world, checker, step, played):
                    return
                generator.synchronize(world.loop.time())
            await _play(world, checker, rest(), played)

        _run(world, checker, play, played)
    return played


def play_steps(steps: Sequence[FuzzStep], configuration: Document, names: Sequence[str] = NAMES) -> PlayedHistory:
    """Plays given steps, up to the first violation."""
    with _own_garbage():
        return _play_steps(steps, configuration, names)


def _play_steps(steps: Sequence[FuzzStep], configuration: Document, names: Sequence[str]) -> PlayedHistory:
    played = PlayedHistory(0, configuration, names)
    with _world(configuration) as world:
        checker = InvariantChecker(world, names)

        async def play() -> None:
            await _begin(world)
            for step in steps:
                again = FuzzStep(step.at, step.action, step.label, step.document)
                if await _play(world, checker, again, played):
                    return

        _run(world, checker, play, played)
    return played


async def _play(world: SimulatedCluster, checker: InvariantChecker, step: FuzzStep, played: PlayedHistory) -> bool:
    """Whether the history ends here."""
    results = runner.Results()
    played.steps.append(step)
    played.labels[step.label] += 1
    world.loop.each_turn = _limit(world.store)
    await runner.run_step(step.step, "", world, results)
    step.refused = bool(results.rejections)
    found = await checker.check(step.action if step.at is None else step.step)
    if found:
        played.violations += found
    return bool(found)


@contextmanager
def _own_garbage() -> Iterator[None]:
    """Inside, garbage is collected rarely; in the end, what was left behind inside is, and nothing else is looked at."""
    with gc_rare():
        try:
            yield
        finally:
            gc.collect()


@contextmanager
def _world(configuration: Document) -> Iterator[SimulatedCluster]:
    """A simulated cluster that is closed in the end."""
    with collecting_errors():
        world = SimulatedCluster(load_configuration(configuration), start=parse_time(DEFAULT_START), seed=0)
        try:
            yield world
        finally:
            world.close()


async def _begin(world: SimulatedCluster) -> None:
    for name in NAMESPACES:
        await world.ensure_namespace(name)
    world.start()
    await world.loop.still()


def _limit(store: Store) -> Callable[[], None]:
    most = store.version + MOST_WRITES

    def check() -> None:
        if store.version > most:
            raise TooBusy(f"more than {MOST_WRITES} writes in one step")

    return check


def _run(
    world: SimulatedCluster,
    checker: InvariantChecker,
    play: Callable[[], Coroutine[Any, Any, None]],
    played: PlayedHistory,
) -> None:
    began = time.process_time()
    try:
        world.loop.complete(play())
    except (NoProgress, Deadlock) as error:
        played.violations.append(InvariantViolation("liveness", str(error)))
    except TooBusy as error:
        # In a real cluster, each round takes its time, and the view of a component that lags behind is soon current.
        if checker.at_rest:
            played.violations.append(InvariantViolation("liveness", f"{error}, though faults have ended"))
    world.loop.each_turn = None
    played.seconds = time.process_time() - began
    played.version = world.store.version
    played.digest = _digest(world)


def _digest(world: SimulatedCluster) -> int:
    """A checksum over all objects, which equal histories share."""
    found = 0
    for stored in world.final_objects():
        found = zlib.crc32(stored.data, found)
    return found
