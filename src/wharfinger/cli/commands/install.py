"""`wharf install`: everything a cluster needs, for `kubectl apply --server-side -f -`."""

from __future__ import annotations

import sys

import click

from wharfinger.cli.options import cluster_options, config_option
from wharfinger.install.components import components as components_known


@click.command
@cluster_options
@click.option(
    "--components",
    required=True,
    metavar="NAMES",
    help=f"What to install, separated by commas: {', '.join(components_known())}, or all.",
)
@click.option("--enforce", is_flag=True, help="Refuse what scheduling policies do not allow. Default: only warn.")
@click.option("--namespace", default="wharfinger-system", show_default=True, help="Namespace of Wharfinger's pods.")
@click.option("--image", default="", help="The image to run.  [default: wharfinger:VERSION]")
@click.option("--replicas", type=click.IntRange(1), default=2, show_default=True, help="Replicas of each program.")
@click.option(
    "--scheduler-names",
    default="wharfinger",
    show_default=True,
    help="Scheduler names to serve, separated by commas. Include default-scheduler to replace the stock scheduler.",
)
@click.option("--node-selector", default="", help="The nodes to schedule onto, next to another scheduler.")
@config_option
@click.option("--offline", is_flag=True, help="Print everything, without looking at the cluster.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def command(
    kubeconfig: str | None,
    context: str | None,
    components: str,
    enforce: bool,
    namespace: str,
    image: str,
    replicas: int,
    scheduler_names: str,
    node_selector: str,
    config: str | None,
    offline: bool,
    output: str,
) -> None:
    """Print the manifests that a cluster needs to run the components.

    Existing definitions of Koordinator or Open Cluster Management are used as they are. If their controllers
    run for the same kinds, the command names them and prints nothing.

    \b
    Examples:
      wharf install --components scheduler,resource-policy | kubectl apply --server-side -f -
    """
    import asyncio

    from wharfinger.api.kinds import registry
    from wharfinger.cli.manifest_output import write
    from wharfinger.cli.options import open_client, read_configuration
    from wharfinger.install.cluster import Findings, look
    from wharfinger.install.components import UnknownComponent, chosen
    from wharfinger.install.manifests import InstallOptions, manifests

    try:
        wanted = chosen(components.split(","))
    except UnknownComponent as error:
        raise click.BadParameter(str(error), param_hint="--components") from error
    if not wanted:
        raise click.BadParameter("names no component", param_hint="--components")

    _, configuration = read_configuration(config)

    async def find() -> Findings:
        client = open_client(kubeconfig, context, component="wharf-install")
        try:
            return await look(client, wanted, registry())
        finally:
            await client.close()

    findings = Findings() if offline else asyncio.run(find())
    if findings.refusals:
        for refusal in findings.refusals:
            click.echo(f"Error: {refusal}", err=True)
        sys.exit(1)
    asked = {name.strip() for name in components.split(",")}
    for component in wanted:
        if component.name not in asked and "all" not in asked:
            click.echo(f"{component.name} is needed, too.", err=True)
    for name in sorted(findings.foreign):
        click.echo(f"The cluster's own definition {name} is used.", err=True)
    for kind, name in sorted(findings.taken_over):
        click.echo(f"{kind} {name} is left as the administrator has it.", err=True)
    options = InstallOptions(
        wanted,
        namespace,
        **({"image": image} if image else {}),
        replicas=replicas,
        enforce=enforce,
        scheduler_names=scheduler_names,
        node_selector=node_selector,
        foreign=findings.foreign,
        taken_over=findings.taken_over,
        configuration=configuration,
    )
    write(manifests(options, registry()), output)
