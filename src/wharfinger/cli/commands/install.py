"""`wharf install`: everything a cluster needs, for `kubectl apply --server-side -f -`."""

from __future__ import annotations

import re
import sys

import click

from wharfinger.cli.options import cluster_options, config_option, scheduler_names_option
from wharfinger.install.components import components as components_known

_DIGEST = r"sha256:[0-9a-f]{64}"


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
@click.option(
    "--image", default="", help="The image to run, as NAME:TAG or NAME@sha256:DIGEST.  [default: wharfinger:VERSION]"
)
@click.option("--replicas", type=click.IntRange(1), default=2, show_default=True, help="Replicas of each program.")
@scheduler_names_option(
    "Scheduler names to serve, separated by commas. Include default-scheduler to replace the stock scheduler."
)
@click.option("--node-selector", default="", help="The nodes to schedule onto, next to another scheduler.")
@click.option(
    "--pod-node-selector",
    multiple=True,
    metavar="LABEL=VALUE",
    help="A label of the nodes that Wharfinger's own pods run on. Can be repeated.",
)
@click.option(
    "--memory",
    multiple=True,
    metavar="PROGRAM=QUANTITY",
    help="The memory limit of a program, such as scheduler=4Gi. Can be repeated.",
)
@click.option(
    "--cert-manager-issuer",
    default="",
    metavar="[KIND/]NAME",
    help="A ClusterIssuer or Issuer of cert-manager that issues the webhook's certificate. Default: the webhook does.",
)
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
    pod_node_selector: tuple[str, ...],
    memory: tuple[str, ...],
    cert_manager_issuer: str,
    config: str | None,
    offline: bool,
    output: str,
) -> None:
    """Print the manifests that a cluster needs to run the components.

    --offline looks at no cluster and needs no kubeconfig, for manifests that are kept in a repository.
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
    from wharfinger.install.manifests import manifests
    from wharfinger.install.options import CLUSTER_NAMESPACES, InstallOptions

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
            return await look(client, wanted, registry(), namespace)
        finally:
            await client.close()

    findings = Findings(own_namespace=namespace not in CLUSTER_NAMESPACES) if offline else asyncio.run(find())
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
        **({"image": _image(image)} if image else {}),
        replicas=replicas,
        enforce=enforce,
        scheduler_names=scheduler_names,
        node_selector=node_selector,
        pod_node_selector=_pairs(pod_node_selector, "--pod-node-selector"),
        memory=_memory(memory),
        issuer=_issuer(cert_manager_issuer),
        own_namespace=findings.own_namespace,
        foreign=findings.foreign,
        taken_over=findings.taken_over,
        configuration=configuration,
    )
    write(manifests(options, registry()), output)


def _image(reference: str) -> str:
    """A digest that is cut off or misspelt would only be noticed by kubelets."""
    name, at, digest = reference.partition("@")
    if not name or any(character.isspace() for character in reference) or (at and not re.fullmatch(_DIGEST, digest)):
        raise click.BadParameter(f"{reference} is not NAME:TAG or NAME@sha256:DIGEST", param_hint="--image")
    return reference


def _pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    made = dict(each.partition("=")[::2] for each in given)
    if wrong := next((each for each in given if "=" not in each or each.startswith("=")), None):
        raise click.BadParameter(f"{wrong} is not NAME=VALUE", param_hint=option)
    return made


def _memory(given: tuple[str, ...]) -> dict[str, str]:
    from wharfinger.api.quantity import BadQuantity, parse_nano
    from wharfinger.install.options import known_processes

    made = _pairs(given, "--memory")
    for process, quantity in made.items():
        if process not in known_processes():
            known = ", ".join(known_processes())
            raise click.BadParameter(f'there is no program "{process}"; there are: {known}', param_hint="--memory")
        try:
            parse_nano(quantity)
        except BadQuantity as error:
            raise click.BadParameter(str(error), param_hint="--memory") from error
    return made


def _issuer(given: str) -> str:
    kind, slash, name = given.rpartition("/")
    if given and (not name or (slash and kind not in ("ClusterIssuer", "Issuer"))):
        raise click.BadParameter(
            f"{given} is not ClusterIssuer/NAME or Issuer/NAME", param_hint="--cert-manager-issuer"
        )
    return given
