"""Runs many scenarios in parallel, each file in a process of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class ScenarioVerdict:
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


def run_all(files: Sequence[Path], seed: int, jobs: int | None) -> Iterator[ScenarioVerdict]:
    """The verdicts as they become available."""
    workers = min(jobs or os.cpu_count() or 1, len(files))
    if workers == 1:
        for file in files:
            yield from run_file(file, seed)
        return
    # Ctrl-C reaches the worker processes, too; they must exit silently.
    with ProcessPoolExecutor(workers, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_DFL)) as pool:
        running = [pool.submit(run_file, file, seed) for file in files]
        try:
            for done in as_completed(running):
                yield from done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def run_file(file: Path, seed: int) -> list[ScenarioVerdict]:
    """Runs every scenario of a file, with the file's manifests and configuration."""
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
