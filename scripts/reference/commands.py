"""The `wharf` command as data: what its help says, for the command reference and the man pages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

import click

from wharfinger.cli.main import wharf

_NUMBERS = {"INTEGER": "N", "INTEGER RANGE": "N", "FLOAT": "NUMBER", "FLOAT RANGE": "NUMBER"}


@dataclass(frozen=True)
class OptionText:
    flags: tuple[str, ...]  # as they are written, the short one first; `--a / --no-a` is one of them
    value: str  # what to write after the flag; empty for switches
    default: str
    required: bool
    help: str


@dataclass(frozen=True)
class CommandText:
    name: str  # the whole of it, such as `wharf explain pod`
    usage: str
    summary: str
    details: tuple[str, ...]  # paragraphs
    examples: tuple[str, ...]  # one command line each
    options: tuple[OptionText, ...]
    subcommands: tuple[CommandText, ...]

    def all(self) -> Iterator[CommandText]:
        yield self
        for each in self.subcommands:
            yield from each.all()


def read_command(
    command: click.Command = wharf, name: str = "wharf", parent: click.Context | None = None
) -> CommandText:
    """The command with all its subcommands, which are sorted by name."""
    context = click.Context(command, parent=parent, info_name=name.rpartition(" ")[2])
    summary, details, examples = _help(command)
    subcommands = []
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                subcommands.append(read_command(found, f"{name} {each}", context))
    options = [_option(each, context) for each in command.params if isinstance(each, click.Option) and not each.hidden]
    return CommandText(
        name,
        " ".join([name, *command.collect_usage_pieces(context)]),
        summary,
        details,
        examples,
        tuple(options),
        tuple(subcommands),
    )


def _help(command: click.Command) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Summary, further paragraphs and examples of the help text."""
    text = inspect.cleandoc(command.help or "").partition("\f")[0]
    paragraphs: list[str] = []
    examples: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip().removeprefix("\b\n").splitlines()
        if lines and re.fullmatch(r"Examples?:", lines[0].strip()):
            examples += [line.strip() for line in lines[1:]]
        elif lines:
            paragraphs.append(" ".join(line.strip() for line in lines))
    summary, *details = paragraphs or [""]
    return summary, tuple(details), tuple(examples)


def _option(option: click.Option, context: click.Context) -> OptionText:
    flags = sorted(option.opts, key=len)
    if option.secondary_opts:
        flags = [f"{flags[-1]} / {option.secondary_opts[0]}"]
    value = "" if option.is_flag or option.count else _unbracketed(option.make_metavar(context))
    # Some options write their default or their variable into the help themselves.
    help = re.sub(r" \[env: \w+\]", "", " ".join((option.help or "").split()))
    help, _, told = help.replace(" [default]", " [default: yes]").partition(" [default: ")
    if isinstance(option.envvar, str):
        help += f" Also ${option.envvar}."
    default = told.removesuffix("]") or _default(option, context)
    return OptionText(tuple(flags), _NUMBERS.get(value, value), default, option.required, help)


def _unbracketed(metavar: str) -> str:
    """Without the brackets around a choice."""
    return metavar[1:-1] if metavar.startswith("[") and metavar.endswith("]") else metavar


def _default(option: click.Option, context: click.Context) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    default = option.get_default(context, call=False)
    if option.secondary_opts:
        return (option.opts if default else option.secondary_opts)[0].lstrip("-")
    if option.is_flag or option.count or callable(default) or default in (None, "", ()) or "UNSET" in repr(default):
        return ""
    return ",".join(map(str, default)) if isinstance(default, tuple | list) else str(default)
