"""`wharf status`: what of `wharf up` runs, where, and whether it is well."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.invocation import shown
from wharfinger.cli.options import data_dir_option, output_option

if TYPE_CHECKING:
    from wharfinger.cli.run_state import RunState


@click.command
@data_dir_option("The directory that `wharf up` was given.")
@output_option("text", "json", "yaml", default="text")
@click.pass_context
def command(ctx: click.Context, data_dir: Path, output: str) -> None:
    """Say what runs on a data directory, where, and whether it is well. The exit code is 0 only if all is well.

    \b
    Examples:
      wharf status
      wharf status -o json | jq .components
    """
    from wharfinger.cli.output import emit

    directory = data_dir.resolve()
    report = _report(directory)
    if output == "text":
        _print(report)
    else:
        emit(report, output)
    ctx.exit(0 if report["healthy"] else 1)


def _report(directory: Path) -> dict[str, Any]:
    from wharfinger.cli.run_state import is_locked, read_run, seen_state

    state = read_run(directory)
    if state is None or not is_locked(directory):
        return {"running": False, "healthy": False, "dataDir": str(directory), "components": []}
    health, policies = _ask(state)
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
    return {
        "running": True,
        "healthy": well,
        "dataDir": str(directory),
        "address": f"https://{state.address}",
        "kubeconfig": state.kubeconfig,
        "pid": state.pid,
        "since": state.started,
        "apiserver": health,
        "schedulingPolicies": policies,
        "components": components,
    }


def _ask(state: RunState) -> tuple[str, dict[str, Any]]:
    """What `/readyz` says, or why it could not be asked; and whether scheduling policies are enforced."""
    import asyncio

    from wharfinger.api.errors import ApiError
    from wharfinger.client.connect import connect
    from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES

    async def ask() -> tuple[str, dict[str, Any]]:
        client = connect(state.kubeconfig)
        try:
            async with asyncio.timeout(5):
                health = (await client.fetch("/readyz")).decode()
                return health, _policies(state, list((await client.list(SCHEDULING_POLICIES)).items))
        finally:
            await client.close()

    try:
        return asyncio.run(ask())
    except (ApiError, OSError, ValueError, TimeoutError) as error:
        return str(error) or "no answer within 5 seconds", {}


def _policies(state: RunState, policies: list[dict[str, Any]]) -> dict[str, Any]:
    from wharfinger.cli.options import read_configuration
    from wharfinger.systems.scheduling_policy.rules.shipped import switches_on
    from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings

    mode = read_configuration(state.config or None)[0].of(SchedulingPolicySettings).mode
    own = sorted(policy["metadata"]["name"] for policy in policies if switches_on(policy))
    return {"mode": mode, "enforced": mode == "enforce" or (mode == "auto" and bool(own)), "own": own}


def _print(report: dict[str, Any]) -> None:
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
    if policies := report["schedulingPolicies"]:
        because = (
            f", since there is {', '.join(policies['own'])}" if policies["mode"] == "auto" and policies["own"] else ""
        )
        enforced = "enforced" if policies["enforced"] else "not enforced"
        click.echo(f"  scheduling policies: {enforced} (mode {policies['mode']}{because})")
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
