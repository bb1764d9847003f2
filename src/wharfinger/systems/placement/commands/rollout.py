"""`wharf rollout`: the waves in which a change reaches the clusters of a placement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.completing import names_of
from wharfinger.cli.options import cluster_options, output_option

if TYPE_CHECKING:
    from fractions import Fraction

    from wharfinger.systems.placement.rules.rollout import ClusterRollout, MandatoryGroup, RolloutGroup


@click.command("rollout")
@click.argument("placement", metavar="[NAMESPACE/]NAME", shell_complete=names_of("placements"))
@click.option(
    "-f", "--filename", "files", metavar="PATH", multiple=True, help="PlacementDecisions to read instead of a cluster."
)
@click.option("-n", "--namespace", default="default", show_default=True, help="The namespace if the name has none.")
@click.option(
    "--type",
    "strategy",
    type=click.Choice(["All", "Progressive", "ProgressivePerGroup"]),
    default="All",
    show_default=True,
    help="The rollout strategy.",
)
@click.option("--max-concurrency", metavar="N|P%", help="Progressive: clusters in progress at a time.  [default: all]")
@click.option("--max-failures", metavar="N|P%", default="0", show_default=True, help="Failures that are tolerated.")
@click.option(
    "--mandatory-group",
    "mandatory",
    metavar="NAME|INDEX",
    multiple=True,
    help="A decision group that must succeed first. Can be repeated.",
)
@click.option(
    "--known",
    metavar="CLUSTER=STATUS",
    multiple=True,
    help="The present status of a cluster: Progressing, Succeeded, Failed, TimeOut or Skip. Can be repeated.",
)
@cluster_options
@output_option("table", "json", "yaml")
@click.pass_context
def command(
    ctx: click.Context,
    placement: str,
    files: tuple[str, ...],
    namespace: str,
    strategy: str,
    max_concurrency: str | None,
    max_failures: str,
    mandatory: tuple[str, ...],
    known: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> None:
    """Show in which waves a change reaches the clusters that a placement selects, if every cluster succeeds.

    The exit code is 1 if some clusters are not reached, because more clusters failed than allowed.

    \b
    Examples:
      wharf rollout apps/web --type Progressive --max-concurrency 25%
      wharf rollout apps/web --type ProgressivePerGroup --mandatory-group canary --known c1=Failed
    """
    from wharfinger.cli.asking import split_name
    from wharfinger.cli.output import emit, table
    from wharfinger.cli.reading import read_kinds
    from wharfinger.systems.placement.kinds.names import PLACEMENT_DECISIONS
    from wharfinger.systems.placement.rules.rollout import RolloutStrategy, RolloutType, unreached, waves

    namespace, name = split_name(placement, "the placement", namespace)
    (decisions,) = read_kinds([(PLACEMENT_DECISIONS, dict)], files, kubeconfig, context)
    groups = _groups(decisions, namespace, name)
    if not groups:
        raise click.ClickException(f"there are no decisions for the placement {namespace}/{name}")
    chosen = RolloutStrategy(
        RolloutType(strategy),
        max_failures=_amount(max_failures, "--max-failures"),
        max_concurrency=None if max_concurrency is None else _amount(max_concurrency, "--max-concurrency"),
        mandatory=tuple(_mandatory(each) for each in mandatory),
    )
    statuses = dict(_known(each) for each in known)
    found = waves(chosen, groups, statuses)
    left = unreached(groups, statuses, found)
    if output == "table":
        click.echo(table(("wave", "clusters"), [(number, ", ".join(wave)) for number, wave in enumerate(found, 1)]))
        if left:
            click.echo(f"\nNot reached, because more clusters failed than allowed: {', '.join(left)}")
    else:
        emit({"waves": found, "unreached": left}, output, kind="Rollout")
    ctx.exit(1 if left else 0)


def _groups(decisions: list[dict[str, Any]], namespace: str, placement: str) -> list[RolloutGroup]:
    """The decision groups of a placement by index; a group may extend over several PlacementDecisions."""
    from wharfinger.systems.placement.kinds.views import GROUP_INDEX_LABEL, GROUP_NAME_LABEL, PLACEMENT_LABEL
    from wharfinger.systems.placement.rules.pages import decided_clusters
    from wharfinger.systems.placement.rules.rollout import RolloutGroup

    names: dict[int, str] = {}
    clusters: dict[int, list[str]] = {}
    for decision in decisions:
        metadata = decision["metadata"]
        labels = metadata.get("labels") or {}
        if (metadata.get("namespace"), labels.get(PLACEMENT_LABEL)) != (namespace, placement):
            continue
        index = int(labels.get(GROUP_INDEX_LABEL) or 0)
        names[index] = labels.get(GROUP_NAME_LABEL) or ""
        clusters.setdefault(index, []).extend(decided_clusters(decision))
    return [RolloutGroup(index, names[index], tuple(clusters[index])) for index in sorted(clusters)]


def _amount(text: str, option: str) -> int | Fraction:
    from fractions import Fraction

    number = text.removesuffix("%")
    if not number.isdigit():
        raise click.BadParameter(f"{text} is neither a number nor a percentage", param_hint=option)
    return Fraction(int(number), 100) if text.endswith("%") else int(number)


def _mandatory(text: str) -> MandatoryGroup:
    from wharfinger.systems.placement.rules.rollout import MandatoryGroup

    return MandatoryGroup(index=int(text)) if text.isdigit() else MandatoryGroup(text)


def _known(text: str) -> tuple[str, ClusterRollout]:
    from wharfinger.systems.placement.rules.rollout import ClusterRollout, RolloutStatus

    cluster, _, status = text.partition("=")
    try:
        return cluster, ClusterRollout(RolloutStatus(status))
    except ValueError:
        known = ", ".join(each.value for each in RolloutStatus)
        raise click.BadParameter(f"{text} is not CLUSTER=STATUS with one of {known}", param_hint="--known") from None
