"""`wharf bench`: finds the benchmarks in `wharfinger.bench.commands`, a file each."""

from __future__ import annotations

import click

from wharfinger.bench import commands as bench
from wharfinger.cli.main import Commands


@click.command(cls=Commands, package=bench, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Measure how fast a part is on this machine; without a name, every part in turn."""
    if ctx.invoked_subcommand is not None:
        return
    assert isinstance(ctx.command, click.Group)
    for name in ctx.command.list_commands(ctx):
        one = ctx.command.get_command(ctx, name)
        if one is not None:
            click.echo(f"--- {name}")
            one.main([], prog_name=f"wharf bench {name}", standalone_mode=False)
