"""`wharf plan`: what a change would do to a cluster, before it is made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from wharfinger.cli.options import cluster_options, open_client, output_option

if TYPE_CHECKING:
    from wharfinger.simulate.inputs import Inputs
    from wharfinger.simulate.planning import Plan


@click.command
@click.option(
    "-f",
    "--filename",
    "paths",
    multiple=True,
    required=True,
    type=click.Path(),
    metavar="CHANGE",
    help="The change: files, folders, or -.",
)
@click.option(
    "--cluster",
    "snapshots",
    multiple=True,
    type=click.Path(),
    metavar="SNAPSHOT",
    help="Files or folders with the cluster's state, instead of a live cluster.",
)
@cluster_options
@click.option("--seed", type=int, default=0, show_default=True, help="Settles ties between equally good nodes.")
@click.option("--as", "user", default="", help="Who makes the change. Default: the administrator.")
@output_option("table", "json", "yaml")
def command(
    paths: tuple[str, ...],
    snapshots: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    seed: int,
    user: str,
    output: str,
) -> None:
    """Show what a change would do: pods that would start, wait, move or go, reservations, units and placements.

    Exits with 0 if nothing changes, with 2 if something does, with 1 on any error.

    \b
    Examples:
      kubectl get nodes,pods,deployments,replicasets -A -o yaml > cluster.yaml
      wharf plan -f policy.yaml --cluster cluster.yaml
      wharf plan -f policy.yaml --kubeconfig ~/.kube/config -o json
    """
    from wharfinger.api.errors import ApiError
    from wharfinger.cli.progress import progress
    from wharfinger.cli.simulating import bad_input, read, refuse_nothing
    from wharfinger.simulate.planning import plan
    from wharfinger.simulate.simulation import Options

    with bad_input(status=1):
        change = read(paths)
        refuse_nothing(change, paths)
        try:
            cluster, start = (read(snapshots), None) if snapshots else _live(kubeconfig, context)
        except ApiError as error:
            raise click.ClickException(error.message) from error
        with progress() as told:
            found = plan(cluster, change, start=start, options=Options(seed=seed, user=user, progress=told, once=True))
    if output == "table":
        click.echo(_text(found))
    else:
        from wharfinger.cli.output import emit

        emit(found.document(), output)
    sys.exit(0 if found.empty else 2)


def _live(kubeconfig: str | None, context: str | None) -> tuple[Inputs, float]:
    """The state of a live cluster, and now."""
    import asyncio
    import time

    from wharfinger.api.kinds import registry
    from wharfinger.simulate.inputs import Inputs
    from wharfinger.simulate.planning import snapshot

    async def take() -> Inputs:
        client = open_client(kubeconfig, context)
        try:
            return Inputs(await snapshot(client, registry()))
        finally:
            await client.close()

    return asyncio.run(take()), time.time()


def _text(found: Plan) -> str:
    from wharfinger.api.wording import counted
    from wharfinger.cli.output import paint, table

    if found.empty:
        return paint("No changes: every pod, reservation, unit and placement stays as it is.", "green", bold=True)
    lines = []
    if found.changes:
        rows = [
            (
                change.what,
                change.kind,
                f"{change.namespace}/{change.name}" if change.namespace else change.name,
                change.text(),
            )
            for change in found.changes
        ]
        lines += [
            paint(counted(len(rows), "change"), "yellow", bold=True),
            table(("change", "kind", "name", "before -> after"), rows),
        ]
    for refused in found.refused:
        lines.append(paint(f"Refused: {refused.kind} {refused.name}: {refused.message}", "red"))
    return "\n".join(lines)
