"""`wharf status`: which components of `wharf up` run, and whether they are healthy."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.invocation import shown
from wharfinger.cli.options import data_dir_option, output_option

if TYPE_CHECKING:
    from wharfinger.cli.run_state import RunState
    from wharfinger.contributions import StatusPart


@click.command
@data_dir_option("The directory that `wharf up` was given.")
@output_option("text", "json", "yaml", default="text")
@click.pass_context
def command(ctx: click.Context, data_dir: Path, output: str) -> None:
    """Show what runs on a data directory, and whether it is healthy. Exit status: 0 only if everything is healthy.

    \b
    Examples:
      wharf status
      wharf status -o json | jq .components
    """
    from wharfinger.cli.output import emit

    directory = data_dir.resolve()
    report, lines = _report(directory)
    if output == "text":
        _print(report, lines)
    else:
        emit(report, output, kind="Status")
    ctx.exit(0 if report["healthy"] else 1)


def _report(directory: Path) -> tuple[dict[str, Any], list[str]]:
    """The report as data, and the lines of the systems for the one in text."""
    from wharfinger.cli.run_state import is_locked, read_run, seen_state

    state = read_run(directory)
    if state is None or not is_locked(directory):
        return {"running": False, "healthy": False, "dataDir": str(directory), "components": []}, []
    health, parts = _ask(state)
    components = [
        {
            "name": component.name,
            "state": seen_state(component),
            "pid": component.pid,
            "since": component.since,
            "restarts": component.restarts,
            "lastExit": component.last_exit,
            "log": component.log,
        }
        for component in state.components
    ]
    well = health == "ok" and all(component["state"] == "running" for component in components)
    report = {
        "running": True,
        "healthy": well,
        "dataDir": str(directory),
        "address": f"https://{state.address}",
        "kubeconfig": state.kubeconfig,
        "pid": state.pid,
        "since": state.started,
        "apiserver": health,
        "dashboard": _dashboard(directory),
        **{key: part.document for key, part in parts.items()},
        "components": components,
    }
    return report, [part.line for part in parts.values() if part.line]


def _dashboard(directory: Path) -> str:
    """The link that opens the dashboard and was not used yet; empty if it is not served."""
    try:
        return (directory / "dashboard-link").read_text().strip()
    except OSError:
        return ""


def _ask(state: RunState) -> tuple[str, dict[str, StatusPart]]:
    """What `/readyz` answers, or why it does not; and what each system tells, by its key."""
    import asyncio

    from wharfinger.api.errors import ApiError
    from wharfinger.cli.options import read_configuration
    from wharfinger.client.connect import connect
    from wharfinger.contributions import StatusPart
    from wharfinger.system import ordered_systems

    reports = [system.report() for system in ordered_systems()]
    parts = {report.status_key: StatusPart() for report in reports if report.status_key}

    async def ask() -> str:
        client = connect(state.kubeconfig)
        try:
            async with asyncio.timeout(5):
                health = (await client.fetch("/readyz")).decode()
                configuration, _ = read_configuration(state.config or None)
                for report in reports:
                    if part := await report.status(client, configuration):
                        parts[report.status_key] = part
                return health
        finally:
            await client.close()

    try:
        return asyncio.run(ask()), parts
    except (ApiError, OSError, ValueError, TimeoutError) as error:
        return str(error) or "no answer within 5 seconds", parts


def _print(report: dict[str, Any], lines: Iterable[str]) -> None:
    from wharfinger.api.times import human_duration
    from wharfinger.cli.output import table

    if not report["running"]:
        start = f"{shown('wharf')} up --data-dir {report['dataDir']}"
        click.echo(f"Nothing runs on {report['dataDir']}. Start it with `{start}`.")
        return
    now = time.time()
    click.echo(f"Wharfinger on {report['address']}, up {human_duration(now - report['since'])}")
    click.echo(f"  export KUBECONFIG={report['kubeconfig']}")
    click.echo(f"  API server: {report['apiserver']}")
    if report["dashboard"]:
        click.echo(f"  Dashboard: {report['dashboard']} (the link works once)")
    for line in lines:
        click.echo(f"  {line}")
    click.echo()
    rows = [
        (
            component["name"],
            component["state"],
            component["pid"] or "-",
            human_duration(now - component["since"]) if component["since"] else "-",
            component["restarts"],
            component["lastExit"] or "-",
        )
        for component in report["components"]
    ]
    click.echo(table(("component", "state", "pid", "age", "restarts", "last exit"), rows))
