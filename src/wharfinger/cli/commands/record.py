"""`wharf record`: writes down what a cluster does, for `wharf replay`."""

from __future__ import annotations

from pathlib import Path

import click

from wharfinger.cli.options import FOLDER, cluster_options, open_client


@click.command
@click.option(
    "-o",
    "--output",
    "folder",
    required=True,
    type=FOLDER,
    metavar="FOLDER",
    help="Where the trace is written. If it holds one of an earlier run, that is continued.",
)
@click.option("--for", "duration", metavar="DURATION", help="Stop after this time, such as 1h. Default: with Ctrl-C.")
@click.option(
    "--rows",
    type=click.IntRange(100),
    default=20_000,
    show_default=True,
    help="Changes in each file. A smaller number needs less memory.",
)
@cluster_options
def command(folder: Path, duration: str | None, rows: int, kubeconfig: str | None, context: str | None) -> None:
    """Record what a cluster does: nodes and pods that come and go, and everything that decisions depend on.

    No Secrets, ConfigMaps, environment variables, commands and arguments are recorded, nor annotations that decide
    nothing. The recorder only reads. It survives restarts of the API server, and its own: start it again with the same
    folder.

    \b
    Examples:
      wharf record -o trace/ --for 1h
      wharf record --kubeconfig prod.yaml -o trace/
    """
    import asyncio
    from contextlib import suppress

    from wharfinger.api.kinds import registry
    from wharfinger.api.wording import counted
    from wharfinger.cli.component import run_until_stopped
    from wharfinger.cli.simulating import bad_input
    from wharfinger.cli.trace_replay import duration as length
    from wharfinger.client.timers import SystemClock
    from wharfinger.replay.extras import require_extra
    from wharfinger.replay.recording import ClusterRecorder

    with bad_input():
        require_extra("polars")
        seconds = None if duration is None else length(duration, "--for")
    made: list[ClusterRecorder] = []

    async def record() -> None:
        client = open_client(kubeconfig, context)
        try:
            recorder = ClusterRecorder(client, registry(), folder, SystemClock(), rows=rows)
            made.append(recorder)
            click.echo(f"Recording into {folder}. Ctrl-C stops.", err=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await recorder.run()
        finally:
            await client.close()

    with bad_input():
        asyncio.run(run_until_stopped(record))
    for recorder in made:
        for each in recorder.not_read:
            click.echo(f"Note: not recorded: {each}", err=True)
        found = recorder.counts
        click.echo(
            f"{folder}: {counted(found['rows'], 'change')}, {counted(found['pods'], 'new pod')}, "
            f"{counted(found['nodes'], 'node')}",
            err=True,
        )
