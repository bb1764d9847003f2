"""`wharf nodes`: simulated nodes with simulated kubelets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wharfinger.api.taints import EFFECTS
from wharfinger.cli.component import Running, Turn, read_configuration, run_component, running_options
from wharfinger.cli.options import cluster_options, open_client

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.client.http import HttpClient
    from wharfinger.client.interface import Client
    from wharfinger.node.samples import NodeSample


@click.command
@cluster_options
@click.option(
    "--count",
    type=click.IntRange(0),
    help="Number of sample nodes. Missing ones are created, surplus ones deleted.",
)
@click.option("--cpu", default="8", show_default=True, help="CPU of each sample node.")
@click.option("--memory", default="32Gi", show_default=True, help="Memory of each sample node.")
@click.option(
    "--pods", type=click.IntRange(1), default=110, show_default=True, help="Maximum number of pods on each sample node."
)
@click.option(
    "--zones", default="zone-a,zone-b,zone-c", show_default=True, help="Zones over which sample nodes are distributed."
)
@click.option("--prefix", default="node", show_default=True, help="Name prefix of sample nodes.")
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label of every sample node. Can be repeated."
)
@click.option(
    "--resource", "resources", multiple=True, metavar="NAME=QUANTITY", help="Additional capacity. Can be repeated."
)
@click.option(
    "--taint",
    "taints",
    multiple=True,
    metavar="KEY[=VALUE]:EFFECT",
    help="Taint of every sample node. Can be repeated.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help='Simulate every node that is not labelled `wharfinger.dev/simulated: "false"`.',
)
@running_options
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
    running: Running,
) -> None:
    """Run simulated nodes against an API server: pods on them start, run and end as their annotations say.

    \b
    Examples:
      wharf nodes --count 100 --cpu 16 --memory 64Gi --zones east,west --label pool=blue
    """
    import asyncio
    import logging

    from wharfinger.api.quantity import BadQuantity, parse_nano
    from wharfinger.node.samples import NodeSample

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for option, text in (("--cpu", cpu), ("--memory", memory)):
        try:
            parse_nano(text)
        except BadQuantity as error:
            raise click.BadParameter(str(error), param_hint=option) from error
    sample = NodeSample(
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
    number = configuration.nodes.count or None if count is None else count
    client = open_client(kubeconfig, context, component="wharfinger-nodes")
    asyncio.run(_run(client, configuration, sample, number, everything, running))


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
    if not colon or not key or effect not in EFFECTS:
        raise click.BadParameter(f"{text!r} is not of the form KEY[=VALUE]:EFFECT", param_hint="--taint")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


async def _run(
    client: HttpClient,
    configuration: Configuration,
    sample: NodeSample,
    count: int | None,
    everything: bool,
    running: Running,
) -> None:
    from prometheus_client import CollectorRegistry

    from wharfinger.client.controller import run_controllers
    from wharfinger.client.informer import InformerSet
    from wharfinger.client.metrics import ControllerMetrics
    from wharfinger.client.timers import SystemClock
    from wharfinger.node.heartbeats import Heartbeats
    from wharfinger.node.kubelet import Kubelets, ManagedNodes

    clock, metrics = SystemClock(), CollectorRegistry()
    observer = ControllerMetrics(metrics)
    settings = configuration.nodes
    managed = ManagedNodes(everything)

    async def simulate(writer: Client, informers: InformerSet, turn: Turn) -> None:
        await turn()
        if count is not None:
            await _make_so_many(writer, sample, count)
        kubelets = Kubelets(
            writer, informers, clock, startup_seconds=settings.startup_seconds, managed=managed, observer=observer
        )
        heartbeats = Heartbeats(
            writer, informers, clock, lease_seconds=settings.lease_seconds, managed=managed, observer=observer
        )
        await run_controllers([kubelets, heartbeats], informers)

    await run_component(client, "wharfinger-nodes", simulate, clock=clock, metrics=metrics, running=running)


async def _make_so_many(client: Client, sample: NodeSample, count: int) -> None:
    """Creates missing sample nodes and deletes surplus ones; other nodes are left alone.

    A real API server accepts the status of a node only in a second request.
    """
    from wharfinger.api.errors import AlreadyExists, NotFound
    from wharfinger.api.kinds.builtin import NODES
    from wharfinger.node.annotations import SAMPLE
    from wharfinger.node.samples import sample_node, surplus

    created = deleted = 0
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
    for name in surplus(sample, count, (await client.list(NODES, label_selector=f"{SAMPLE}={sample.prefix}")).items):
        try:
            await client.delete(NODES, name)
        except NotFound:
            continue
        deleted += 1
    click.echo(f"{count} sample nodes, {created} of them new; {deleted} deleted.")
