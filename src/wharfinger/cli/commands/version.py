"""`wharf version`."""

from __future__ import annotations

import click

import wharfinger
from wharfinger.cli.options import output_option


@click.command
@output_option("text", "json", "yaml", default="text")
def command(output: str) -> None:
    """Print the version."""
    if output == "text":
        click.echo(f"wharf {wharfinger.__version__}")
    else:
        from wharfinger.cli.output import emit

        emit({"wharf": wharfinger.__version__}, output, kind="Version")
