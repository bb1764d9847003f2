"""`wharf up`: the whole control plane on this machine."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.exit_status import INTERRUPTED
from wharfinger.cli.invocation import folder_to_add, shown
from wharfinger.cli.options import EXISTING_FILE, data_dir_option, read_audit_policy, server_arguments, server_options

if TYPE_CHECKING:
    from wharfinger.cli.supervisor import ControlPlaneOptions, Supervisor

DEFAULT_NODES = 3
AUDIT_LOG = "audit.log"  # in the folder of the logs
_AUDIT_DEFAULTS = {"audit_log_maxsize": 10, "audit_log_maxbackup": 3}  # at most 40 MB


@click.command
@data_dir_option("Where everything is kept: objects, keys, tokens, logs, the kubeconfig.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port of the API server; 0 picks a free one.  [default: 6443]"
)
@click.option(
    "--nodes",
    type=click.IntRange(0),
    help="How many simulated nodes there are: missing ones are created, those beyond are deleted.  "
    f"[default: as many as the last time; {DEFAULT_NODES} at first]",
)
@click.option("--config", type=EXISTING_FILE, help="A WharfingerConfiguration file.")
@click.option("--sample", is_flag=True, help="Load a small sample and show what was decided.")
@click.option("--dashboard/--no-dashboard", default=True, help="Whether to serve the dashboard.  [default: yes]")
@server_options
def command(
    data_dir: Path,
    port: int | None,
    nodes: int | None,
    config: Path | None,
    sample: bool,
    dashboard: bool,
    **options: Any,
) -> None:
    """Run the control plane on this machine: API server, controllers, scheduler, simulated nodes and the dashboard.

    \b
    Examples:
      wharf up
      wharf up --nodes 50 --data-dir /tmp/big --port 0

    The audit log is DATA_DIR/logs/audit.log unless --audit-log-path says otherwise: four files of 10 MB at most.
    """
    import asyncio

    from wharfinger.cli.component import read_configuration
    from wharfinger.cli.run_state import AlreadyRuns, lock, read_run
    from wharfinger.cli.supervisor import ControlPlaneOptions, StartFailed, StartInterrupted

    directory = data_dir.resolve()
    configured = read_configuration(config).nodes.count  # an invalid file is reported before anything starts
    read_audit_policy(options["audit_policy_file"])  # so is an invalid policy
    options["audit_log_path"] = options["audit_log_path"] or str(directory / "logs" / AUDIT_LOG)
    for name, value in _AUDIT_DEFAULTS.items():
        options[name] = value if options[name] is None else options[name]
    if options["audit_policy_file"] is not None:
        options["audit_policy_file"] = options["audit_policy_file"].resolve()
    if nodes is None:
        last = read_run(directory)
        nodes = configured or (DEFAULT_NODES if last is None else last.nodes)
    plan = ControlPlaneOptions(
        directory,
        6443 if port is None else port,
        nodes,
        config.resolve() if config is not None else None,
        free_port=port is None,
        server_arguments=server_arguments(options),
        dashboard=dashboard,
    )
    try:
        with lock(directory):
            asyncio.run(_run(plan, sample))
    except StartInterrupted:
        sys.exit(INTERRUPTED)
    except (AlreadyRuns, StartFailed) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot use {directory}: {error.strerror or error}") from error


async def _run(plan: ControlPlaneOptions, sample: bool) -> None:
    from wharfinger.cli.supervisor import Supervisor

    supervisor = Supervisor(plan, click.echo)
    await supervisor.start()
    _greet(supervisor, plan)
    if sample:
        from wharfinger.cli.sample import load_sample

        await load_sample(Path(supervisor.state.kubeconfig), click.echo)
    if link := await supervisor.dashboard_link():
        click.echo(_link_text(link))
    await supervisor.run()
    click.echo(f"Stopped. `{shown('wharf')} up --data-dir {plan.data_dir}` finds all data again.")


def _link_text(link: str) -> str:
    from wharfinger.dashboard.application import is_built

    lines = [f"Dashboard (the link works once; `{shown('wharf')} status` shows the next one):", f"  {link}"]
    if not is_built():
        lines.append("  The page itself was not built: `make web` builds it. The endpoints under /api work.")
    return "\n".join([*lines, ""])


def _greet(supervisor: Supervisor, plan: ControlPlaneOptions) -> None:
    state = supervisor.state
    names = [component.name for component in state.components]
    running = ", ".join(names) + (f" ({plan.nodes} simulated nodes)" if "nodes" in names else "")
    lines = [
        f"Wharfinger is up on https://{state.address}",
        f"Running: {running}. Data and logs: {plan.data_dir}",
        "",
        "Try next, in another terminal:",
        f"  export KUBECONFIG={state.kubeconfig}",
    ]
    if folder := folder_to_add():
        lines.append(f"  export PATH={folder}:$PATH")
    if shutil.which("kubectl"):
        lines += [
            "  kubectl get nodes",
            "  kubectl create deployment web --image=nginx --replicas=3",
            "  kubectl get pods -o wide",
        ]
    lines.append(f"  wharf status --data-dir {plan.data_dir}")
    if not shutil.which("kubectl"):
        lines += ["", "kubectl is not on the PATH; it works with this kubeconfig, as does any other Kubernetes client."]
    click.echo("\n".join([*lines, "", "Ctrl-C stops everything; starting again finds all data.", ""]))
