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
@click.option("--enforce", is_flag=True, help="Refuse what scheduling policies do not allow. Default: warn only.")
@click.option("--namespace", default="wharfinger-system", show_default=True, help="Where our own pods run.")
@click.option("--image", default="", help="The image to run.  [default: wharfinger:VERSION]")
@click.option("--replicas", type=click.IntRange(1), default=2, show_default=True, help="Copies of each program.")
@click.option(
    "--scheduler-names",
    default="wharfinger",
    show_default=True,
    help="The scheduler names to serve; default-scheduler puts ours in place of the stock one.",
)
@click.option("--node-selector", default="", help="The nodes that are ours, where we run beside another scheduler.")
@config_option
@click.option("--offline", is_flag=True, help="Do not look at the cluster: print everything, whatever it has.")
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
    """Print what a cluster needs to run these components.

    Definitions that Koordinator or Open Cluster Management brought are used as they are. Where controllers of theirs run
    for the same kinds, nothing is printed, and they are named.

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
    from wharfinger.install.manifests import Options, manifests

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
    options = Options(
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
