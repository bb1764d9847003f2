"""`wharf classes`: the devices that each class matches, by node, free and used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import cluster_options, output_option

if TYPE_CHECKING:
    from wharfinger.systems.resource_class.plugin.report import ClassLine


@click.command
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("-f", "--filename", "files", metavar="PATH", multiple=True, help="Read manifests instead of a cluster.")
@cluster_options
@output_option("table", "json", "yaml")
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[str, ...],
    files: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> None:
    """Show the devices of ResourceClasses and raw resources, free and used.

    With names, also show their nodes and ComputeResources. The exit code is 1 if a name is unknown.

    \b
    Examples:
      wharf classes
      wharf classes gpu-gold nvidia.com/gpu
      wharf classes -f nodes.yaml -f classes.yaml -o json
    """
    from wharfinger.cli.output import emit
    from wharfinger.cli.reading import read_kinds
    from wharfinger.systems.resource_class.plugin.report import report

    found = read_kinds(_kinds(), files, kubeconfig, context)
    lines = report(*found)
    if names:
        lines = [line for line in lines if line.name in names or line.alias in names]
        known = {name for line in lines for name in (line.name, line.alias)}
        for name in names:
            if name not in known:
                click.echo(f'no class or raw resource is called "{name}"', err=True)
    if output != "table":
        emit([_document(line) for line in lines], output, kind="ClassReport")
    elif lines:
        _print(lines, detail=bool(names))
    else:
        click.echo("no classes and no devices", err=True)
    ctx.exit(1 if any(name not in {n for line in lines for n in (line.name, line.alias)} for name in names) else 0)


def _kinds() -> tuple[tuple[Any, type[Any]], ...]:
    from wharfinger.api.kinds.builtin import NODES, PODS
    from wharfinger.api.views import Node, Pod
    from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES, RESOURCE_CLASSES
    from wharfinger.systems.resource_class.kinds.views import NodeComputeResources, ResourceClass

    return (
        (RESOURCE_CLASSES, ResourceClass),
        (NODES, Node),
        (NODE_COMPUTE_RESOURCES, NodeComputeResources),
        (PODS, Pod),
    )


def _document(line: ClassLine) -> dict[str, Any]:
    return {
        "name": line.name,
        "kind": "ResourceClass" if line.is_class else "raw",
        "resourceName": line.raw,
        **({"alias": line.alias, "scope": line.scope} if line.is_class else {}),
        "devices": line.devices,
        "used": line.used,
        "free": line.free,
        "nodes": [
            {
                "node": node.node,
                "devices": node.devices,
                "used": node.used,
                "free": node.free,
                "computeResources": [
                    {"name": each.name, "properties": dict(each.properties), "devices": each.devices, "free": each.free}
                    for each in node.resources
                ],
            }
            for node in line.nodes
        ],
    }


def _print(lines: list[ClassLine], *, detail: bool) -> None:
    from wharfinger.cli.output import table

    rows = []
    for line in lines:
        numbers: tuple[Any, ...] = (len(line.nodes), line.devices, line.used, line.free)
        note = "" if line.devices else "matches nothing"
        if line.scope == "Cluster":
            numbers, note = ("-",) * 4, "of the cluster"
        rows.append((line.name, line.raw if line.is_class else "(raw)", *numbers, note or "-"))
    click.echo(table(("name", "resource", "nodes", "devices", "used", "free", "note"), rows))
    if not detail:
        return
    for line in lines:
        rows = [
            (
                node.node,
                each.name,
                each.devices,
                each.free,
                ", ".join(f"{k}={v}" for k, v in sorted(each.properties.items())),
            )
            for node in line.nodes
            for each in node.resources
        ]
        if rows:
            click.echo(f"\n{line.name}:")
            click.echo(table(("node", "compute resource", "devices", "free", "properties"), rows))
