"""`wharf controllers`: the built-in controllers and those of the five systems, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wharfinger.cli.options import cluster_options, open_client

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration


@click.command
@cluster_options
@click.option(
    "--controllers",
    "names",
    default="*",
    show_default=True,
    help="Which to run, separated by commas: `*` is all, `-name` takes one away.",
)
@click.option("--list", "only_list", is_flag=True, help="Print the names of all controllers and end.")
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A WharfingerConfiguration file."
)
@click.option("--leader-elect", is_flag=True, help="Let only one of several copies work.")
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), help="Serve /metrics, /healthz and /readyz on this port."
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="The address for --metrics-port.")
def command(
    kubeconfig: str | None,
    context: str | None,
    names: str,
    only_list: bool,
    config: Path | None,
    leader_elect: bool,
    metrics_port: int | None,
    metrics_host: str,
) -> None:
    """Run the controllers against an API server.

    On a cluster that has a kube-controller-manager, choose only those that it does not run.
    """
    import asyncio
    import logging

    from wharfinger.cli.live import read_configuration
    from wharfinger.controllers.registry import FACTORIES, UnknownController, chosen

    if only_list:
        click.echo("\n".join(FACTORIES))
        return
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        wanted = chosen(names.split(","))
    except UnknownController as error:
        raise click.BadParameter(str(error), param_hint="--controllers") from error
    configuration = read_configuration(config)
    work = _run(kubeconfig, context, wanted, configuration, leader_elect, metrics_port, metrics_host)
    asyncio.run(work)


async def _run(
    kubeconfig: str | None,
    context: str | None,
    names: list[str],
    configuration: Configuration,
    leader_elect: bool,
    metrics_port: int | None,
    metrics_host: str,
) -> None:
    from wharfinger.api.kinds import registry
    from wharfinger.api.metrics import Metrics
    from wharfinger.cli.live import lead, run_until_stopped, serving_health
    from wharfinger.client.controller import run_controllers
    from wharfinger.client.events import EventRecorder
    from wharfinger.client.informer import InformerSet
    from wharfinger.client.interface import Client
    from wharfinger.client.metrics import ControllerMetrics
    from wharfinger.client.timers import SystemClock
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.controllers.registry import make_controllers

    clock, metrics = SystemClock(), Metrics()
    observer = ControllerMetrics(metrics)
    plain = open_client(kubeconfig, context, component="wharfinger-controllers")
    current: list[InformerSet] = []

    async def control(client: Client) -> None:
        informers = InformerSet(client)
        current[:] = [informers]
        recorder = EventRecorder(client, "wharfinger-controllers", clock)
        recorder.start()
        made = ControllerContext(
            client, informers, recorder, registry(), clock=clock, configuration=configuration, observer=observer
        )
        try:
            await run_controllers(make_controllers(made, names), informers)
        finally:
            await recorder.stop()

    async def work() -> None:
        await (lead(plain, "wharfinger-controllers", clock, control) if leader_elect else control(plain))

    def ready() -> str:
        return "" if current and current[0].synced else "the cluster is not loaded yet"

    try:
        await run_until_stopped(lambda: serving_health(metrics, metrics_host, metrics_port, ready, work))
    finally:
        await plain.close()
