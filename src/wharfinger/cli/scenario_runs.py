"""Runs many scenarios in parallel, each file in a process of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from multiprocessing import active_children
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import msgspec

from wharfinger.cli.exit_status import interruptible

if TYPE_CHECKING:
    from wharfinger.simulate.inputs import Inputs

_SUFFIXES = (".yaml", ".yml", ".json")


class ScenarioVerdict(msgspec.Struct, frozen=True):
    """The outcome of one scenario; `problems` has a line of text for each."""

    name: str
    file: str
    seconds: float = 0.0
    problems: tuple[str, ...] = ()
    bad_input: bool = False
    skipped: str = ""  # why it was skipped

    @property
    def ok(self) -> bool:
        return not self.problems

    def document(self) -> dict[str, object]:
        result = "skipped" if self.skipped else "passed" if self.ok else "failed"
        found: dict[str, object] = {"name": self.name, "file": self.file, "result": result, "seconds": self.seconds}
        if self.skipped:
            found["why"] = self.skipped
        if self.problems:
            found["problems"] = list(self.problems)
        return found


def collect(paths: Iterable[str]) -> list[Path]:
    """The named files, and the files with scenarios in the named folders."""
    found: dict[Path, None] = {}
    for name in paths:
        path = Path(name)
        inside = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES)
        for each in inside:
            if each == path or b"Scenario" in each.read_bytes():
                found[each] = None
    return list(found)


def run_all(
    files: Sequence[Path], seed: int, jobs: int | None, cluster: Inputs | None = None
) -> Iterator[ScenarioVerdict]:
    """The verdicts as they become available. The scenarios start on the state of a cluster, if one is given."""
    workers = min(jobs or os.cpu_count() or 1, len(files))
    if workers == 1:
        with interruptible():
            for file in files:
                yield from run_file(file, seed, cluster)
        return
    with ProcessPoolExecutor(workers, initializer=_begin_worker, initargs=(cluster,)) as pool:
        running = [pool.submit(_run_in_worker, file, seed) for file in files]
        try:
            for done in as_completed(running):
                yield from done.result()
        except BaseException:
            # A simulation under way would be waited for.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in active_children():
                child.terminate()
            raise


_CLUSTER: list[Inputs | None] = [None]  # of a worker process


def _begin_worker(cluster: Inputs | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the workers, too; the main process ends them
    _CLUSTER[0] = cluster


def _run_in_worker(file: Path, seed: int) -> list[ScenarioVerdict]:
    return run_file(file, seed, _CLUSTER[0])


def run_file(file: Path, seed: int, cluster: Inputs | None = None) -> list[ScenarioVerdict]:
    """Runs every scenario of a file, with the file's manifests and configuration, on the state of a cluster if given."""
    from wharfinger.api.kinds import registry
    from wharfinger.cli.simulating import quiet
    from wharfinger.fuzz.checking import collecting_errors, watcher
    from wharfinger.simulate.inputs import BadInput, read_inputs
    from wharfinger.simulate.simulation import SimulationOptions, simulate

    quiet()
    try:
        inputs = read_inputs([(str(file), file.read_bytes())], registry())
    except BadInput as error:
        return [ScenarioVerdict(str(file), str(file), 0.0, tuple(error.problems), bad_input=True)]
    if cluster is not None:
        inputs = inputs.on(cluster)
    verdicts = []
    for number, (scenario, _) in enumerate(inputs.scenarios, 1):
        name = scenario.name or (str(number) if len(inputs.scenarios) > 1 else "")
        began = time.perf_counter()
        try:
            options = SimulationOptions(seed=seed, watcher=watcher)
            with collecting_errors() if scenario.invariants else nullcontext():
                report = simulate(inputs, options, [scenario])
            problems = tuple(problem_lines(report["expectations"]))
        except Exception as error:  # an error in one scenario must not hide the others
            problems = (f"the simulation broke: {type(error).__name__}: {error}",)
        title = f"{file}: {name}" if name else str(file)
        verdicts.append(ScenarioVerdict(title, str(file), time.perf_counter() - began, problems))
    return verdicts


def problem_lines(expectations: Iterable[dict[str, object]]) -> Iterator[str]:
    """The failed expectations as lines of text."""
    from wharfinger.cli.report_text import failure

    for each in expectations:
        if not each["ok"]:
            yield from failure(each)


def junit_xml(verdicts: Sequence[ScenarioVerdict]) -> str:
    failed = [verdict for verdict in verdicts if not verdict.ok]
    suite = ElementTree.Element(
        "testsuite",
        name="wharf test",
        tests=str(len(verdicts)),
        failures=str(len(failed)),
        skipped=str(sum(bool(verdict.skipped) for verdict in verdicts)),
        time=f"{sum(verdict.seconds for verdict in verdicts):.3f}",
    )
    for verdict in verdicts:
        case = ElementTree.SubElement(
            suite, "testcase", classname=verdict.file, name=verdict.name, time=f"{verdict.seconds:.3f}"
        )
        if verdict.skipped:
            ElementTree.SubElement(case, "skipped", message=verdict.skipped)
        if not verdict.ok:
            failure = ElementTree.SubElement(case, "failure", message=verdict.problems[0])
            failure.text = "\n".join(verdict.problems)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"
