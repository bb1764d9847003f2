"""`wharf scheduler`: the scheduler as a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from wharfinger.cli.component import HealthEndpoint, metrics_options
from wharfinger.cli.exit_status import InputError
from wharfinger.cli.options import EXISTING_FILE, cluster_options, open_client, scheduler_names_option

if TYPE_CHECKING:
    from wharfinger.api.kubernetes_version import KubernetesVersion
    from wharfinger.api.selectors import Requirements
    from wharfinger.scheduler.configuration import SchedulerConfiguration


@click.command
@cluster_options
@click.option(
    "--config",
    type=EXISTING_FILE,
    help="A KubeSchedulerConfiguration, or a WharfingerConfiguration with a scheduler block.",
)
@scheduler_names_option("Scheduler names to serve, separated by commas, if the configuration has no profiles.")
@click.option("--node-selector", default="", help="Schedule only onto nodes with these labels (as in `kubectl -l`).")
@click.option("--seed", type=int, default=0, show_default=True, help="Breaks ties between equally good nodes.")
@click.option("--events/--no-events", default=True, show_default=True, help="Whether to record events.")
@click.option(
    "--leader-elect/--no-leader-elect",
    default=None,
    help="Let only one of several replicas schedule.  [default: as --config says, else not]",
)
@metrics_options
def command(
    kubeconfig: str | None,
    context: str | None,
    config: Path | None,
    scheduler_names: str,
    node_selector: str,
    **options: Any,
) -> None:
    """Run the scheduler against an API server.

    \b
    Examples:
      wharf scheduler --kubeconfig scheduler.conf
      wharf scheduler --config scheduler.yaml --leader-elect --metrics-port 10259
    """
    import asyncio
    import logging

    from wharfinger.api.selectors import BadSelector, parse_label_selector
    from wharfinger.client.loops import new_event_loop

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    names = tuple(name.strip() for name in scheduler_names.split(",") if name.strip())
    try:
        nodes = parse_label_selector(node_selector)
    except BadSelector as error:
        raise click.BadParameter(str(error), param_hint="--node-selector") from error
    read = partial(read_configuration, config, names)
    configuration = read()
    for warning in configuration.warnings:
        click.echo(f"Warning: {warning}", err=True)
    if options["leader_elect"] is None and config is not None:
        options["leader_elect"] = configuration.leader_election.leader_elect
    kubeconfig = kubeconfig or configuration.client_connection.kubeconfig or None
    run = _run(kubeconfig, context, configuration, read, nodes, **options)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run)


def read_configuration(
    path: Path | None, names: tuple[str, ...], server: KubernetesVersion | None = None
) -> SchedulerConfiguration:
    """The scheduler's configuration from a file of either kind; an invalid one ends the command with all its errors. Unless
    the file names a version of Kubernetes, that of the server applies."""
    import yaml

    from wharfinger.api.configuration import KIND, BadConfiguration, load_configuration
    from wharfinger.scheduler import profiles
    from wharfinger.scheduler.configuration import BadSchedulerConfiguration

    try:
        document = (yaml.safe_load(path.read_text()) or {}) if path is not None else {}
        if not isinstance(document, dict):
            raise InputError(f"{path}: not a configuration document")
        ours = document.get("kind") == KIND
        settings = load_configuration(document if ours else {})
        if settings.kubernetes is None:
            settings = replace(settings, kubernetes=server)
        return profiles.load(settings.scheduler if ours else document, names, settings)
    except (BadSchedulerConfiguration, BadConfiguration) as error:
        lines = "\n".join(f"  {fault}" for fault in error.errors)
        raise InputError(f"{path}:\n{lines}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML: {error}") from error


async def _run(
    kubeconfig: str | None,
    context: str | None,
    configuration: SchedulerConfiguration,
    read: Callable[[KubernetesVersion], SchedulerConfiguration],
    nodes: Requirements,
    *,
    seed: int,
    events: bool,
    leader_elect: bool | None,
    endpoint: HealthEndpoint,
) -> None:
    from prometheus_client import CollectorRegistry

    from wharfinger.api.kinds import registry
    from wharfinger.cli.component import Turn, at_once, lead, run_until_stopped, serving_health
    from wharfinger.client.events import EventRecorder
    from wharfinger.client.interface import Client
    from wharfinger.client.server_version import version_to_follow
    from wharfinger.client.timers import SystemClock
    from wharfinger.scheduler.metrics import SchedulerMetrics
    from wharfinger.scheduler.scheduler import Scheduler, SchedulerOptions

    clock, metrics = SystemClock(), CollectorRegistry()
    measured = SchedulerMetrics(metrics)
    current: list[Scheduler] = []
    name = configuration.profiles[0].scheduler_name
    plain = open_client(kubeconfig, context, component=f"{name}-scheduler")

    async def schedule(client: Client, turn: Turn) -> None:
        # Asked each time: the server may have been upgraded meanwhile.
        followed = read(await version_to_follow(plain))
        recorder = EventRecorder(client, name, clock) if events else None
        if recorder is not None:
            recorder.start()
        scheduler = Scheduler(
            client,
            clock,
            followed,
            registry(),
            SchedulerOptions(seed=seed, nodes=nodes, owns_process=True),
            recorder=recorder,
            metrics=measured,
        )
        if recorder is not None:
            recorder.give_way(scheduler.is_behind)
        current[:] = [scheduler]
        try:
            await scheduler.run(turn)
        finally:
            if recorder is not None:
                await recorder.stop()

    async def work() -> None:
        if not leader_elect:
            await schedule(plain, at_once)
            return
        election = configuration.leader_election
        await lead(
            plain,
            election.resource_name,
            clock,
            schedule,
            namespace=election.resource_namespace,
            lease_duration=election.lease_duration,
            renew_deadline=election.renew_deadline,
            retry_period=election.retry_period,
        )

    def ready() -> str:
        return "" if current and current[0].ready else "the cluster is not loaded yet"

    try:
        await run_until_stopped(lambda: serving_health(plain, metrics, endpoint, ready, work))
    finally:
        await plain.close()
