"""The scenarios of the documentation hold on a real cluster as they do in simulation: the same files, by `wharf test`.

They mostly wait, so several clusters share them; each runs our components with the configuration that a scenario needs.
"""

from __future__ import annotations

import json
import math
import queue
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.kubernetes.binaries import Binaries
from tests.kubernetes.cluster import ROOT, Cluster, free_port
from tests.kubernetes.components import running
from tests.kubernetes.conftest import NOT_PLAYED

from wharfinger.api.configuration import API_VERSION, KIND, Configuration, settings_by_key
from wharfinger.api.kinds import registry
from wharfinger.cli.scenario_runs import collect
from wharfinger.scenario.document import Scenario
from wharfinger.scenario.running.rules import why_not
from wharfinger.simulate.inputs import read_inputs

CLUSTERS = 4
PART = 300.0  # seconds that the scenario files which are run together may take
SETUP = 10.0  # seconds that a scenario takes besides its waits
PATIENCE = "120"  # seconds: other clusters are at work beside
FILES = collect([str(ROOT / "scenarios")])


def jobs(unplayable: list[str]) -> Iterator[tuple[dict[str, Any], list[Path]]]:
    """Files that can be played on a real cluster, by the configuration they need, in parts. The others are put into
    `unplayable`, with the reason."""
    groups: dict[str, dict[Path, float]] = {}
    for file in FILES:
        inputs = read_inputs([(str(file), file.read_bytes())], registry())
        reasons = [why_not(scenario, restarts=True, webhook=True) for scenario, _ in inputs.scenarios]
        if all(reasons):
            unplayable.append(f"{file.relative_to(ROOT)}: {reasons[0]}")
            continue
        document = as_document(inputs.configuration)
        document["nodes"]["startupSeconds"] = 0.2
        document["resourceClass"]["rewriteNames"] = True  # real API servers refuse names without a domain
        seconds = sum(map(duration, (scenario for scenario, _ in inputs.scenarios)))
        groups.setdefault(json.dumps(document, sort_keys=True), {})[file] = seconds
    parts = [(text, part) for text, files in groups.items() for part in divided(files)]
    # The longest first: short ones fill the gaps at the end.
    for text, part in sorted(parts, key=lambda each: -sum(each[1].values())):
        yield json.loads(text), list(part)


def duration(scenario: Scenario) -> float:
    """About how many seconds a scenario takes."""
    last = max((step.at or 0.0 for step in scenario.steps), default=0.0)
    waits = (max((each.within or 0.0 for each in step.expect), default=0.0) for step in scenario.steps)
    return SETUP + last + sum(waits) / 2


def divided(files: Mapping[Path, float]) -> list[dict[Path, float]]:
    """The files in as many parts as they need, of about the same duration."""
    count = math.ceil(sum(files.values()) / PART)
    parts: list[dict[Path, float]] = [{} for _ in range(count)]
    for file in sorted(files, key=lambda each: -files[each]):
        min(parts, key=lambda part: sum(part.values()))[file] = files[file]
    return parts


def as_document(configuration: Configuration) -> dict[str, Any]:
    """The configuration document, with every block in full."""
    blocks = {key: msgspec.to_builtins(configuration.of(block)) for key, block in settings_by_key().items()}
    nodes = msgspec.to_builtins(configuration.nodes)
    return {"apiVersion": API_VERSION, "kind": KIND, "scheduler": configuration.scheduler, "nodes": nodes, **blocks}


def play(work: queue.SimpleQueue[tuple[dict[str, Any], list[Path]]], binaries: Binaries, folder: Path) -> list[str]:
    """One cluster's share: takes work while there is any. Gives the lines that `wharf test` printed."""
    lines: list[str] = []
    cluster = Cluster(binaries, folder)
    try:
        cluster.start()
        cluster.install_rights()
        while True:
            try:
                configuration, files = work.get_nowait()
            except queue.Empty:
                return lines
            with running(cluster, configuration) as components:
                arguments = ["test", *map(str, files), "-v", "--config", str(components.config)]
                arguments += ["--patience", PATIENCE, "--restart", components.restart]
                arguments += ["--webhook", f"127.0.0.1:{free_port()}"]
                told = cluster.run_wharf(*arguments, check=False, cluster=True)
                print(told, flush=True)
                with (folder / "told.txt").open("a") as file:  # to be read while others still play
                    file.write(told)
                lines += told.splitlines()
    finally:
        cluster.stop()


@pytest.mark.timeout(2400)
def test_scenarios_hold_on_a_real_cluster(
    binaries: Binaries, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    work: queue.SimpleQueue[tuple[dict[str, Any], list[Path]]] = queue.SimpleQueue()
    unplayable: list[str] = []
    for job in jobs(unplayable):
        work.put(job)
    folders = [tmp_path / str(number) for number in range(CLUSTERS)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(CLUSTERS) as pool:
        shares = pool.map(lambda folder: play(work, binaries, folder), folders)
        lines = [line for share in shares for line in share]
    passed = [line for line in lines if line.startswith("PASS")]
    skipped = [line.removeprefix(f"SKIP {ROOT}/") for line in lines if line.startswith("SKIP")] + unplayable
    for line in skipped:
        record_property(NOT_PLAYED, line)
    problems = [
        line for line in lines if line and not line.startswith(("PASS", "SKIP")) and " passed, 0 failed" not in line
    ]
    assert not problems, "\n".join(problems)
    assert len(passed) >= len(FILES) - len(skipped)
    assert len(skipped) < len(FILES) / 25  # nearly all can be played
