"""`wharf simulate`: what would happen, without a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wharfinger.cli.exit_status import NO, OK
from wharfinger.cli.options import EXISTING_FILE, output_option, paths_option, strict_option

if TYPE_CHECKING:
    from wharfinger.simulate.timeline import Happening


@click.command
@paths_option("-f", "--filename", "paths", required=True, help="A file, a folder, or - for standard input.")
@click.option("--for", "duration", metavar="DURATION", help="Let this much virtual time pass, such as 2h.")
@click.option("--until-idle", is_flag=True, help="Run until idle (the default without --for).")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="The same seed gives the same output, byte for byte."
)
@click.option("--as", "user", default="", help="The user who sends the requests. Default: the administrator.")
@click.option(
    "--config",
    type=EXISTING_FILE,
    help="A KubeSchedulerConfiguration or WharfingerConfiguration file.",
)
@click.option("--timeline", is_flag=True, help="Tell what happens while it happens, before the outcome.")
@click.option("-v", "--all", "everything", is_flag=True, help="Show every row of every section.")
@strict_option
@output_option("table", "yaml", "json")
def command(
    paths: tuple[str, ...],
    duration: str | None,
    until_idle: bool,
    seed: int,
    user: str,
    config: Path | None,
    timeline: bool,
    everything: bool,
    strict: bool,
    output: str,
) -> None:
    """Apply manifests to a simulated control plane and show the outcome.

    Exit status: 0 success, 1 an expectation of a scenario failed, 2 invalid input.

    \b
    Examples:
      wharf simulate -f manifests/ -f pods.yaml
      wharf simulate -f scenario.yaml --for 2h -o json
      wharf simulate -f scenarios/reservation/quota.yaml --timeline
      wharf snapshot -o cluster.json.gz && wharf simulate -f cluster.json.gz -f policy.yaml
    """
    from wharfinger.cli.progress import progress
    from wharfinger.cli.simulating import bad_input, progressing, read, refuse_nothing, seconds
    from wharfinger.cli.timeline_text import timeline_teller
    from wharfinger.simulate.simulation import SimulationOptions, simulate

    if duration is not None and until_idle:
        raise click.UsageError(
            "--for and --until-idle exclude each other: one lets a given time pass, the other stops when idle"
        )
    with bad_input():
        inputs = read(paths, config, strict=strict)
        refuse_nothing(inputs, paths)
        length = None if duration is None else seconds(duration, "--for")
    happened: list[Happening] = []
    tell = None if not timeline else happened.append if output != "table" else timeline_teller(inputs.start())
    with bad_input(), progressing(), progress() as told:
        if tell is not None and output == "table":
            told = None  # the story is the progress
        report = simulate(inputs, SimulationOptions(seed, user, length, told, once=True, timeline=tell))
    if happened:
        report["timeline"] = [each.document() for each in happened]
    if output == "table":
        from wharfinger.cli.report_text import render

        if timeline:
            click.echo()
        click.echo(f"Simulated until {report['time']}.\n\n{render(report, everything=everything)}".rstrip())
    else:
        from wharfinger.cli.output import emit

        emit(report, output)
    sys.exit(OK if all(each["ok"] for each in report["expectations"]) else NO)
