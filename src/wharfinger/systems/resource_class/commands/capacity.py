"""`wharf capacity`: how many new nodes of which node group the pending pods need, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.exit_status import InputError
from wharfinger.cli.options import cluster_options, output_option

if TYPE_CHECKING:
    from wharfinger.systems.resource_class.rules.capacity import Needs, NodeGroup


@click.command
@click.option("-f", "--filename", "files", metavar="PATH", multiple=True, help="Read manifests instead of a cluster.")
@click.option(
    "--node-group",
    "groups",
    metavar="FILE",
    multiple=True,
    required=True,
    help="A file with node groups. Can be repeated; preferred groups first.",
)
@click.option("--grace", type=float, help="How many seconds a new node may take to publish its devices. [default: 900]")
@click.option("--at", metavar="TIME", help="The current time, in RFC 3339 format.")
@cluster_options
@output_option("table", "json", "yaml")
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    groups: tuple[str, ...],
    grace: float | None,
    at: str | None,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> None:
    """Show how many nodes of which node group the pending pods and reservations need, including devices.

    A node belongs to a group by its label `wharfinger.dev/node-group`. A node that has not published its
    devices yet counts as its template until the grace period is over. The exit code is 1 if no group can serve
    one of the pods.

    \b
    Examples:
      wharf capacity --node-group gpu-pool.yaml
      wharf capacity -f pending.yaml --node-group small.yaml --node-group large.yaml -o json
    """
    import time

    from wharfinger.api.times import BadTime, parse_time
    from wharfinger.cli.output import emit
    from wharfinger.systems.resource_class.settings import ResourceClassSettings

    try:
        now = time.time() if at is None else parse_time(at)
    except BadTime as error:
        raise click.UsageError(f"--at: {error}") from error
    seconds = ResourceClassSettings().startup_grace_seconds if grace is None else grace
    found = _needs([group for file in groups for group in _groups(file)], files, kubeconfig, context, now, seconds)
    if output != "table":
        emit(_document(found), output, kind="CapacityReport")
    else:
        _print(found)
    ctx.exit(1 if found.unservable else 0)


def _groups(file: str) -> list[NodeGroup]:
    import yaml

    from wharfinger.systems.resource_class.rules.capacity import BadNodeGroup, read_group

    try:
        documents = [each for each in yaml.safe_load_all(Path(file).read_text()) if each is not None]
        return [read_group(each) for each in documents]
    except (yaml.YAMLError, BadNodeGroup) as error:
        raise InputError(f"{file}: {error}") from error


def _needs(
    groups: list[NodeGroup],
    files: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    now: float,
    grace: float,
) -> Needs:
    from wharfinger.api.kinds import registry
    from wharfinger.api.kinds.builtin import NODES, PODS
    from wharfinger.api.views import Node, Pod
    from wharfinger.cli.reading import read_kinds
    from wharfinger.engine import Engine
    from wharfinger.scheduler import profiles
    from wharfinger.scheduler.schedulable import schedulables
    from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES
    from wharfinger.systems.resource_class.kinds.views import NodeComputeResources
    from wharfinger.systems.resource_class.rules.capacity import needs

    engine = Engine(profiles.load({}).profiles)
    others = {kind for each in engine.profiles.values() for plugin in each.plugins.values() for kind in plugin.kinds}
    known = registry()
    kinds: list[tuple[Any, type[Any]]] = [(NODES, Node), (PODS, Pod), (NODE_COMPUTE_RESOURCES, NodeComputeResources)]
    names = sorted(others | {"Namespace"})
    kinds += [(kind.storage, engine.views.get(name, dict)) for name in names if (kind := known.find(name)) is not None]
    nodes, pods, inventories, *rest = read_kinds(kinds, files, kubeconfig, context)
    waiting: list[Any] = []
    makers = {each.resource.kind: each for each in schedulables()}
    for (resource, _), objects in zip(kinds[3:], rest, strict=True):
        for each in objects:
            engine.apply(resource.kind, each)
            maker = makers.get(resource.kind)
            item = maker.stand_in(each) if maker is not None else None
            if item is not None and not item.spec.node_name:
                waiting.append(item)  # such as a reservation that is still to be placed
    return needs(engine, groups, nodes, inventories, [*pods, *waiting], now=now, grace=grace)


def _document(found: Needs) -> dict[str, Any]:
    return {
        "groups": [
            {
                "name": need.name,
                "current": need.current,
                "silent": need.silent,
                "coming": need.coming,
                "new": need.new,
                "newNodes": [
                    {"name": name, "pods": pods, "reason": need.reasons[name]} for name, pods in need.pods.items()
                ],
            }
            for need in found.groups
        ],
        "fitting": found.fitting,
        "unservable": found.unservable,
    }


def _print(found: Needs) -> None:
    from wharfinger.cli.output import table

    rows = [(need.name, need.current, len(need.silent), need.coming, need.new) for need in found.groups]
    click.echo(table(("node group", "nodes", "silent", "coming", "new"), rows))
    for need in found.groups:
        for name, pods in need.pods.items():
            click.echo(f"\n{name} is needed for {', '.join(pods)}: {need.reasons[name]}")
    for pod, node in found.fitting.items():
        click.echo(f"\n{pod} needs no new node: it fits on {node}")
    for pod, why in found.unservable.items():
        click.echo(f"\n{pod} fits on no group: {why}")
