"""`wharf nodes`: simulated nodes, and the kubelets that run pods on them in name only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wharfinger.cli.options import cluster_options, open_client

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.client.interface import Client
    from wharfinger.node.samples import Sample


@click.command
@cluster_options
@click.option(
    "--count", type=click.IntRange(0), help="How many sample nodes there should be; missing ones are created."
)
@click.option("--cpu", default="8", show_default=True, help="Cores of each sample node.")
@click.option("--memory", default="32Gi", show_default=True, help="Memory of each sample node.")
@click.option("--pods", type=click.IntRange(1), default=110, show_default=True, help="Pods each sample node takes.")
@click.option(
    "--zones", default="zone-a,zone-b,zone-c", show_default=True, help="Zones that sample nodes take turns in."
)
@click.option("--prefix", default="node", show_default=True, help="What the names of sample nodes begin with.")
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of every sample node; may be repeated."
)
@click.option(
    "--resource", "resources", multiple=True, metavar="NAME=QUANTITY", help="Further capacity; may be repeated."
)
@click.option("--taint", "taints", multiple=True, metavar="KEY[=VALUE]:EFFECT", help="A taint; may be repeated.")
@click.option("--all", "everything", is_flag=True, help="Simulate every node, not only those labelled as simulated.")
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
    count: int | None,
    cpu: str,
    memory: str,
    pods: int,
    zones: str,
    prefix: str,
    labels: Sequence[str],
    resources: Sequence[str],
    taints: Sequence[str],
    everything: bool,
    config: Path | None,
    leader_elect: bool,
    metrics_port: int | None,
    metrics_host: str,
) -> None:
    """Run simulated nodes against an API server: pods bound to them start, run and end as their annotations say."""
    import asyncio
    import logging

    from wharfinger.api.quantity import BadQuantity, parse_nano
    from wharfinger.cli.live import read_configuration
    from wharfinger.node.samples import Sample

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for option, text in (("--cpu", cpu), ("--memory", memory)):
        try:
            parse_nano(text)
        except BadQuantity as error:
            raise click.BadParameter(str(error), param_hint=option) from error
    sample = Sample(
        cpu=cpu,
        memory=memory,
        pods=pods,
        zones=tuple(zone for zone in zones.split(",") if zone),
        prefix=prefix,
        labels=_pairs(labels, "--label"),
        resources=_pairs(resources, "--resource"),
        taints=[_taint(text) for text in taints],
    )
    configuration = read_configuration(config)
    number = configuration.nodes.count if count is None else count
    asyncio.run(
        _run(kubeconfig, context, configuration, sample, number, everything, leader_elect, metrics_port, metrics_host)
    )


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE", param_hint=option)
        found[key] = value
    return found


def _taint(text: str) -> dict[str, str]:
    body, colon, effect = text.rpartition(":")
    key, _, value = body.partition("=")
    if not colon or not key or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise click.BadParameter(f"{text!r} is not of the form KEY[=VALUE]:EFFECT", param_hint="--taint")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


async def _run(
    kubeconfig: str | None,
    context: str | None,
    configuration: Configuration,
    sample: Sample,
    count: int,
    everything: bool,
    leader_elect: bool,
    metrics_port: int | None,
    metrics_host: str,
) -> None:
    from wharfinger.api.metrics import Metrics
    from wharfinger.cli.live import lead, run_until_stopped, serving_health
    from wharfinger.client.controller import run_controllers
    from wharfinger.client.informer import InformerSet
    from wharfinger.client.metrics import ControllerMetrics
    from wharfinger.client.timers import SystemClock
    from wharfinger.node.heartbeats import Heartbeats
    from wharfinger.node.kubelet import Kubelets, Managed

    clock, metrics = SystemClock(), Metrics()
    observer = ControllerMetrics(metrics)
    plain = open_client(kubeconfig, context, component="wharfinger-nodes")
    settings = configuration.nodes
    managed = Managed(everything)
    current: list[InformerSet] = []

    async def simulate(client: Client) -> None:
        await _create(client, sample, count)
        informers = InformerSet(client)
        current[:] = [informers]
        kubelets = Kubelets(
            client, informers, clock, startup_seconds=settings.startup_seconds, managed=managed, observer=observer
        )
        heartbeats = Heartbeats(
            client, informers, clock, lease_seconds=settings.lease_seconds, managed=managed, observer=observer
        )
        await run_controllers([kubelets, heartbeats], informers)

    async def work() -> None:
        await (lead(plain, "wharfinger-nodes", clock, simulate) if leader_elect else simulate(plain))

    def ready() -> str:
        return "" if current and current[0].synced else "the cluster is not loaded yet"

    try:
        await run_until_stopped(lambda: serving_health(metrics, metrics_host, metrics_port, ready, work))
    finally:
        await plain.close()


async def _create(client: Client, sample: Sample, count: int) -> None:
    """Creates the sample nodes that are missing; a real API server takes a node's status only in a second request."""
    from wharfinger.api.errors import AlreadyExists
    from wharfinger.api.kinds.builtin import NODES
    from wharfinger.node.samples import sample_node

    created = 0
    for index in range(count):
        document = sample_node(sample, index)
        try:
            made = await client.create(NODES, document)
        except AlreadyExists:
            continue
        created += 1
        if not (made.get("status") or {}).get("allocatable"):
            await client.patch(
                NODES, document["metadata"]["name"], {"status": document["status"]}, subresource="status"
            )
    if count:
        click.echo(f"{count} sample nodes, {created} of them new.")
