"""`wharf webhook`: the admission webhooks for a Kubernetes cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wharfinger.cli.options import cluster_options, config_option, open_client, read_configuration
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration


@click.command
@cluster_options
@config_option
@click.option("--enforce", is_flag=True, help="Refuse what policies do not allow. Default: warn only.")
@click.option("--service", default="wharfinger-webhook", show_default=True, help="The Service that leads to us.")
@click.option("--namespace", default="wharfinger-system", show_default=True, help="The namespace of the Service.")
@click.option(
    "--url", metavar="URL", default="", help="Where API servers reach us, instead of a Service: https://HOST:PORT."
)
@click.option("--bind", metavar="HOST:PORT", default="0.0.0.0:9443", show_default=True, help="Where to listen.")
@click.option(
    "--cert-file", metavar="FILE", default="", help="Our certificate. Default: made and renewed by ourselves."
)
@click.option("--key-file", metavar="FILE", default="", help="Its key.")
@click.option(
    "--ca-file", metavar="FILE", default="", help="The authority that signed it, for the webhook configurations."
)
@click.option(
    "--secret", default="wharfinger-webhook", show_default=True, help="The Secret that keeps certificates we make."
)
@click.option("--register/--no-register", default=True, help="Write the webhook configurations.  [default: register]")
@click.option("-v", "--verbose", count=True, help="Say more.")
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

    Certificates are made, renewed and put into the webhook configurations by the command itself.

    \b
    Examples:
      wharf webhook --kubeconfig admin.conf --url https://10.0.0.5:9443 --enforce
    """
    import logging
    from contextlib import suppress

    import uvloop

    from wharfinger.api.errors import ApiError, NotFound
    from wharfinger.systems.scheduling_policy.controllers.scheduling_policy import provision_if_allowed
    from wharfinger.webhook.configurations import Target
    from wharfinger.webhook.server import Settings, WebhookServer

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
    target = Target(url=url, namespace=namespace) if url else Target(service=service, namespace=namespace)
    settings = Settings(
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
            # Without the shipped policies nobody could use any, and every pod would be refused.
            with suppress(NotFound):  # the kind is not installed; its informer says so
                await provision_if_allowed(client)
            server = WebhookServer(client, settings)
            mode = settings.configuration.of(SchedulingPolicySettings).mode
            await server.run(lambda address: click.echo(f"webhooks on https://{address}, scheduling policies: {mode}"))
        finally:
            await client.close()

    try:
        uvloop.run(main())
    except (ApiError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def _configuration(path: str | None, enforce: bool) -> Configuration:
    """On a real cluster policies only warn until the administrator decides otherwise, here or in the file."""
    import msgspec

    configuration, document = read_configuration(path)
    chosen = (document.get("schedulingPolicy") or {}).get("mode")
    mode = "enforce" if enforce else chosen or "warn"
    policy = msgspec.structs.replace(configuration.of(SchedulingPolicySettings), mode=mode)
    return configuration.having(policy)
