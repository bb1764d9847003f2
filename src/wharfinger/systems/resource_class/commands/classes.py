"""`wharf classes`: the devices that each class matches, by node, free and used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.completing import names_of
from wharfinger.cli.options import cluster_options, output_option

if TYPE_CHECKING:
    from wharfinger.systems.resource_class.plugin.report import ClassLine


@click.command
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=names_of("resourceclasses"))
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
    """Show the devices of ResourceClasses, DeviceClasses and raw resources: used, reserved and free.

    With names, also show their nodes and ComputeResources. The exit code is 1 if a name is unknown.

    \b
    Examples:
      wharf classes
      wharf classes gpu-gold nvidia.com/gpu
      wharf classes -f nodes.yaml -f classes.yaml -o json
    """
    from wharfinger.cli.output import emit
    from wharfinger.cli.reading import read_kinds
    from wharfinger.scheduler.schedulable import schedulables
    from wharfinger.systems.resource_class.plugin.device_report import device_report
    from wharfinger.systems.resource_class.plugin.report import report

    others, own = schedulables(), _kinds()
    kinds = (*own, *((each.resource, each.view) for each in others))
    classes, nodes, inventories, pods, *rest = read_kinds(kinds, files, kubeconfig, context)
    devices, reserving = rest[: len(own) - 4], rest[len(own) - 4 :]
    stand_ins = [
        made for each, items in zip(others, reserving, strict=True) for item in items if (made := each.stand_in(item))
    ]
    lines = report(
        classes,
        nodes,
        inventories,
        pods,
        stand_ins,
        lambda pod: next((uid for each in others if (uid := each.used_by(pod))), ""),
    )
    device_classes, slices, claims = devices
    holding = [each for each in stand_ins if each.spec.node_name]
    lines = [*lines, *device_report(classes, device_classes, slices, claims, holding)]
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
    from wharfinger.api.kinds.builtin import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
    from wharfinger.api.views import Node, Pod
    from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES, RESOURCE_CLASSES
    from wharfinger.systems.resource_class.kinds.views import NodeComputeResources, ResourceClass

    return (
        (RESOURCE_CLASSES, ResourceClass),
        (NODES, Node),
        (NODE_COMPUTE_RESOURCES, NodeComputeResources),
        (PODS, Pod),
        (DEVICE_CLASSES, dict),
        (RESOURCE_SLICES, dict),
        (RESOURCE_CLAIMS, dict),
    )


def _kind(line: ClassLine) -> str:
    if not line.is_class:
        return "raw"
    return line.raw if line.raw == "DeviceClass" else "ResourceClass"


def _document(line: ClassLine) -> dict[str, Any]:
    return {
        "name": line.name,
        "kind": _kind(line),
        "resourceName": line.raw,
        **({"alias": line.alias, "scope": line.scope} if line.is_class else {}),
        "devices": line.devices,
        "used": line.used,
        "reserved": line.reserved,
        "free": line.free,
        "note": line.note,
        "nodes": [
            {
                "node": node.node,
                "devices": node.devices,
                "used": node.used,
                "reserved": node.reserved,
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
        numbers: tuple[Any, ...] = (len(line.nodes), line.devices, line.used, line.reserved, line.free)
        if line.scope == "Cluster":
            numbers = ("-",) * 5
        rows.append((line.name, line.raw if line.is_class else "(raw)", *numbers, line.note or "-"))
    click.echo(table(("name", "resource", "nodes", "devices", "used", "reserved", "free", "note"), rows))
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
