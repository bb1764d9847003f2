"""Prints the story of a simulation line by line, as it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from wharfinger.api.times import format_time, human_duration
from wharfinger.api.wording import counted, listed
from wharfinger.cli.output import Colour, paint

if TYPE_CHECKING:
    from wharfinger.simulate.timeline import Happening

_NODES = 4  # that are named in a line
_COLOURS: dict[str, Colour] = {
    "running": "green",
    "succeeded": "green",
    "ready": "green",
    "pending": "yellow",
    "evicted": "red",
    "preempted": "red",
    "evicted by a taint": "red",
    "failed": "red",
    "not ready": "red",
}


def timeline_teller(start: float) -> Callable[[Happening], None]:
    """Prints each happening in a line; the time is told when it moves on."""
    last: list[str] = []

    def tell(happening: Happening) -> None:
        if not last:
            click.echo(paint(f"From {format_time(start)}:", "cyan", bold=True))
        shown = _elapsed(happening.moment)
        when = "" if last[-1:] == [shown] else shown
        last[:] = [shown]
        click.echo(f"{when:>9}  {_line(happening)}")

    return tell


def _elapsed(seconds: int) -> str:
    return f"+{human_duration(seconds)}" if seconds else "0s"


def _line(happening: Happening) -> str:
    what = paint(happening.what, _COLOURS[happening.what]) if happening.what in _COLOURS else happening.what
    names = [f"{node} ({number})" if number > 1 else node for node, number in happening.nodes.most_common()]
    if not happening.name:
        return f"{counted(happening.count, 'node')} {what}: {listed(names, _NODES)}"
    text = f"{happening.kind} {happening.name}: "
    if happening.what[:1].isupper():  # the reason of an event
        text += what if happening.count == 1 else f"{what} ({happening.count} times)"
    else:
        text += what if happening.kind == "Pod" else f"{counted(happening.count, 'pod')} {what}"
    if names:
        text += f" {'from' if happening.what == 'gone' else 'on'} {listed(names, _NODES)}"
    return f"{text}: {happening.message}" if happening.message else text
