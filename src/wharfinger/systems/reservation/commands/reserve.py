"""`wharf reserve`: reserves resources for future pods of a workload."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.completing import kinds_and_names
from wharfinger.cli.options import cluster_options, open_client

if TYPE_CHECKING:
    from wharfinger.client.http import HttpClient


@click.command
@click.argument(
    "workload", metavar="KIND/NAME", shell_complete=kinds_and_names("deployment", "statefulset", "replicaset", "job")
)
@cluster_options
@click.option("-n", "--namespace", default="", help="The namespace of the workload.  [default: the context's]")
@click.option("--replicas", type=click.IntRange(min=0), default=1, show_default=True, help="The number of pods.")
@click.option("--ttl", default="24h", show_default=True, help="How long the resources are reserved; 0 means forever.")
@click.option("--name", default="", help="The name of the ReservationSet.  [default: KIND.NAMESPACE.NAME]")
@click.option(
    "--pre-allocate", is_flag=True, help="Reserve on nodes without enough free resources and wait until they are freed."
)
@click.option("--policy", type=click.Choice(["Aligned", "Restricted"]), help="The allocate policy.")
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Whether to wait until all reservations are available."
)
@click.option("--timeout", default="5m", show_default=True, help="The maximum time to wait.")
def command(
    workload: str,
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    replicas: int,
    ttl: str,
    name: str,
    pre_allocate: bool,
    policy: str | None,
    wait: bool,
    timeout: str,
) -> None:
    """Reserve resources for future pods of a workload.

    Exits with 0 once all reservations are available, and with 1 on timeout.

    \b
    Examples:
      wharf reserve deployment/web --replicas 10 --ttl 2h
      wharf reserve statefulset/db -n data --pre-allocate --timeout 30m
    """
    from wharfinger.api.kinds import registry
    from wharfinger.api.times import BadTime, parse_duration
    from wharfinger.systems.reservation.commands import reserving
    from wharfinger.systems.reservation.commands.creating import create_and_follow

    kind_name, slash, target = workload.partition("/")
    kind = registry().find(kind_name)
    if not slash or not target or kind is None:
        raise click.UsageError("specify the workload as KIND/NAME, such as deployment/web")
    try:
        seconds = parse_duration(timeout)
        parse_duration(ttl)
    except BadTime as error:
        raise click.UsageError(str(error)) from error
    spec: dict[str, Any] = {"ttl": ttl, "allocatePolicy": policy, "preAllocation": pre_allocate or None}

    async def create(client: HttpClient) -> str:
        space = namespace or client.access.namespace
        return await reserving.reserve(
            client, kind.storage, target, space, click.echo, replicas=replicas, name=name, **spec
        )

    async def follow(client: HttpClient, made: str) -> bool:
        return await reserving.follow_set(client, made, click.echo, seconds) if wait else True

    create_and_follow(partial(open_client, kubeconfig, context), create, follow, reserving.set_hint)
