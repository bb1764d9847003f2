"""`wharf dashboard`: the page that shows what waits and why, what is promised, and what would happen if."""

from __future__ import annotations

from pathlib import Path

import click

from wharfinger.cli.options import EXISTING_FILE, FILE, cluster_options, open_client, scheduler_names_option


@click.command
@cluster_options
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; 0 picks a free one.  [default: 0]")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--namespace",
    "-n",
    "namespaces",
    multiple=True,
    help="Show these namespaces if you may not list all of them. Can be repeated.",
)
@click.option("--config", type=EXISTING_FILE, help="The scheduler's configuration, for explanations and what-ifs.")
@scheduler_names_option(
    "Scheduler names to explain, separated by commas, if the configuration has no profiles.",
    default="default-scheduler,wharfinger",
)
@click.option(
    "--tokens-only",
    is_flag=True,
    help="Give out no link; everybody logs in with a bearer token. Needed with --host of another machine.",
)
@click.option("--link-file", type=FILE, help="Also write the unused link into this file.")
@click.option(
    "--what-if-seconds", type=float, default=120.0, show_default=True, help="The longest that a what-if may run."
)
@click.option("--what-if-memory", type=int, default=4096, show_default=True, help="Megabytes that a what-if may use.")
def command(
    kubeconfig: str | None,
    context: str | None,
    port: int,
    host: str,
    namespaces: tuple[str, ...],
    config: Path | None,
    scheduler_names: str,
    tokens_only: bool,
    link_file: Path | None,
    what_if_seconds: float,
    what_if_memory: int,
) -> None:
    """Serve the dashboard of a cluster, with the rights of your kubeconfig, and print a link that opens it once.

    \b
    Examples:
      wharf dashboard
      wharf dashboard --kubeconfig ~/.kube/config --context staging
    """
    import asyncio
    import logging
    from functools import partial

    from wharfinger.api.errors import ApiError
    from wharfinger.cli.commands.scheduler import read_configuration
    from wharfinger.cli.component import run_until_stopped
    from wharfinger.dashboard.server import DashboardOptions, serve
    from wharfinger.dashboard.workers import WorkLimits

    if host not in ("127.0.0.1", "::1", "localhost") and not tokens_only:
        raise click.UsageError("--host of another machine needs --tokens-only: a link must not travel over a network")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    names = tuple(name.strip() for name in scheduler_names.split(",") if name.strip())
    read_configuration(config, names)  # an invalid file is reported before anything starts
    configure = partial(read_configuration, config, names)
    options = DashboardOptions(
        host,
        port,
        namespaces,
        links=not tokens_only,
        link_file=link_file,
        config=str(config.resolve()) if config is not None else "",
        limits=WorkLimits(what_if_seconds, what_if_memory),
    )

    async def run() -> None:
        client = open_client(kubeconfig, context, component="dashboard")
        try:
            await run_until_stopped(lambda: serve(client, configure, options, click.echo))
        finally:
            await client.close()

    try:
        asyncio.run(run())
    except ApiError as error:
        raise click.ClickException(error.message) from error
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
