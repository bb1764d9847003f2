"""`wharf plan`: what a change would do to a cluster, before it is made."""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING

import click

from wharfinger.cli.exit_status import CHANGES, NO, OK, OneForErrors
from wharfinger.cli.options import cluster_options, open_client, output_option, strict_option

if TYPE_CHECKING:
    from wharfinger.scenario.document import ObjectTarget
    from wharfinger.scenario.runner import Rejection
    from wharfinger.simulate.inputs import Inputs
    from wharfinger.simulate.planning import ChangePlan, PlannedChange

_MANY = 40  # changes that are shown; more are only counted


@click.command(cls=OneForErrors)
@click.option(
    "-f",
    "--filename",
    "paths",
    multiple=True,
    type=click.Path(),
    metavar="CHANGE",
    help="The change: a file, a folder, or -. Scenarios in it are played.",
)
@click.option(
    "--delete",
    "deletions",
    multiple=True,
    metavar="KIND/[NAMESPACE/]NAME",
    help="Delete this object, such as `node/n1`. Can be repeated.",
)
@click.option(
    "--drain",
    "drains",
    multiple=True,
    metavar="NODE",
    help="Drain this node, respecting disruption budgets. Can be repeated.",
)
@click.option(
    "--cluster",
    "snapshots",
    multiple=True,
    type=click.Path(),
    metavar="SNAPSHOT",
    help="A file or folder with the cluster's state, instead of a live cluster.",
)
@cluster_options
@click.option("--seed", type=int, default=0, show_default=True, help="Breaks ties between equally good nodes.")
@click.option("--as", "user", default="", help="The user who makes the change. Default: the administrator.")
@click.option("-v", "--all", "everything", is_flag=True, help="Show every change.")
@strict_option
@output_option("table", "json", "yaml")
def command(
    paths: tuple[str, ...],
    deletions: tuple[str, ...],
    drains: tuple[str, ...],
    snapshots: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    seed: int,
    user: str,
    everything: bool,
    strict: bool,
    output: str,
) -> None:
    """Show what a change would do to pods, workloads, reservations, units and placements.

    Exit status: 0 no change, 2 something would change, 1 an error or a failed expectation.

    \b
    Examples:
      wharf snapshot -o cluster.json.gz
      wharf plan -f policy.yaml --cluster cluster.json.gz
      wharf plan --drain node-7 --drain node-8 --cluster cluster.json.gz
      wharf plan --delete deployment/shop/web -f policy.yaml --kubeconfig ~/.kube/config -o json
    """
    from wharfinger.cli.progress import progress
    from wharfinger.cli.simulating import bad_input, progressing, read, refuse_nothing
    from wharfinger.simulate.inputs import BadInput
    from wharfinger.simulate.planning import plan
    from wharfinger.simulate.simulation import SimulationOptions

    if not (paths or deletions or drains):
        raise click.UsageError("say what changes: with -f, --delete or --drain")
    with bad_input():
        change = read(paths, strict=strict)
        if paths:
            refuse_nothing(change, paths)
        if change.configured:
            raise BadInput(["a configuration cannot be part of a change; give it with --cluster"])
        targets = [_target(each) for each in deletions]
        cluster, start = (read(snapshots, strict=strict), None) if snapshots else _live(kubeconfig, context)
        with progressing(), progress() as told:
            options = SimulationOptions(seed=seed, user=user, progress=told, once=True)
            found = plan(cluster, change, start=start, options=options, deletions=targets, drains=drains)
    if cluster.scenarios:
        click.echo("Note: scenarios in the state of the cluster are not played; only those of the change are", err=True)
    for each in found.left_out:
        click.echo(f"Note: of the cluster's state, {_name(each)} was left out: {each.message}", err=True)
    if output == "table":
        click.echo(_text(found, everything))
    else:
        from wharfinger.cli.output import emit

        emit(found.document(), output)
    sys.exit(NO if found.failed else OK if found.empty else CHANGES)


def _target(text: str) -> ObjectTarget:
    from wharfinger.api.kinds import registry
    from wharfinger.scenario.document import ObjectTarget
    from wharfinger.simulate.inputs import BadInput

    words = text.split("/")
    kind = registry().find(words[0])
    if kind is None:
        raise BadInput([f'--delete: no kind is called "{words[0]}"'])
    wanted = 3 if kind.namespaced else 2
    if kind.namespaced and len(words) == 2:
        words.insert(1, "default")
    if len(words) != wanted or not all(words):
        form = "KIND/NAMESPACE/NAME" if kind.namespaced else "KIND/NAME"
        raise BadInput([f"--delete: want {form}, not {text!r}"])
    return ObjectTarget(kind.storage, words[1] if kind.namespaced else "", words[-1])


def _live(kubeconfig: str | None, context: str | None) -> tuple[Inputs, float]:
    """The state of a live cluster, and the current time."""
    import asyncio
    import time

    from wharfinger.api.kinds import registry
    from wharfinger.api.manifests import Manifest, Source
    from wharfinger.simulate.inputs import Inputs
    from wharfinger.simulate.snapshots import take

    manifests: list[Manifest] = []
    source = Source("the cluster", 1, 1)

    async def read_cluster() -> None:
        client = open_client(kubeconfig, context)
        try:
            header = await take(
                client, registry(), time.time(), lambda document: manifests.append(Manifest(document, source))
            )
        finally:
            await client.close()
        for (_, kind), why in header.not_read.items():
            click.echo(f"Note: {kind} could not be read, so what depends on it is left out: {why}", err=True)

    asyncio.run(read_cluster())
    return Inputs(manifests), time.time()


def _name(each: PlannedChange | Rejection) -> str:
    return f"{each.kind} {each.namespace}/{each.name}" if each.namespace else f"{each.kind} {each.name}"


def _text(found: ChangePlan, everything: bool) -> str:
    from wharfinger.api.wording import counted
    from wharfinger.cli.output import paint, table
    from wharfinger.cli.report_text import failure, left_out
    from wharfinger.system import ordered_systems

    if found.empty and not found.failed:
        *nouns, last = [
            "workload",
            "pod",
            *filter(None, (system.report().compared_noun for system in ordered_systems())),
        ]
        return paint(f"No changes: every {', '.join(nouns)} and {last} stays as it is.", "green", bold=True)
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
        numbers = ", ".join(f"{number} {what}" for what, number in found.numbers().items())
        shown = rows if everything else rows[:_MANY]
        lines += [
            paint(f"{counted(len(rows), 'change')}: {numbers}", "yellow", bold=True),
            table(("change", "kind", "name", "before -> after"), shown),
        ]
        if len(shown) < len(rows):
            lines.append(left_out(len(rows) - len(shown)))
    for each in found.recreations:
        name = f"{each.kind} {each.namespace}/{each.name}"
        if each.after:
            lines.append(paint(f"When its pods are created anew, {name} gets none: {each.after}", "red"))
        else:
            lines.append(f"When its pods are created anew, {name} gets them again; now they are refused: {each.before}")
    for refused in found.refused:
        lines.append(paint(f"Refused: {_name(refused)}: {refused.message}", "red"))
    if found.failed:
        lines += [
            paint("Of the change's scenarios these failed:", "red"),
            *chain.from_iterable(map(failure, found.failed)),
        ]
    return "\n".join(lines)
