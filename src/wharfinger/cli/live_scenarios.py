"""Runs scenarios on a running cluster, one after the other, because they share it."""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from wharfinger.cli.scenario_runs import ScenarioVerdict, problem_lines

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.client.access import ClusterAccess
    from wharfinger.scenario.document import Scenario
    from wharfinger.simulate.inputs import Inputs


class Cluster(msgspec.Struct, frozen=True):
    """The cluster that scenarios run on. Scenarios that need another `configuration` than its components have are
    skipped; `patience` is how many seconds an expectation may take to become true."""

    access: ClusterAccess
    configuration: Configuration
    patience: float
    restart: Sequence[str] = ()  # command that restarts the component named by its last argument
    webhook: str = ""  # host and port on this machine that its API server can reach


def run_live(files: Sequence[Path], cluster: Cluster) -> Iterator[ScenarioVerdict]:
    """The verdicts in the order of the files."""
    from wharfinger.scenario.running.stage import tidy

    run = uuid.uuid4().hex[:8]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up the cluster when terminated
    with asyncio.Runner() as runner:
        try:
            for file in files:
                yield from _run_file(file, cluster, run, runner)
        finally:
            runner.run(tidy(cluster.access, run))


def _run_file(file: Path, cluster: Cluster, run: str, runner: asyncio.Runner) -> Iterator[ScenarioVerdict]:
    from wharfinger.api.kinds import registry
    from wharfinger.scenario.running.rules import why_not
    from wharfinger.scenario.running.stage import NotPlayable
    from wharfinger.simulate.inputs import BadInput, read_inputs

    try:
        inputs = read_inputs([(str(file), file.read_bytes())], registry())
    except BadInput as error:
        yield ScenarioVerdict(str(file), str(file), 0.0, tuple(error.problems), bad_input=True)
        return
    for number, (scenario, _) in enumerate(inputs.scenarios, 1):
        name = scenario.name or (str(number) if len(inputs.scenarios) > 1 else "")
        title = f"{file}: {name}" if name else str(file)
        if reason := _other_configuration(inputs.configuration, cluster.configuration) or why_not(
            scenario, restarts=bool(cluster.restart), webhook=bool(cluster.webhook)
        ):
            yield ScenarioVerdict(title, str(file), skipped=reason)
            continue
        began = time.perf_counter()
        try:
            problems = runner.run(_play(scenario, inputs, cluster, run))
        except NotPlayable as error:
            yield ScenarioVerdict(title, str(file), skipped=str(error))
            continue
        except Exception as error:  # an error in one scenario must not hide the others
            problems = [f"the scenario broke: {type(error).__name__}: {error}"]
        yield ScenarioVerdict(title, str(file), time.perf_counter() - began, tuple(problems))


async def _play(scenario: Scenario, inputs: Inputs, cluster: Cluster, run: str) -> list[str]:
    from wharfinger.scenario import applying, runner
    from wharfinger.scenario.running.stage import LiveStage
    from wharfinger.simulate import report

    stage = LiveStage(
        cluster.access,
        run,
        patience=cluster.patience,
        configuration=cluster.configuration,
        restart=cluster.restart,
        webhook=cluster.webhook,
    )
    results = runner.Results()
    try:
        scenario, documents = await stage.open(scenario, inputs.manifests)
        admin = stage.client("", lambda warning: None)
        for manifest, document in zip(inputs.manifests, documents, strict=True):
            refused = await runner.request(document, "", applying.apply(admin, document, stage.registry))
            results.failures += [(str(manifest.source), runner.refusal(each)) for each in refused]
        await runner.run(scenario, stage, results)
    finally:
        left = await stage.close()
    return [*problem_lines(report.expectations(results)), *(f"afterwards: {each}" for each in left)]


def _other_configuration(wanted: Configuration, running: Configuration) -> str:
    """Why a scenario needs another configuration than the one that runs; empty if it does not. How nodes are simulated
    makes no difference."""
    from wharfinger.api.configuration import settings_by_key
    from wharfinger.scenario.extension import Extensions

    wanted = Extensions().comparable(wanted, running)
    if wanted.scheduler != running.scheduler:
        return "it needs another configuration of scheduler (see --config)"
    for key, block in settings_by_key().items():
        if wanted.of(block) != running.of(block):
            return f"it needs another configuration of {key} (see --config)"
    return ""
