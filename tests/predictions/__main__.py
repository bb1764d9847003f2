"""Random worlds on a real control plane, each stage predicted from a snapshot before it and compared with what happened.

    python -m tests.predictions --worlds 5 --seed 1                plays five worlds and prints a table
    python -m tests.predictions --worlds 5 --seed 1 --keep DIR     keeps the recordings
    python -m tests.predictions --replay DIR                       predicts recorded stages again, without a cluster

It ends with 1 if more stages than allowed were predicted wrongly. Differences that only choices between equally good nodes explain count
as agreement, in a column of their own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from tests.kubernetes.binaries import NoBinaries, find_or_make
from tests.predictions import comparing, recording
from tests.predictions.predicting import Prediction, predict
from tests.predictions.recording import Recording

EQUAL, TIES, ORDER = "equal", "equal with ties as in reality", "equal with ties and order as in reality"
RETRIED = ", once pods that wait were tried again"
ASPECTS = ("counts", "nodes", "statuses", "messages", "idle")


ORDERS = 40  # tries to find the order in which requests came


@dataclass(slots=True)
class Outcome:
    """How one stage was predicted: the differences of each aspect; None where there was nothing to compare. `how` says
    what had to be chosen as in reality for that."""

    world: str
    number: int
    title: str
    how: str
    differences: dict[str, list[str] | None]

    @property
    def wrong(self) -> int:
        return sum(len(lines or ()) for lines in self.differences.values())


def judge(found: Recording, number: int) -> Outcome:
    """The first prediction without a difference, or the best one."""
    outcomes: list[Outcome] = []
    for outcome in _tries(found, number):
        outcomes.append(outcome)
        if not outcome.wrong:
            break
    return min(outcomes, key=lambda outcome: outcome.wrong)


def _tries(found: Recording, number: int) -> Iterator[Outcome]:
    """Predictions that leave less and less open."""
    record, snapshot = found.stages[number], found.snapshot(number)
    before, retried = found.objects(number), found.objects(number + 1)
    after = found.objects_waiting(number)

    def outcomes(how: str, prediction: Prediction) -> Iterator[Outcome]:
        idle = comparing.changes(before, prediction.idle)
        refusals = comparing.differences(Counter(prediction.refused), Counter(record.refused))
        pairs = [(how, prediction.after, retried if after is None else after)]
        if after is not None:
            pairs.append((f"{how}{RETRIED}", prediction.retried, retried))
        for name, predicted, real in pairs:
            compared = compare(*map(comparing.State, (before, predicted, real)))
            compared["counts"] = [*(compared["counts"] or ()), *refusals]
            yield Outcome(found.folder.name, number, record.stage["title"], name, {**compared, "idle": idle})

    yield from outcomes(EQUAL, predict(snapshot, record))
    yield from outcomes(TIES, predict(snapshot, record, as_real=True))
    for order in range(ORDERS):
        yield from outcomes(ORDER, predict(snapshot, record, as_real=True, order=order))


def compare(before: comparing.State, predicted: comparing.State, real: comparing.State) -> dict[str, list[str] | None]:
    messages = comparing.messages(predicted), comparing.messages(real)
    return {
        "counts": comparing.differences(comparing.counts(predicted), comparing.counts(real)),
        "nodes": comparing.differences(comparing.nodes(predicted, before), comparing.nodes(real, before)),
        "statuses": comparing.differences(comparing.statuses(predicted), comparing.statuses(real)),
        "messages": comparing.differences(*messages) if any(messages) else None,
    }


def play(seed: int, stages: int, keep: str, attempts: int) -> list[Outcome]:
    """Plays one world on a control plane of its own, and predicts it; again, if something differs and attempts are
    left."""
    outcomes: list[Outcome] = []
    for attempt in range(attempts):
        with tempfile.TemporaryDirectory() as scratch:
            kept = Path(keep or scratch) / f"world-{seed:03}{'-again' * attempt}"
            outcomes = judge_all(recording.run(find_or_make(), seed, stages, kept, Path(scratch)))
        wrong = [outcome for outcome in outcomes if outcome.wrong]
        if not wrong:
            break
        for outcome in wrong if attempt + 1 < attempts else ():
            print(f"to be played again: {outcome.world} {outcome.number} {outcome.title}", flush=True)
    return outcomes


def judge_all(found: Recording) -> list[Outcome]:
    return [judge(found, number) for number in range(len(found.stages))]


def replay(folder: str) -> Iterator[list[Outcome]]:
    for each in sorted(Path(folder).iterdir()):
        if (each / "stages.json").exists():
            loaded = Recording.load(each)
            while loaded.stages and not loaded.snapshot(len(loaded.stages)).exists():
                loaded.stages.pop()  # it was interrupted
            yield judge_all(loaded)


def play_all(seeds: Iterable[int], given: argparse.Namespace) -> Iterator[list[Outcome]]:
    find_or_make()  # before several need it
    with ProcessPoolExecutor(given.at_once) as pool:
        yield from pool.map(play, seeds, repeat(given.stages), repeat(given.keep), repeat(given.attempts))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.predictions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="of the first world; the next ones follow")
    parser.add_argument("--stages", type=int, default=8, help="after those in which the first workloads arrive")
    parser.add_argument("--at-once", type=int, default=1, help="worlds that are played at the same time")
    parser.add_argument("--attempts", type=int, default=1, help="a world counts if it differs as often as this")
    parser.add_argument("--allowed", type=int, default=0, help="stages that may differ")
    parser.add_argument("--keep", default="", help="a folder for the recordings")
    parser.add_argument("--replay", help="a folder with recordings to predict again")
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.worlds)
    found = replay(given.replay) if given.replay else play_all(seeds, given)
    outcomes: list[Outcome] = []
    try:
        for world in found:
            outcomes += world
            for outcome in world:
                show(outcome)
    except NoBinaries as error:
        sys.exit(f"Error: {error}")
    print(table(outcomes))
    sys.exit(sum(1 for outcome in outcomes if outcome.wrong) > given.allowed)


def show(outcome: Outcome) -> None:
    wrong = [aspect for aspect, lines in outcome.differences.items() if lines]
    verdict = f"DIFFERENT {', '.join(wrong)}" if wrong else outcome.how
    print(f"{outcome.world} {outcome.number:2} {outcome.title}: {verdict}", flush=True)
    for aspect in wrong:
        for line in (outcome.differences[aspect] or ())[:12]:
            print(f"      {aspect}: {line}", flush=True)


def table(outcomes: list[Outcome]) -> str:
    titles = {
        "counts": "pods of each workload",
        "nodes": "node of each pod",
        "statuses": "statuses",
        "messages": "why pods are pending",
        "idle": "doing nothing changes nothing",
    }
    agreed: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    for outcome in outcomes:
        for aspect, lines in outcome.differences.items():
            if lines is not None:
                compared[aspect] += 1
                agreed[aspect] += not lines
    worlds = len({outcome.world for outcome in outcomes})
    how = Counter(outcome.how for outcome in outcomes if not outcome.wrong)
    lines = [f"{worlds} worlds, {len(outcomes)} stages"]
    lines += [f"{name:82}{how[name]:6}" for each in (EQUAL, TIES, ORDER) for name in (each, each + RETRIED)]
    lines += [f"{'different':82}{len(outcomes) - how.total():6}"]
    lines += [f"{titles[aspect]:82}{agreed[aspect]:6} of {compared[aspect]}" for aspect in ASPECTS]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
