"""`wharf apiserver`: the embedded API server alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wharfinger.cli.options import config_option, data_dir_option, read_configuration, server_options, server_settings


@click.command
@data_dir_option("Where everything is kept: objects, keys, tokens, the kubeconfig.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 picks a free one.  [default: 6443]")
@click.option("--host", default="127.0.0.1", show_default=True, help="The loopback address to listen on.")
@config_option
@server_options
def command(data_dir: Path, port: int | None, host: str, config: str | None, **options: Any) -> None:
    """Serve the Kubernetes API on this machine, without any controller or scheduler.

    \b
    Examples:
      wharf apiserver --data-dir /tmp/wharf --port 0
      wharf apiserver --audit-policy-file audit.yaml --audit-log-path audit.log
    """
    import logging
    import os

    from wharfinger.apiserver.credentials import BadTokenFile
    from wharfinger.apiserver.server import ApiServerSettings, CannotServe, run
    from wharfinger.cli.run_state import ServerState, write_server
    from wharfinger.store.sqlite import DataFileError

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    def started(address: str, kubeconfig: Path) -> None:
        write_server(settings.data_dir, ServerState(os.getpid(), address, str(kubeconfig)))
        click.echo(f"Serving on https://{address}")
        click.echo(f"export KUBECONFIG={kubeconfig.resolve()}")

    settings = ApiServerSettings(
        data_dir.resolve(),
        host,
        6443 if port is None else port,
        free_port=port is None,
        configuration=read_configuration(config)[0],
        **server_settings(options),
    )
    try:
        run(settings, started)
    except (CannotServe, BadTokenFile, DataFileError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:  # a full disk, most likely
        raise click.ClickException(f"cannot use {settings.data_dir}: {error.strerror or error}") from error
