"""`wharf node-token`: what a real kubelet needs to join `wharf up`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from wharfinger.cli.options import FOLDER, data_dir_option

RUNTIME = "unix:///run/containerd/containerd.sock"


@click.command
@click.argument("node", required=False)
@data_dir_option("The directory that `wharf up` was given.")
@click.option(
    "--output",
    metavar="DIR",
    type=FOLDER,
    help="Where to write the files.  [default: kubelets/NODE in the data directory, or kubelets/bootstrap]",
)
@click.option("--ttl", default="24h", show_default=True, help="How long the token can be used, if no node is named.")
@click.option(
    "--runtime-endpoint",
    metavar="URL",
    default=RUNTIME,
    show_default=True,
    help="The container runtime of the kubelet.",
)
def command(node: str | None, data_dir: Path, output: Path | None, ttl: str, runtime_endpoint: str) -> None:
    """Write the files with which a real kubelet joins `wharf up`, and print how to start it.

    With NODE, the kubelet gets a client certificate for that node. Without, it gets a bootstrap token, with which a
    kubelet on any node can ask for its certificate.

    \b
    Examples:
      wharf node-token worker-1
      wharf node-token --ttl 1h --output /etc/kubernetes
    """
    from wharfinger.api.names import dns_subdomain
    from wharfinger.api.times import BadTime, parse_duration
    from wharfinger.apiserver.joining import LONGEST_NAME, bootstrapping_kubelet, certified_kubelet
    from wharfinger.cli.run_state import read_server

    directory = data_dir.resolve()
    server = read_server(directory)
    if server is None:
        raise click.ClickException(f"no `wharf up` has been started on {directory}; name its --data-dir")
    if node is not None and (why := next(iter(dns_subdomain(node)), None)):
        raise click.BadParameter(f"{node!r} is not a node name: {why}", param_hint="NODE")
    if node is not None and len(node) > LONGEST_NAME:
        why = f"a certificate has room for {LONGEST_NAME} characters"
        raise click.BadParameter(f"{node!r} is too long: {why}", param_hint="NODE")
    try:
        seconds = parse_duration(ttl)
    except BadTime as error:
        raise click.BadParameter(str(error), param_hint="--ttl") from error
    if seconds <= 0:
        raise click.BadParameter("must be more than 0", param_hint="--ttl")
    folder = (output or directory / "kubelets" / (node or "bootstrap")).resolve()
    address, pki = f"https://{server.address}", directory / "pki"
    if node is not None:
        files = certified_kubelet(folder, pki, address, node, runtime_endpoint)
        click.echo(f"Wrote the client certificate of node {node}, valid for one year, to {folder}.")
    else:
        token = _make_token(server.kubeconfig, seconds)
        files = bootstrapping_kubelet(folder, pki, address, token, runtime_endpoint)
        click.echo(f"Wrote a bootstrap token, valid for {ttl}, to {folder}.")
    click.echo("Start the kubelet as root on this machine:\n")
    click.echo("  kubelet " + " \\\n    ".join(files.arguments(node or "")) + "\n")


def _make_token(kubeconfig: str, seconds: float) -> str:
    """Creates a bootstrap token on the running server."""
    import asyncio

    from wharfinger.api.kinds.builtin import SECRETS
    from wharfinger.apiserver.bootstrap_tokens import NAMESPACE, new_token, token_secret
    from wharfinger.cli.options import open_client

    async def create() -> str:
        token = new_token()
        client = open_client(kubeconfig, None, component="wharf-node-token")
        try:
            secret = token_secret(token, time.time() + seconds, "created by `wharf node-token`")
            await client.create(SECRETS, secret, NAMESPACE)
        finally:
            await client.close()
        return token

    return asyncio.run(create())
