"""`wharf up`: the whole control plane on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from wharfinger.cli.supervisor import Plan, Supervisor


@click.command
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=".wharf",
    show_default=True,
    envvar="WHARF_DATA_DIR",
    help="Where everything is kept: objects, keys, tokens, logs, the kubeconfig.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The port of the API server; 0 takes any free one.  [default: 6443]"
)
@click.option(
    "--nodes", type=click.IntRange(0), default=3, show_default=True, help="How many simulated nodes there are."
)
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A WharfingerConfiguration file."
)
@click.option("--sample", is_flag=True, help="Load a small sample and show what was decided.")
def command(data_dir: Path, port: int | None, nodes: int, config: Path | None, sample: bool) -> None:
    """Run the control plane on this machine: API server, controllers, scheduler and simulated nodes."""
    import asyncio

    from wharfinger.cli.live import read_configuration
    from wharfinger.cli.run_state import AlreadyRuns, lock
    from wharfinger.cli.supervisor import Plan, StartFailed

    directory = data_dir.resolve()
    read_configuration(config)  # a faulty one is refused before anything starts
    plan = Plan(
        directory,
        6443 if port is None else port,
        nodes,
        config.resolve() if config is not None else None,
        free_port=port is None,
    )
    try:
        with lock(directory):
            asyncio.run(_run(plan, sample))
    except (AlreadyRuns, StartFailed) as error:
        raise click.ClickException(str(error)) from error


async def _run(plan: Plan, sample: bool) -> None:
    from wharfinger.cli.supervisor import Supervisor

    supervisor = Supervisor(plan, click.echo)
    await supervisor.start()
    _greet(supervisor, plan)
    if sample:
        from wharfinger.cli.sample import load_sample

        await load_sample(Path(supervisor.state.kubeconfig), click.echo)
    await supervisor.run()
    click.echo(f"Stopped. `wharf up --data-dir {plan.data_dir}` finds all data again.")


def _greet(supervisor: Supervisor, plan: Plan) -> None:
    state = supervisor.state
    names = [component.name for component in state.components]
    running = ", ".join(names) + (f" ({plan.nodes} simulated nodes)" if "nodes" in names else "")
    lines = [
        f"Wharfinger is up on https://{state.address}",
        "",
        f"  export KUBECONFIG={state.kubeconfig}",
        "",
        f"Running: {running}. Data and logs: {plan.data_dir}",
        "",
        "Try next, in another terminal:",
    ]
    if shutil.which("kubectl"):
        lines += [
            "  kubectl get nodes",
            "  kubectl create deployment web --image=nginx --replicas=3",
            "  kubectl get pods -o wide",
        ]
    else:
        lines.append("  (install kubectl, or use any other Kubernetes client with this kubeconfig)")
    lines += [
        f"  wharf status --data-dir {plan.data_dir}",
        "",
        "Ctrl-C stops everything; starting again finds all data.",
        "",
    ]
    click.echo("\n".join(lines))
