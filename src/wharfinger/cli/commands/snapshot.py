"""`wharf snapshot`: a file with everything that decisions depend on."""

from __future__ import annotations

from pathlib import Path

import click

from wharfinger.cli.options import FILE, cluster_options, open_client

_SUFFIXES = (".json", ".json.gz", ".json.zst")


@click.command
@click.option(
    "-o",
    "--output",
    "path",
    required=True,
    type=FILE,
    metavar="FILE",
    help="The file to write: `.json`, `.json.gz` or `.json.zst`.",
)
@cluster_options
def command(path: Path, kubeconfig: str | None, context: str | None) -> None:
    """Take a snapshot of a cluster for `simulate`, `explain`, `plan` and the other commands that read one.

    It holds every kind that decisions depend on, read at one moment, but no Secrets, ConfigMaps or events. Values of
    environment variables are replaced by digests. Exit status: 1 if some kinds could not be read.

    \b
    Examples:
      wharf snapshot -o cluster.json.gz
      wharf plan --drain node-7 --cluster cluster.json.gz
    """
    import asyncio
    import sys
    import time

    from wharfinger.api.kinds import registry
    from wharfinger.api.wording import counted
    from wharfinger.cli.progress import progress
    from wharfinger.client.server_version import version_to_follow
    from wharfinger.simulate.snapshots import Redactor, SnapshotHeader, SnapshotWriter, take

    if not path.name.endswith(_SUFFIXES):
        raise click.UsageError(f"-o: the name must end with {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}")
    if not path.parent.is_dir():
        raise click.UsageError(f"-o: {path.parent}: no such folder")

    async def write() -> SnapshotHeader:
        redacted = Redactor()
        client = open_client(kubeconfig, context)
        try:
            writer = SnapshotWriter(path)
            try:
                with progress() as told:
                    header = await take(
                        client,
                        registry(),
                        time.time(),
                        lambda document: writer.write(redacted(document)),
                        None if told is None else lambda plural, number: told(f"taking {plural}", number, 0),
                    )
                header.kubernetes = await version_to_follow(client, refusals=1)
                writer.finish(header)
            except BaseException:
                writer.discard()
                raise
        finally:
            await client.close()
        return header

    header = asyncio.run(write())
    total = sum(header.counts.values())
    size = path.stat().st_size
    click.echo(f"{path}: {counted(total, 'object')} of {len(header.counts)} kinds, {_amount(size)}", err=True)
    if not header.consistent:
        click.echo("Note: the server forgot the version meanwhile; kinds were read at different moments", err=True)
    for (_, kind), why in header.not_read.items():
        click.echo(f"Error: {kind} is missing: {why}", err=True)
    sys.exit(1 if header.not_read else 0)


def _amount(size: int) -> str:
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.1f} {unit}" if unit != "B" and amount < 10 else f"{amount:.0f} {unit}"
