"""`wharf bench`: the benchmarks are the modules of `wharfinger.bench.commands`."""

from __future__ import annotations

import click

from wharfinger.bench import commands as bench
from wharfinger.cli.main import Commands
from wharfinger.system import systems

_SYSTEM_OF = {"classes": "resource_class", "placement": "placement", "webhook": "scheduling_policy"}


class Benchmarks(Commands):
    """Leaves out the benchmarks of systems that are not enabled."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        enabled = {system.name for system in systems()}
        return [name for name in super().list_commands(ctx) if _SYSTEM_OF.get(name) in {None, *enabled}]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) if cmd_name in self.list_commands(ctx) else None


@click.command(cls=Benchmarks, package=bench, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Run a benchmark; without a name, all of them."""
    if ctx.invoked_subcommand is not None:
        return
    assert isinstance(ctx.command, click.Group)
    for name in ctx.command.list_commands(ctx):
        one = ctx.command.get_command(ctx, name)
        if one is not None:
            click.echo(f"--- {name}")
            one.main([], prog_name=f"wharf bench {name}", standalone_mode=False)
