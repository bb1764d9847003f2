"""The `wharf` command. Its subcommands are the modules of `wharfinger.cli.commands` and those of the systems; only
the one that runs is loaded."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import click

import wharfinger
from wharfinger.cli import commands
from wharfinger.cli.exit_status import BAD_INPUT, INTERRUPTED, statuses
from wharfinger.system import InvalidSystem, systems


class Commands(click.Group):
    """A module `foo_bar.py` of the package with a click command named `command` is the subcommand `foo-bar`."""

    def __init__(self, *args: Any, package: ModuleType = commands, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._package = package

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(info.name.replace("_", "-") for info in pkgutil.iter_modules(self._package.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in Commands.list_commands(self, ctx):
            return None
        found = importlib.import_module(f"{self._package.__name__}.{cmd_name.replace('-', '_')}")
        command: click.Command = found.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not ctx.resilient_parsing:
            from difflib import get_close_matches

            close = get_close_matches(name, known)
            if close:
                ctx.fail(f"No such command {name!r}. Did you mean {' or '.join(close)}?")
        return super().resolve_command(ctx, args)


class Wharf(Commands):
    """The top-level command: errors of subcommands become a message and an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_system_commands()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        load = _system_commands().get(cmd_name)
        return load() if load is not None else super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        with statuses():
            return super().invoke(ctx)


def _system_commands() -> dict[str, Callable[[], click.Command]]:
    return {name: load for system in systems() for name, load in system.commands().items()}


@click.command(
    cls=Wharf,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Start with `wharf up`, or try a change without a cluster: `wharf simulate -f FOLDER`.",
)
@click.version_option(wharfinger.__version__, prog_name="wharf")
def wharf() -> None:
    """A scheduling control plane for Kubernetes: who may ask for what, what is promised to whom, which nodes and
    clusters come first, and what would happen if that changed."""


def main() -> None:
    # Imports create many objects and no garbage; collections would take a tenth of the start-up time.
    gc.set_threshold(300_000, 20, 50)
    # numpy's BLAS would start threads, and nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Installed as a kubectl plugin, the command is called `kubectl wharf`.
    name = "kubectl wharf" if "kubectl-wharf" in sys.argv[0] else "wharf"
    try:
        wharf(prog_name=name)
    except InvalidSystem as error:  # the systems are read before any command is
        click.echo(f"Error: {error}", err=True)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:  # before or after a command
        sys.exit(INTERRUPTED)
    finally:
        gc.freeze()  # the interpreter collects twice before it exits, a tenth of a second for nothing


if __name__ == "__main__":
    main()
