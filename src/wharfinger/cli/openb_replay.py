"""`wharf replay --format openb`: the packing policies side by side on a trace."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wharfinger.cli.output import emit, table

if TYPE_CHECKING:
    from wharfinger.replay.experiment import ExperimentResult
    from wharfinger.replay.openb import OpenbTrace

DEFAULT_SEED = 42
MOST_SEEDS = 10_000
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")

Runs = Sequence[tuple[str, int]]
"""Policy and seed of each run."""


def replay_openb(
    nodes: Path,
    pods: Path,
    policies: Sequence[str],
    seed: int | None,
    seeds: str | None,
    jobs: int | None,
    output: str,
) -> None:
    from wharfinger.replay.openb import read_openb

    runs = [(policy, each) for policy in _policies(policies) for each in _seeds(seed, seeds)]
    results = _run_all(read_openb(nodes, pods), runs, jobs)
    if output == "table":
        click.echo(_text(results))
    elif len(results) == 1:
        emit(results[0].document(), output, kind="PackingReplay")
    else:
        emit([each.document() for each in results], output, kind="PackingReplayList")


def save_openb(nodes: Path, pods: Path, folder: Path) -> None:
    """Writes the trace in the form that the whole control plane replays."""
    from wharfinger.api.wording import counted
    from wharfinger.replay.openb import read_openb
    from wharfinger.replay.openb_conversion import converted
    from wharfinger.replay.writing import write_trace

    trace = read_openb(nodes, pods)
    write_trace(converted(trace, folder.name), folder)
    click.echo(f"{folder}: {counted(len(trace.pods), 'pod')}", err=True)


def _policies(given: Sequence[str]) -> list[str]:
    from wharfinger.plugins.device_packing.registry import POLICIES

    if not given:
        raise click.UsageError(f"--format openb needs --policy: {', '.join(POLICIES)}")
    unknown = [each for each in given if each not in POLICIES]
    if unknown:
        raise click.UsageError(f"there is no policy {unknown[0]}; there are {', '.join(POLICIES)}")
    return list(dict.fromkeys(given))


def _seeds(seed: int | None, seeds: str | None) -> Sequence[int]:
    if seeds is None:
        return [DEFAULT_SEED if seed is None else seed]
    if seed is not None:
        raise click.UsageError("give --seed or --seeds, not both")
    match = _RANGE.fullmatch(seeds)
    if match is None:
        raise click.UsageError(f"--seeds is FIRST..LAST, for example 42..51, not {seeds}")
    found = range(int(match[1]), int(match[2]) + 1)
    if not 0 < len(found) <= MOST_SEEDS:
        raise click.UsageError(f"--seeds {seeds}: between 1 and {MOST_SEEDS} seeds, please")
    return found


def _run_all(trace: OpenbTrace, runs: Runs, jobs: int | None) -> list[ExperimentResult]:
    from wharfinger.cli.progress import progress

    results: list[ExperimentResult] = []
    with progress() as told:
        for each in _results(trace, runs, min(jobs or os.cpu_count() or 1, len(runs))):
            results.append(each)
            if told is not None:
                told("Runs", len(results), len(runs))
    return results


def _results(trace: OpenbTrace, runs: Runs, jobs: int) -> Iterator[ExperimentResult]:
    from wharfinger.replay.experiment import run_experiment

    if jobs == 1:
        for policy, seed in runs:
            yield run_experiment(trace, policy, seed)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), _share, (trace,)) as pool:
        yield from pool.map(_run, runs)


_shared: list[OpenbTrace] = []  # in the processes of a pool


def _share(trace: OpenbTrace) -> None:
    _shared[:] = [trace]


def _run(run: tuple[str, int]) -> ExperimentResult:
    from wharfinger.replay.experiment import run_experiment

    return run_experiment(_shared[0], *run)


def _text(results: Sequence[ExperimentResult]) -> str:
    """A line for each policy: means over the seeds."""
    from wharfinger.replay.experiment import MARKS

    header = ["policy", "seeds", *(f"allocated % @{mark}" for mark in MARKS)]
    header += [*(f"fragmented % @{mark}" for mark in MARKS), "of idle % @80", "seconds"]
    rows = []
    for policy in dict.fromkeys(each.policy for each in results):
        runs = [each for each in results if each.policy == policy]
        rows.append(
            [
                policy,
                len(runs),
                *(_mean(each.allocated[mark] for each in runs) for mark in MARKS),
                *(_mean(each.fragmented[mark] for each in runs) for mark in MARKS),
                _mean(each.fragmented_share(MARKS[0]) for each in runs),
                _mean(each.seconds for each in runs),
            ]
        )
    return table(header, rows)


def _mean(values: Iterator[float]) -> str:
    found = list(values)
    return f"{sum(found) / len(found):.2f}"
