"""`wharf test`: runs every scenario under a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write the results as JUnit XML.")
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of every scenario.")
@click.option("-j", "--jobs", type=click.IntRange(1), help="Scenarios at a time.  [default: the number of cores]")
@click.option("-v", "--verbose", is_flag=True, help="Name scenarios that pass, too.")
def command(paths: tuple[str, ...], junit: Path | None, seed: int, jobs: int | None, verbose: bool) -> None:
    """Run the scenarios in these files and folders: unit tests for scheduling policies.

    Exits with 0, with 1 if an expectation failed, with 2 if a file is bad."""
    from wharfinger.cli.output import paint
    from wharfinger.cli.scenario_runs import Verdict, collect, junit_xml, run_all

    files = collect(paths)
    if not files:
        click.echo(
            "Error: there is no scenario here: no YAML or JSON file holds a document of kind Scenario.", err=True
        )
        sys.exit(2)
    verdicts: list[Verdict] = []
    for verdict in run_all(files, seed, jobs):
        verdicts.append(verdict)
        if verdict.ok and verbose:
            click.echo(f"{paint('PASS', 'green')} {verdict.name} ({verdict.seconds:.1f} s)")
        elif not verdict.ok:
            click.echo(f"{paint('FAIL', 'red', bold=True)} {verdict.name}")
            for line in verdict.problems:
                click.echo(f"     {line}")
    if junit is not None:
        junit.write_text(junit_xml(verdicts))
    failed = sum(not verdict.ok for verdict in verdicts)
    summary = f"{len(verdicts) - failed} passed, {failed} failed"
    click.echo(paint(summary, "red" if failed else "green", bold=True))
    sys.exit(2 if any(verdict.bad_input for verdict in verdicts) else 1 if failed else 0)
