"""`wharf version`."""

from __future__ import annotations

import click

import wharfinger


@click.command
def command() -> None:
    """Print the version."""
    click.echo(f"wharf {wharfinger.__version__}")
