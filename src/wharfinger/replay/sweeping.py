"""Runs the replays of a sweep, on the cores of this machine or on a Dask cluster, and keeps their results.

Each result is appended to a journal at once, so that an interrupted sweep goes on where it stopped. At the end all
results are in one Parquet file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from wharfinger.replay.extras import require_extra
from wharfinger.replay.sweep_spec import SweepJob, SweepObjective
from wharfinger.simulate.inputs import BadInput

Row = dict[str, Any]
Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class SweepStanding:
    """How good a configuration is: the objective over all of its replays."""

    configuration: str
    parameters: Mapping[str, Any]
    mean: float
    lowest: float
    highest: float
    runs: int

    def document(self) -> dict[str, Any]:
        return {
            "configuration": self.configuration,
            "parameters": dict(self.parameters),
            "mean": round(self.mean, 6),
            "lowest": round(self.lowest, 6),
            "highest": round(self.highest, 6),
            "runs": self.runs,
        }


class SweepResults:
    """The rows so far: those of an earlier run in the file and in the journal, and new ones."""

    def __init__(self, path: Path) -> None:
        require_extra("polars")
        self._path = path
        self._journal = path.with_name(f"{path.name}.journal")
        self.rows: dict[str, Row] = {}
        if path.exists():
            import polars as pl

            try:
                frame = pl.read_parquet(path)
            except pl.exceptions.PolarsError as error:
                raise BadInput([f"{path}: not results of a sweep: {error}"]) from error
            self.rows = {row["key"]: _without_none(row) for row in frame.iter_rows(named=True)}
        if self._journal.exists():
            for line in self._journal.read_bytes().splitlines():
                try:
                    row = msgspec.json.decode(line, type=dict[str, Any])
                except msgspec.DecodeError:
                    continue  # it was being written when the sweep was stopped: that replay is done again
                self.rows[row["key"]] = row

    def add(self, row: Row) -> None:
        self.rows[row["key"]] = row
        with self._journal.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")

    def finish(self) -> None:
        """One Parquet file; the journal is not needed any more."""
        import polars as pl

        rows = sorted(self.rows.values(), key=lambda row: (row["trace"], row["configuration"], row["seed"]))
        names = list(dict.fromkeys(name for row in rows for name in row))
        frame = pl.DataFrame([{name: row.get(name) for name in names} for row in rows], infer_schema_length=None)
        partial = self._path.with_name(f".{self._path.name}.partial")
        frame.write_parquet(partial, compression="zstd")
        partial.replace(self._path)
        self._journal.unlink(missing_ok=True)


def run_local(jobs: Sequence[SweepJob], workers: int | None = None) -> Iterator[Row]:
    """Results in the order in which they are ready."""
    number = min(workers or len(os.sched_getaffinity(0)), max(1, len(jobs)))
    if number == 1:
        for job in jobs:
            yield run_here(job)
        return
    with ProcessPoolExecutor(number, mp_context=get_context("spawn")) as pool:
        try:
            for done in as_completed([pool.submit(run_here, job) for job in jobs]):
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def run_on_dask(jobs: Sequence[SweepJob], address: str) -> Iterator[Row]:
    """On the workers of a Dask cluster, which need wharfinger. Traces are sent to them once; configurations that are files
    have to be at the same place there."""
    require_extra("distributed")
    distributed: Any = import_module("distributed")  # its functions have no types
    try:
        client = distributed.Client(address, timeout=30)
    except (OSError, TimeoutError, ValueError) as error:
        raise BadInput([f"--dask: {address}: {error}"]) from error
    with client:
        traces = {job.trace: job for job in jobs}
        sent = {name: client.scatter(_loaded(job), broadcast=True) for name, job in traces.items()}
        futures = [client.submit(run_job, sent[job.trace], job, key=f"sweep-{job.key}") for job in jobs]
        for future in distributed.as_completed(futures):
            yield future.result()
            future.release()


def run_here(job: SweepJob) -> Row:
    """In a process of its own, which keeps the last trace that it read."""
    logging.getLogger("wharfinger").setLevel(logging.ERROR)
    return run_job(_loaded(job), job)


def _loaded(job: SweepJob) -> Any:
    return _read_openb(job.trace, job.stamp) if job.policy else _read_trace(job.trace, job.stamp)


@lru_cache(1)
def _read_trace(folder: str, stamp: str) -> Any:
    from wharfinger.replay.importing import read_trace

    return read_trace(Path(folder))


@lru_cache(1)
def _read_openb(paths: str, stamp: str) -> Any:
    from wharfinger.replay.openb import read_openb

    return read_openb(*map(Path, paths.split("\n")))


def run_job(trace: Any, job: SweepJob) -> Row:
    """One replay, as a flat row."""
    row: Row = {
        "key": job.key,
        "trace": Path(job.trace.partition("\n")[2] or job.trace).name,
        "configuration": job.name,
        "seed": job.seed,
        **{f"parameter.{path}": value for path, value in job.parameters},
    }
    return {**row, **(_packing(trace, job) if job.policy else _replayed(trace, job))}


def _packing(trace: Any, job: SweepJob) -> Row:
    from wharfinger.replay.experiment import run_experiment

    result = run_experiment(trace, job.policy, job.seed)
    found: Row = {"wallSeconds": round(result.seconds, 3)}
    for name, marks in (("allocated", result.allocated), ("fragmented", result.fragmented)):
        found |= {f"{name}.{mark}": float(value) for mark, value in marks.items()}
    return found


def _replayed(trace: Any, job: SweepJob) -> Row:
    import time

    from wharfinger.api.configuration import load_configuration
    from wharfinger.replay.comparing import run_document
    from wharfinger.replay.playing import play
    from wharfinger.replay.running import read_configurations
    from wharfinger.replay.runs import ReplayConfiguration, ReplayOptions

    if job.path:
        configured = read_configurations([job.path], trace)[0]
    else:
        configuration = load_configuration(job.configuration)
        if trace.configuration is not None and not job.configuration:
            configuration = trace.configuration
        elif trace.configuration is not None and configuration.kubernetes is None:
            configuration = msgspec.structs.replace(configuration, kubernetes=trace.configuration.kubernetes)
        configured = ReplayConfiguration(job.name, configuration)
    started = time.perf_counter()
    run = play(trace, configured, {}, ReplayOptions(job.seed, job.until))
    found = run_document(run)
    return {
        "wallSeconds": round(time.perf_counter() - started, 3),
        "seconds": found["seconds"],
        **found["pods"],
        "preemptions": found["preemptions"],
        "queue.mean": found["queueLength"]["mean"],
        **{f"waiting.{name}": value for name, value in found["waitingSeconds"].items()},
        **{f"utilisation.{name}": value for name, value in found["utilisation"].items()},
        **{f"fragmentation.{name}": value for name, value in found["fragmentation"].items()},
        "cost": found["cost"],
        "costInUse": found["costInUse"],
    }


def sweep(
    jobs: Sequence[SweepJob],
    results: SweepResults,
    run: Callable[[Sequence[SweepJob]], Iterator[Row]],
    told: Told | None = None,
) -> list[Row]:
    """Runs what is not done yet, and returns the rows of all jobs."""
    left = [job for job in jobs if job.key not in results.rows]
    done = len(jobs) - len(left)
    for row in run(left) if left else ():
        results.add(row)
        done += 1
        if told is not None:
            told(done, len(jobs))
    results.finish()
    return [results.rows[job.key] for job in jobs]


def standings(rows: Sequence[Row], objective: SweepObjective) -> list[SweepStanding]:
    """The configurations, best first. Raises BadInput if no row has the objective."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.get(objective.field) is not None:
            groups.setdefault(row["configuration"], []).append(row)
    if rows and not groups:
        known = sorted({name for row in rows for name, value in row.items() if isinstance(value, int | float)})
        raise BadInput([f"objective: there is no result {objective.field}; there are {', '.join(known)}"])
    found = []
    for name, own in groups.items():
        values = [float(row[objective.field]) for row in own]
        parameters = {key.removeprefix("parameter."): own[0][key] for key in own[0] if key.startswith("parameter.")}
        found.append(SweepStanding(name, parameters, fmean(values), min(values), max(values), len(values)))
    return sorted(found, key=lambda each: (-each.mean if objective.maximize else each.mean, each.configuration))


def _without_none(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}
