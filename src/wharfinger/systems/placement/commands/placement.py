"""`wharf placement`: runs the hub's placement controllers as a separate process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wharfinger.cli.component import HealthEndpoint, Running, Turn, metrics_options, read_configuration, run_component
from wharfinger.cli.options import EXISTING_FILE, cluster_options, open_client


@click.command
@cluster_options
@click.option("--config", type=EXISTING_FILE, help="A WharfingerConfiguration file; only its placement block is used.")
@click.option(
    "--leader-elect/--no-leader-elect",
    default=True,
    show_default=True,
    help="Run only on the replica that holds the lease.",
)
@click.option("--leader-elect-namespace", default="kube-system", show_default=True, help="The namespace of the lease.")
@metrics_options
@click.option(
    "--debug-port", type=click.IntRange(0, 65535), help="Serve /debug/placements/ on this port; see the docs."
)
def command(kubeconfig: str | None, context: str | None, config: Path | None, **options: Any) -> None:
    """Run the placement controllers on a hub: decide Placements, and maintain clusters, cluster sets and bindings.

    \b
    Examples:
      wharf placement --kubeconfig hub.yaml
    """
    import asyncio
    import logging

    from wharfinger.client.loops import new_event_loop

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    configuration = read_configuration(config)
    client = open_client(kubeconfig, context, component="wharf-placement")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_run(client, configuration, **options))


async def _run(
    client: Any,
    configuration: Any,
    *,
    leader_elect: bool,
    leader_elect_namespace: str,
    endpoint: HealthEndpoint,
    debug_port: int | None,
) -> None:
    from prometheus_client import CollectorRegistry

    from wharfinger.api.kinds import registry
    from wharfinger.client.controller import run_controllers
    from wharfinger.client.events import EventRecorder
    from wharfinger.client.informer import InformerSet
    from wharfinger.client.interface import Client
    from wharfinger.client.timers import SystemClock
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.systems.placement.controllers import PlacementController, PlacementMetrics, placement_controllers
    from wharfinger.systems.placement.controllers.debug import DebugServer, PlacementDebug

    clock, metrics = SystemClock(), CollectorRegistry()
    measured = PlacementMetrics(metrics)

    async def control(writer: Client, informers: InformerSet, turn: Turn) -> None:
        recorder = EventRecorder(writer, "placement", clock)
        recorder.start()
        context = ControllerContext(writer, informers, recorder, registry(), clock, configuration)
        controllers = placement_controllers(context, measured)
        debug = None
        if debug_port is not None:
            scheduling = next(each for each in controllers if isinstance(each, PlacementController))
            debug = DebugServer(PlacementDebug(scheduling), writer, host=endpoint.host, port=debug_port)
            await debug.start()
        try:
            await run_controllers(controllers, informers, turn)
        finally:
            if debug is not None:
                await debug.stop()
            await recorder.stop()

    running = Running(leader_elect, endpoint, leader_elect_namespace)
    await run_component(client, "wharf-placement", control, clock=clock, metrics=metrics, running=running)
