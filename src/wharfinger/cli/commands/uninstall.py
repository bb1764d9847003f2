"""`wharf uninstall`: removes an installation, after listing what would be lost."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from wharfinger.cli.options import cluster_options

if TYPE_CHECKING:
    from wharfinger.install.cluster import Loss


@click.command
@cluster_options
@click.option(
    "--components", default="all", show_default=True, metavar="NAMES", help="Components whose definitions to remove."
)
@click.option("--namespace", default="wharfinger-system", show_default=True, help="Namespace of Wharfinger's pods.")
@click.option("--keep-definitions", is_flag=True, help="Keep the definitions, and so all objects of users.")
@click.option("--yes", is_flag=True, help="Delete, even if objects of users are deleted, too.")
def command(
    kubeconfig: str | None, context: str | None, components: str, namespace: str, keep_definitions: bool, yes: bool
) -> None:
    """Remove Wharfinger from a cluster.

    Without --yes, it lists what would be deleted, and does nothing if there are objects of users among it.
    Definitions that others installed and namespaces that others created stay. What Wharfinger wrote on objects of others
    (cordons of repacks, deletion costs of pods, reserved amounts of quotas) is removed.

    \b
    Examples:
      wharf uninstall
      wharf uninstall --yes --keep-definitions
    """
    import asyncio

    from wharfinger.api.kinds import registry
    from wharfinger.cli.options import open_client
    from wharfinger.install.cluster import losses
    from wharfinger.install.components import UnknownComponent, chosen
    from wharfinger.install.removal import remove

    try:
        wanted = chosen(components.split(","))
    except UnknownComponent as error:
        raise click.BadParameter(str(error), param_hint="--components") from error

    async def work() -> int:
        client = open_client(kubeconfig, context, component="wharf-uninstall")
        try:
            lost = [] if keep_definitions else await losses(client, wanted, registry())
            _tell(lost)
            if any(loss.objects for loss in lost) and not yes:
                click.echo("Nothing was done. Say --yes to delete them, or --keep-definitions to keep them.", err=True)
                return 1
            async for line in remove(client, namespace, [loss.definition for loss in lost]):
                click.echo(line)
            return 0
        finally:
            await client.close()

    sys.exit(asyncio.run(work()))


def _tell(lost: list[Loss]) -> None:
    from wharfinger.api.wording import counted, listed

    for loss in lost:
        if loss.objects:
            lost_objects = f"{counted(len(loss.objects), 'object')} would be lost"
            click.echo(f"{loss.definition}: {lost_objects}: {listed(loss.objects, 10)}")
