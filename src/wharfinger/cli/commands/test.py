"""`wharf test`: runs scenarios as tests."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wharfinger.cli.exit_status import BAD_INPUT, NO, OK, InputError
from wharfinger.cli.options import FILE, output_option, paths_option

if TYPE_CHECKING:
    from wharfinger.cli.live_scenarios import Cluster
    from wharfinger.cli.scenario_runs import ScenarioVerdict


@click.command
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--junit", type=FILE, help="Write the results as JUnit XML.")
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of every scenario.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    help="How many scenarios to run in parallel.  [default: the number of cores]",
)
@click.option("-v", "--verbose", is_flag=True, help="List scenarios that pass, too.")
@paths_option(
    "--cluster",
    "snapshots",
    metavar="SNAPSHOT",
    help="Play the scenarios in a simulation of this cluster: a file of `wharf snapshot`, or a folder.",
)
@click.option("--kubeconfig", metavar="FILE", help="Play the scenarios on the cluster of this kubeconfig.")
@click.option("--context", metavar="NAME", help="The kubeconfig context to use.")
@click.option(
    "--config",
    metavar="FILE",
    help="The WharfingerConfiguration that the components on the cluster run with.",
)
@click.option(
    "--patience",
    type=click.FloatRange(min=0),
    help="How many seconds an expectation may take to become true.  [default: 30]",
)
@click.option(
    "--restart",
    metavar="COMMAND",
    help="Command that restarts a component; it gets scheduler or controllers as its last argument.",
)
@click.option(
    "--webhook",
    metavar="HOST:PORT",
    help="An address of this machine that the API server can reach, for bindings that fail or are slow.",
)
@output_option("text", "json", "yaml", default="text")
def command(
    paths: tuple[str, ...],
    junit: Path | None,
    seed: int,
    jobs: int | None,
    verbose: bool,
    snapshots: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    config: str | None,
    patience: float | None,
    restart: str | None,
    webhook: str | None,
    output: str,
) -> None:
    """Run the scenarios in files and folders: unit tests for scheduling policies.

    With --cluster, each scenario starts on the state of one's own cluster, taken with `wharf snapshot`. With
    --kubeconfig, scenarios are played on a running cluster, and everything they create is deleted
    afterwards. Scenarios that need more than 100 seconds, faults that cannot be caused there, or another
    configuration than --config are skipped and listed.

    Exit status: 0 success, 1 an expectation failed, 2 invalid input.

    \b
    Examples:
      wharf test scenarios/ --junit results.xml
      wharf test scenarios/resource-policy -v
      wharf snapshot -o cluster.json.gz && wharf test rehearsals/ --cluster cluster.json.gz
      wharf test scenarios/resource-policy --kubeconfig admin.conf --config config.yaml
    """
    from wharfinger.cli.live_scenarios import run_live
    from wharfinger.cli.output import emit, paint
    from wharfinger.cli.progress import progress
    from wharfinger.cli.scenario_runs import collect, junit_xml, run_all
    from wharfinger.cli.simulating import bad_input, read

    files = collect(paths)
    if not files:
        raise InputError("there is no scenario here: no YAML or JSON file holds a document of kind Scenario.")
    if kubeconfig is None and any(each is not None for each in (context, config, patience, restart, webhook)):
        raise click.UsageError("--context, --config, --patience, --restart and --webhook belong to --kubeconfig")
    if webhook is not None and not re.fullmatch(r".+:\d{1,5}", webhook):
        raise click.BadParameter(f"{webhook!r} is not of the form HOST:PORT", param_hint="--webhook")
    if snapshots and kubeconfig is not None:
        raise click.UsageError("--cluster is for simulations and --kubeconfig for a running cluster: give one of them")
    verdicts: list[ScenarioVerdict] = []
    if kubeconfig is None:
        with bad_input():
            played = run_all(files, seed, jobs, read(snapshots) if snapshots else None)
    else:
        played = run_live(files, _cluster(kubeconfig, context, config, patience, restart, webhook))
    files_played: set[str] = set()
    with progress() as told:
        for verdict in played:
            verdicts.append(verdict)
            lines = list(_lines(verdict, verbose)) if output == "text" else []
            if told is not None:
                if lines:
                    told.clear()
                files_played.add(verdict.file)
                told("played", len(files_played), len(files))
            for line in lines:
                click.echo(line)
    if junit is not None:
        junit.write_text(junit_xml(verdicts))
    failed = sum(not verdict.ok for verdict in verdicts)
    skipped = sum(bool(verdict.skipped) for verdict in verdicts)
    summary = f"{len(verdicts) - failed - skipped} passed, {failed} failed" + (
        f", {skipped} skipped" if skipped else ""
    )
    if output == "text":
        click.echo(paint(summary, "red" if failed else "green", bold=True))
    else:
        emit([verdict.document() for verdict in verdicts], output, kind="TestReport")
    sys.exit(BAD_INPUT if any(verdict.bad_input for verdict in verdicts) else NO if failed else OK)


def _lines(verdict: ScenarioVerdict, verbose: bool) -> Iterator[str]:
    """The result of a scenario as text."""
    from wharfinger.cli.output import paint

    if verdict.skipped:
        yield f"{paint('SKIP', 'yellow')} {verdict.name}: {verdict.skipped}"
    elif verdict.ok and verbose:
        yield f"{paint('PASS', 'green')} {verdict.name} ({verdict.seconds:.1f} s)"
    elif not verdict.ok:
        yield f"{paint('FAIL', 'red', bold=True)} {verdict.name}"
        yield from (f"     {line}" for line in verdict.problems)


def _cluster(
    kubeconfig: str,
    context: str | None,
    config: str | None,
    patience: float | None,
    restart: str | None,
    webhook: str | None,
) -> Cluster:
    import shlex

    from wharfinger.cli.live_scenarios import Cluster
    from wharfinger.cli.options import read_configuration
    from wharfinger.client.kubeconfig import KubeconfigError, load_access
    from wharfinger.scenario.running.stage import POSITIVE

    configuration, _ = read_configuration(config)
    try:
        access = load_access(kubeconfig, context)
    except KubeconfigError as error:
        raise InputError(str(error)) from error
    patience = POSITIVE if patience is None else patience
    return Cluster(access, configuration, patience, shlex.split(restart or ""), webhook or "")
