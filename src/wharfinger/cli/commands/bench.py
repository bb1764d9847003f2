"""`wharf bench`: finds the benchmarks in `wharfinger.cli.bench`, a file each."""

from __future__ import annotations

import click

from wharfinger.cli import bench
from wharfinger.cli.main import Commands


@click.command(cls=Commands, package=bench)
def command() -> None:
    """Measure how fast a part is on this machine."""
