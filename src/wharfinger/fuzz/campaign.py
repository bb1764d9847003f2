"""Many seeds over all cores, until they are done or the time is over."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import wharfinger
from wharfinger.fuzz.checking import NAMES
from wharfinger.fuzz.playing import PlayedHistory, play_seed
from wharfinger.fuzz.profiles import PROFILES
from wharfinger.fuzz.scenario_file import scenario_text
from wharfinger.fuzz.shrinking import SHRINK_SECONDS, shrink


@dataclass(frozen=True, slots=True)
class FoundViolation:
    invariant: str
    step: int  # the number of the step after which it was seen, from 1
    message: str
    scenario: str = ""  # the shortest history, as a Scenario file
    shrunk_to: int = 0  # its number of steps
    last: tuple[str, ...] = ()  # the last steps of the whole history


@dataclass(frozen=True, slots=True)
class SeedVerdict:
    """The outcome of one seed; what runs send to each other."""

    seed: int
    steps: int
    seconds: float  # of processor time
    digest: str
    setup_steps: int = 0  # of the steps, those that only set up the cluster, and...
    setup_seconds: float = 0.0  # ...their share of the time
    asked: int = 0  # the number of steps that it should have had
    violations: tuple[FoundViolation, ...] = ()

    @property
    def rate(self) -> float:
        """Steps for each second of processor time, in the cluster that was set up."""
        return _rate(self)


def commit() -> str:
    """The commit of our own source, if it is in a repository; otherwise the version."""
    try:
        command = ["git", "-C", str(Path(wharfinger.__file__).parent), "describe", "--always", "--dirty"]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return f"version {wharfinger.__version__}"
    return found or f"version {wharfinger.__version__}"


def run_seed(
    seed: int, steps: int, profile: str, shrink_seconds: float = SHRINK_SECONDS, names: Sequence[str] = NAMES
) -> SeedVerdict:
    played = play_seed(seed, steps, PROFILES[profile], names)
    violations = _found(played, shrink_seconds) if played.failed else ()
    digest = f"{played.version:x}-{played.digest:08x}"
    return SeedVerdict(
        seed,
        len(played.steps),
        played.seconds,
        digest,
        played.setup_steps,
        played.setup_seconds,
        asked=steps,
        violations=violations,
    )


def _found(played: PlayedHistory, shrink_seconds: float) -> tuple[FoundViolation, ...]:
    last = tuple(f"{step.at if step.at is not None else '-'} {step.label}" for step in played.steps[-10:])
    short = shrink(played, shrink_seconds) if shrink_seconds > 0 else played
    text, size, at = scenario_text(short), len(short.steps), len(played.steps)
    return tuple(
        FoundViolation(each.invariant, at, each.message, text if not index else "", size, last)
        for index, each in enumerate(played.violations)
    )


def run_seeds(
    seeds: Iterable[int], steps: int, profile: str, jobs: int | None = None, until: float | None = None
) -> Iterator[SeedVerdict]:
    """The verdicts as they come. No seed is started after `until`, a moment of the monotonic clock."""

    def late() -> bool:
        return until is not None and time.monotonic() >= until

    waiting = iter(seeds)
    workers = jobs or os.cpu_count() or 1
    if workers == 1:
        for seed in waiting:
            if late():
                return
            yield run_seed(seed, steps, profile)
        return
    # Ctrl-C reaches the worker processes, too; they must exit silently.
    with ProcessPoolExecutor(workers, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_DFL)) as pool:
        running: set[Future[SeedVerdict]] = set()
        try:
            while True:
                wanted = 0 if late() else 2 * workers - len(running)
                running |= {pool.submit(run_seed, seed, steps, profile) for seed in islice(waiting, wanted)}
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    yield each.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@dataclass(slots=True)
class CampaignTotals:
    seeds: int = 0
    steps: int = 0
    seconds: float = 0.0
    setup_steps: int = 0
    setup_seconds: float = 0.0
    failed: list[SeedVerdict] = field(default_factory=list)

    def add(self, verdict: SeedVerdict) -> None:
        self.seeds += 1
        self.steps += verdict.steps
        self.seconds += verdict.seconds
        self.setup_steps += verdict.setup_steps
        self.setup_seconds += verdict.setup_seconds
        if verdict.violations:
            self.failed.append(verdict)

    @property
    def rate(self) -> float:
        """Steps for each second of processor time, in clusters that were set up."""
        return _rate(self)


def _rate(played: SeedVerdict | CampaignTotals) -> float:
    steps, seconds = played.steps - played.setup_steps, played.seconds - played.setup_seconds
    return steps / seconds if seconds else 0.0
