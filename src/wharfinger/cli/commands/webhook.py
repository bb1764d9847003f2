"""`wharf webhook`: the admission webhooks for a Kubernetes cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wharfinger.cli.options import cluster_options, config_option, open_client, read_configuration

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration


@click.command
@cluster_options
@config_option
@click.option("--enforce", is_flag=True, help="Refuse what policies do not allow. Default: only warn.")
@click.option("--service", default="wharfinger-webhook", show_default=True, help="The Service of the webhook.")
@click.option("--namespace", default="wharfinger-system", show_default=True, help="The namespace of the Service.")
@click.option(
    "--url", metavar="URL", default="", help="URL at which API servers reach the webhook, instead of a Service."
)
@click.option("--bind", metavar="HOST:PORT", default="0.0.0.0:9443", show_default=True, help="Address to listen on.")
@click.option(
    "--cert-file", metavar="FILE", default="", help="Certificate. Default: created and renewed automatically."
)
@click.option("--key-file", metavar="FILE", default="", help="Key of the certificate.")
@click.option(
    "--ca-file",
    metavar="FILE",
    default="",
    help="Certificate authority of the certificate, for the webhook configurations.",
)
@click.option(
    "--secret", default="wharfinger-webhook", show_default=True, help="Secret for automatically created certificates."
)
@click.option("--register/--no-register", default=True, help="Write the webhook configurations.  [default: register]")
@click.option("-v", "--verbose", count=True, help="More log output.")
def command(
    kubeconfig: str | None,
    context: str | None,
    config: str | None,
    enforce: bool,
    service: str,
    namespace: str,
    url: str,
    bind: str,
    cert_file: str,
    key_file: str,
    ca_file: str,
    secret: str,
    register: bool,
    verbose: int,
) -> None:
    """Serve the admission webhooks: scheduling policies, validation of our kinds, and conversion.

    The command creates and renews its certificates and writes them to the webhook configurations.

    \b
    Examples:
      wharf webhook --kubeconfig admin.conf --url https://10.0.0.5:9443 --enforce
    """
    import asyncio
    import logging
    from contextlib import suppress

    from wharfinger.api.errors import ApiError, NotFound
    from wharfinger.client.loops import new_event_loop
    from wharfinger.system import ordered_systems, systems
    from wharfinger.webhook.configurations import WebhookEndpoint
    from wharfinger.webhook.server import WebhookServer, WebhookSettings

    if bool(cert_file) != bool(key_file):
        raise click.UsageError("--cert-file and --key-file belong together")
    if url and not url.startswith("https://"):
        raise click.BadParameter("API servers call webhooks by https only", param_hint="--url")
    host, _, port = bind.rpartition(":")
    if not port.isdigit():
        raise click.BadParameter(f"{bind} is not HOST:PORT", param_hint="--bind")
    logging.basicConfig(
        level=logging.DEBUG if verbose > 1 else logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    target = (
        WebhookEndpoint(url=url, namespace=namespace) if url else WebhookEndpoint(service=service, namespace=namespace)
    )
    settings = WebhookSettings(
        target,
        host.strip("[]") or "0.0.0.0",
        int(port),
        secret,
        cert_file,
        key_file,
        ca_file,
        register,
        configuration=_configuration(config, enforce),
    )

    async def main() -> None:
        client = open_client(kubeconfig, context, component="webhook")
        try:
            for system in systems():
                with suppress(NotFound):  # a kind is not installed; its informer logs that
                    await system.bootstrap(client, required=False)
            server = WebhookServer(client, settings)
            notes = [system.report().startup_note(settings.configuration) for system in ordered_systems()]
            await server.run(
                lambda address: click.echo(", ".join([f"webhooks on https://{address}", *filter(None, notes)]))
            )
        finally:
            await client.close()

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(main())
    except (ApiError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def _configuration(path: str | None, enforce: bool) -> Configuration:
    """The configuration of the file with the settings of the systems for a real cluster."""
    from wharfinger.api.configuration import load_configuration
    from wharfinger.system import cluster_configuration

    _, document = read_configuration(path)
    return load_configuration(cluster_configuration(document, enforce=enforce))
