"""`wharf migrate`: moves a pod to another node after reserving room there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from wharfinger.cli.completing import names_of, word_and_names
from wharfinger.cli.options import cluster_options, open_client

if TYPE_CHECKING:
    from wharfinger.client.http import HttpClient


@click.command
@click.argument(
    "words", metavar="pod [NAMESPACE/]NAME", nargs=-1, required=True, shell_complete=word_and_names("pod", "pods")
)
@cluster_options
@click.option("-n", "--namespace", default="", help="The namespace of the pod.  [default: the context's]")
@click.option(
    "--to",
    metavar="NODE",
    default="",
    shell_complete=names_of("nodes"),
    help="The target node.  [default: chosen by the scheduler]",
)
@click.option("--ttl", default="5m", show_default=True, help="How long the migration may take.")
@click.option("--directly", is_flag=True, help="Evict without reserving room first.")
@click.option("--force", is_flag=True, help="Migrate the pod even if no controller recreates it.")
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Whether to wait until the migration has ended."
)
def command(
    words: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    to: str,
    ttl: str,
    directly: bool,
    force: bool,
    wait: bool,
) -> None:
    """Move a pod to another node: reserve room there, evict the pod, and wait for the replacement.

    Exits with 0 if the replacement runs on the target node and with 1 if the migration failed. A pod that has not been
    evicted by then keeps running where it is.

    \b
    Examples:
      wharf migrate pod shop/web-0
      wharf migrate pod shop/web-0 --to node-7 --ttl 10m
    """
    from wharfinger.api.times import BadTime, parse_duration
    from wharfinger.systems.reservation.commands import reserving
    from wharfinger.systems.reservation.commands.creating import create_and_follow

    kind, target = words if len(words) == 2 else words[0].split("/", 1) if words[0].count("/") == 1 else ("", "")
    if len(words) > 2 or kind not in ("pod", "pods", "po") or not target:
        raise click.UsageError("specify the pod as `pod NAMESPACE/NAME`, or as `pod/NAME` with -n")
    space, _, name = target.rpartition("/")
    try:
        seconds = parse_duration(ttl) or 24 * 3600.0
    except BadTime as error:
        raise click.UsageError(str(error)) from error

    async def create(client: HttpClient) -> str:
        return await reserving.migrate(
            client,
            name,
            space or namespace or client.access.namespace,
            click.echo,
            to=to,
            ttl=ttl,
            directly=directly,
            force=force,
        )

    async def follow(client: HttpClient, made: str) -> bool:
        # The job times out by itself; wait slightly longer to report the reason.
        return await reserving.follow_job(client, made, click.echo, seconds + 30) if wait else True

    create_and_follow(partial(open_client, kubeconfig, context), create, follow, reserving.job_hint)
