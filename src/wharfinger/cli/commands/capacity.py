"""`wharf capacity`: what nodes to add for the pods that wait, what nodes to remove, and how many more pods fit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wharfinger.cli.exit_status import InputError
from wharfinger.cli.options import (
    output_option,
    paths_option,
    read_prices_option,
    solver_options,
    state_options,
    strict_option,
)

if TYPE_CHECKING:
    from wharfinger.api.manifests import Manifest
    from wharfinger.api.node_groups import NodeGroup
    from wharfinger.api.registry import Document
    from wharfinger.simulate.inputs import Inputs as SimulationInputs


@click.command
@paths_option(
    "-f",
    "--filename",
    "paths",
    help="What is to come on the cluster: a file, a folder, or -. Without --cluster, --kubeconfig and --context, the "
    "files are all there is.",
)
@click.option("--node-group", "groups", metavar="FILE", multiple=True, help="A file with NodeGroups. Can be repeated.")
@click.option("--prices", metavar="FILE", help="A table of prices per hour and start-up times, in YAML or CSV.")
@click.option("--more", default="", metavar="KIND/[NAMESPACE/]NAME", help="Count how many more pods of it fit.")
@click.option("--timeline/--no-timeline", default=True, show_default=True, help="Whether to show when pods start.")
@click.option("--removal/--no-removal", default=True, show_default=True, help="Whether to look for nodes to remove.")
@solver_options("a cheaper set")
@click.option("--grace", type=float, help="How many seconds a new node may take to publish its devices. [default: 900]")
@click.option("--at", metavar="TIME", help="The current time, in RFC 3339 format.")
@state_options
@click.option("--seed", type=int, default=0, show_default=True, help="Breaks ties between equally good nodes.")
@strict_option
@output_option("table", "json", "yaml", "markdown")
def command(
    paths: tuple[str, ...],
    groups: tuple[str, ...],
    prices: str | None,
    more: str,
    timeline: bool,
    removal: bool,
    solver: str,
    time_limit: str,
    grace: float | None,
    at: str | None,
    snapshots: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    seed: int,
    strict: bool,
    output: str,
) -> None:
    """Show the cheapest nodes for what waits, what nodes could be removed, and how many more pods fit.

    Node groups are known from labels of nodes (EKS, GKE, AKS, Karpenter, Cluster API and others), from NodePools,
    MachineDeployments and the configuration of cluster-autoscaler, and from NodeGroup files. Devices and reservations
    count, and DaemonSets run on new nodes. Without prices, every node counts as one.

    Every choice is played in virtual time: nodes join after their start-up time, and pods that run end when their objects
    say so. Exit status: 0 every pod gets a node, 1 some pod gets none, 2 the input cannot be used.

    \b
    Examples:
      wharf capacity --cluster cluster.json.gz --prices prices.csv
      wharf capacity --cluster cluster.json.gz -f workload.yaml --prices prices.yaml
      wharf capacity --node-group gpu-pool.yaml -o json
      wharf capacity --more deployment/shop/web
    """
    from wharfinger.api.errors import ApiError
    from wharfinger.capacity.choosing import NoCapacitySolver
    from wharfinger.capacity.planning import GRACE, CapacityOptions, plan_capacity
    from wharfinger.cli.progress import progress
    from wharfinger.cli.simulating import bad_input, live_inputs, progressing, read, seconds
    from wharfinger.simulate.inputs import Inputs

    now = _time(at)
    table = read_prices_option(prices)
    named_groups = [group for file in groups for group in _groups(file)]
    with bad_input():
        limit = seconds(time_limit, "--time-limit") if solver == "cp-sat" else None
        coming = read(paths, strict=strict, foreign=_is_kept)
        try:
            if snapshots:
                cluster, start = read(snapshots, strict=strict, foreign=_is_kept), None
            elif paths and not kubeconfig and not context:
                cluster, coming, start = coming, Inputs(), None
            else:
                cluster, start = live_inputs(kubeconfig, context)
                _add_foreign(cluster, kubeconfig, context)
        except ApiError as error:
            raise click.ClickException(error.message) from error
        foreign = [*cluster.foreign, *coming.foreign]
        _check_foreign(foreign)
        options = CapacityOptions(
            groups=[*named_groups, *_groups_in(foreign)],
            prices=table,
            foreign=[manifest.document for manifest in foreign if manifest.document.get("kind") != "NodeGroup"],
            more=more,
            start=start if now is None else now,
            grace=GRACE if grace is None else grace,
            timeline=timeline,
            removal=removal,
            seed=seed,
            solver_seconds=limit,
        )
        with progressing(), progress():
            try:
                found = plan_capacity(cluster, coming, options)
            except NoCapacitySolver as error:
                raise click.ClickException(f"--solver cp-sat needs OR-Tools: {error}") from error
    for note in found.notes:
        click.echo(f"Note: {note}", err=True)
    if output in ("json", "yaml"):
        from wharfinger.cli.output import emit

        emit(found.document(), output, kind="CapacityReport")
    else:
        from wharfinger.cli.capacity_text import capacity_markdown, capacity_text

        click.echo(capacity_markdown(found) if output == "markdown" else capacity_text(found))
    sys.exit(1 if found.best.unserved or found.surprise else 0)


def _time(text: str | None) -> float | None:
    from wharfinger.api.times import BadTime, parse_time

    try:
        return None if text is None else parse_time(text)
    except BadTime as error:
        raise click.UsageError(f"--at: {error}") from error


def _is_kept(document: Document) -> bool:
    from wharfinger.api.node_groups import KIND
    from wharfinger.capacity.sources import is_foreign

    return document.get("kind") == KIND or is_foreign(document)


def _groups(file: str) -> list[NodeGroup]:
    import yaml

    from wharfinger.api.node_groups import BadNodeGroup, read_group

    try:
        documents = [each for each in yaml.safe_load_all(Path(file).read_text()) if each is not None]
        return [read_group(each) for each in documents]
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error
    except (yaml.YAMLError, BadNodeGroup) as error:
        raise InputError(f"{file}: {error}") from error


def _check_foreign(manifests: Sequence[Manifest]) -> None:
    """Raises BadInput with the file, line and field of every mistake."""
    from wharfinger.api.manifests import ManifestFault
    from wharfinger.capacity.foreign_faults import foreign_faults
    from wharfinger.capacity.sources import is_foreign
    from wharfinger.simulate.inputs import BadInput

    faults = [
        str(ManifestFault(each.source, fault.path, fault.message, each.source.line_of(fault.path)))
        for each in manifests
        if is_foreign(each.document)
        for fault in foreign_faults(each.document)
    ]
    if faults:
        raise BadInput(faults)


def _groups_in(manifests: Sequence[Manifest]) -> list[NodeGroup]:
    from wharfinger.api.node_groups import KIND, BadNodeGroup, read_group
    from wharfinger.simulate.inputs import BadInput

    found = []
    for manifest in manifests:
        if manifest.document.get("kind") == KIND:
            try:
                found.append(read_group(manifest.document))
            except BadNodeGroup as error:
                raise BadInput([f"{manifest.source}: {error}"]) from error
    return found


def _add_foreign(cluster: SimulationInputs, kubeconfig: str | None, context: str | None) -> None:
    """Adds the objects of other projects that describe node groups in a live cluster."""
    import asyncio

    from wharfinger.api.errors import ApiError
    from wharfinger.api.kinds.builtin import CONFIG_MAPS
    from wharfinger.api.manifests import Manifest, Source
    from wharfinger.capacity.sources import FOREIGN_KINDS
    from wharfinger.cli.options import open_client

    source = Source("the cluster", 1, 1)

    async def ask() -> None:
        client = open_client(kubeconfig, context)
        try:
            for resource in (*FOREIGN_KINDS, CONFIG_MAPS):
                namespace = "kube-system" if resource == CONFIG_MAPS else ""
                try:
                    page = await client.list(resource, namespace)
                except ApiError:
                    continue  # not served there, or not for us
                for item in page.items:
                    document = {"apiVersion": resource.api_version, "kind": resource.kind, **item}
                    cluster.foreign.append(Manifest(document, source))
        finally:
            await client.close()

    asyncio.run(ask())
