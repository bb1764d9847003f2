"""`wharf device-agent`: publishes and allocates a node's devices in place of the kubelet's device manager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from wharfinger.cli.options import FOLDER, F, cluster_options, open_client


def _folder_option(name: str, default: str, help: str) -> Callable[[F], F]:
    return click.option(name, type=FOLDER, default=default, show_default=True, help=help)


@click.command
@cluster_options
@click.option("--node", required=True, envvar="NODE_NAME", help="The name of this node. [env: NODE_NAME]")
@_folder_option(
    "--plugin-dir",
    "/var/lib/kubelet/device-plugins",
    "Directory of the registration socket and of the device plugin sockets.",
)
@click.option(
    "--publish",
    type=click.Choice(("auto", "node", "object")),
    default="auto",
    show_default=True,
    help="Where to publish devices: in Node status, in a NodeComputeResources object, or in whichever is supported.",
)
@click.option(
    "--driver",
    default="",
    metavar="NAME",
    help="Be a DRA driver of this name: publish ResourceSlices, and prepare devices when the kubelet asks.",
)
@_folder_option(
    "--kubelet-dir", "/var/lib/kubelet", "With --driver: the kubelet's root directory, where drivers register."
)
@_folder_option(
    "--cdi-dir", "/var/run/cdi", "With --driver: directory of CDI files, which the container runtime reads."
)
def command(
    kubeconfig: str | None,
    context: str | None,
    node: str,
    plugin_dir: Path,
    publish: Any,
    driver: str,
    kubelet_dir: Path,
    cdi_dir: Path,
) -> None:
    """Register device plugins (API v1beta1), publish their devices, and allocate the devices that the scheduler recorded.

    It replaces the kubelet's device manager: do not run both on the same directory. With --driver, it makes a DRA driver
    of the device plugins, for an unmodified kubelet.

    \b
    Examples:
      wharf device-agent --node node-1 --plugin-dir /tmp/plugins
      wharf device-agent --node node-1 --plugin-dir /tmp/plugins --driver gpu.example.com
    """
    import asyncio
    import logging

    from wharfinger.api.names import dns_subdomain
    from wharfinger.cli.component import run_until_stopped
    from wharfinger.client.controller import run_controllers
    from wharfinger.client.informer import InformerSet
    from wharfinger.client.timers import SystemClock
    from wharfinger.systems.resource_class.device_agent.agent import DeviceAgent
    from wharfinger.systems.resource_class.device_agent.dra_driver import DraDriver

    if driver and (faults := dns_subdomain(driver)):
        raise click.BadParameter("; ".join(faults), param_hint="--driver")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    async def run() -> None:
        client = open_client(kubeconfig, context)
        informers = InformerSet(client)
        agent: DeviceAgent | DraDriver
        if driver:
            agent = DraDriver(client, informers, node, driver, plugins=plugin_dir, kubelet=kubelet_dir, cdi=cdi_dir)
        else:
            agent = DeviceAgent(client, informers, SystemClock(), node, plugin_dir, publish=publish)
        try:
            await run_controllers([agent], informers)
        finally:
            await client.close()

    asyncio.run(run_until_stopped(run))
