"""`wharf plan`: what a change would do to a cluster, before it is made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.completing import names_of
from wharfinger.cli.exit_status import CHANGES, NO, OK, OneForErrors
from wharfinger.cli.options import output_option, paths_option, state_options, strict_option

if TYPE_CHECKING:
    from wharfinger.scenario.runner import Rejection

BAD_NEWS = ("pending", "refused", "preempted", "blocked")  # what --fail-on can name


class _BadNews(click.ParamType[tuple[str, ...]]):
    name = "what"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        words = tuple(word.strip() for word in value.split(",")) if isinstance(value, str) else value
        for word in words:
            if word not in BAD_NEWS:
                self.fail(f"{word!r} is none of {', '.join(BAD_NEWS)}", param, ctx)
        return tuple(words)


@click.command(cls=OneForErrors)
@paths_option(
    "-f",
    "--filename",
    "paths",
    metavar="CHANGE",
    help="The change: a file, a folder, or -. Scenarios in it are played.",
)
@click.option(
    "--delete",
    "deletions",
    multiple=True,
    metavar="KIND/[NAMESPACE/]NAME|SELECTOR",
    help="Delete this object, or all that a label selector matches, such as `node/n1` or `pod/shop/app=web`. Can be "
    "repeated.",
)
@click.option(
    "--drain",
    "drains",
    multiple=True,
    metavar="NODE|SELECTOR",
    shell_complete=names_of("nodes"),
    help="Drain this node, or all that a label selector matches, respecting disruption budgets. Can be repeated.",
)
@state_options
@click.option("--seed", type=int, default=0, show_default=True, help="Breaks ties between equally good nodes.")
@click.option("--as", "user", default="", help="The user who makes the change. Default: the administrator.")
@click.option(
    "--fail-on",
    type=_BadNews(),
    default=(),
    metavar="WHAT,...",
    help="Exit with 1 if the change has such consequences: pending, refused, preempted, blocked.",
)
@click.option("-v", "--all", "everything", is_flag=True, help="Show every change, and each pod.")
@strict_option
@output_option("table", "markdown", "json", "yaml")
def command(
    paths: tuple[str, ...],
    deletions: tuple[str, ...],
    drains: tuple[str, ...],
    snapshots: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    seed: int,
    user: str,
    fail_on: tuple[str, ...],
    everything: bool,
    strict: bool,
    output: str,
) -> None:
    """Show what a change would do to pods, workloads, reservations, units and placements.

    Exit status: 0 no change, 2 something would change, 1 an error, a failed expectation, or what --fail-on names.

    \b
    Examples:
      wharf snapshot -o cluster.json.gz
      wharf plan -f policy.yaml --cluster cluster.json.gz
      wharf plan --drain pool=old --cluster cluster.json.gz --fail-on blocked,pending
      wharf plan -f change/ --cluster cluster.json.gz -o markdown > comment.md
      wharf plan --delete deployment/shop/web -f policy.yaml --kubeconfig ~/.kube/config -o json
    """
    from wharfinger.api.kinds import registry
    from wharfinger.cli.progress import progress
    from wharfinger.cli.simulating import bad_input, live_inputs, progressing, read, refuse_nothing
    from wharfinger.simulate.choosing import parse_choice
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
        targets = [parse_choice(each, registry()) for each in deletions]
        cluster, start = (read(snapshots, strict=strict), None) if snapshots else live_inputs(kubeconfig, context)
        with progressing(), progress() as told:
            options = SimulationOptions(seed=seed, user=user, progress=told, once=True)
            found = plan(cluster, change, start=start, options=options, deletions=targets, drains=drains)
    if cluster.scenarios:
        click.echo("Note: scenarios in the state of the cluster are not played; only those of the change are", err=True)
    for each in found.left_out:
        click.echo(f"Note: of the cluster's state, {_name(each)} was left out: {each.message}", err=True)
    if output in ("table", "markdown"):
        from wharfinger.cli.plan_text import plan_markdown, plan_text

        click.echo((plan_text if output == "table" else plan_markdown)(found, everything=everything))
    else:
        from wharfinger.cli.output import emit

        emit(found.document(), output)
    news = found.bad_news()
    failing = [f"{news[word]} {word}" for word in BAD_NEWS if word in fail_on and news[word]]
    if failing:
        click.echo(f"Error: --fail-on: {', '.join(failing)}", err=True)
    sys.exit(NO if found.failed or failing else OK if found.empty else CHANGES)


def _name(each: Rejection) -> str:
    return f"{each.kind} {each.namespace}/{each.name}" if each.namespace else f"{each.kind} {each.name}"
