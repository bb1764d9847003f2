"""Output formats: tables, JSON and YAML; colours on terminals only."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Literal

import click

API_VERSION = "wharfinger.dev/v1alpha1"

_NARROWEST = 24  # columns that the last column of a table gets at least

Colour = Literal["red", "green", "yellow", "blue", "magenta", "cyan", "bright_black"]


def use_colour(stream: IO[Any] | None = None) -> bool:
    """Whether to use colours on `stream` (default: standard output): it is a terminal, and NO_COLOR is not set."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: Colour, *, bold: bool = False, stream: IO[Any] | None = None) -> str:
    return click.style(text, fg=colour, bold=bold) if use_colour(stream) else text


def terminal_width() -> int | None:
    """How many columns a line may have; None if the output is not for a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], *, gap: int = 3, width: int | None = None, indent: str = ""
) -> str:
    """A table in the format of kubectl: upper-case header, columns three spaces apart, no trailing blanks. If a `width` is
    given, the last column is wrapped so that lines are no longer, as far as there is room for it at all."""
    lines = [[name.upper() for name in header], *([_cell(value) for value in row] for row in rows)]
    widths = [max(_width(line[column]) for line in lines) for column in range(len(header))]
    before = len(indent) + sum(each + gap for each in widths[:-1])
    room = None if width is None else max(width - before, _NARROWEST)
    return "\n".join(
        (
            indent
            + "".join(cell + " " * (widths[column] + gap - _width(cell)) for column, cell in enumerate(line[:-1]))
            + f"\n{' ' * before}".join(_wrapped(line[-1], room))
        ).rstrip()
        for line in lines
    )


def _wrapped(text: str, room: int | None) -> list[str]:
    if room is None or _width(text) <= room or "\033" in text:
        return [text]
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [text]


def as_json(value: Any) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=4).decode()


def as_yaml(value: Any) -> str:
    import msgspec

    from wharfinger.cli.yaml_text import yaml_text

    return yaml_text(msgspec.to_builtins(value, enc_hook=list))


def envelope(value: Mapping[str, Any] | Sequence[Any], kind: str = "") -> dict[str, Any]:
    """What commands print for programs: `apiVersion`, `kind`, and the fields of the value, or its `items` if it is a
    list. A value that names its kind needs no other."""
    fields = dict(value) if isinstance(value, Mapping) else {"items": list(value)}
    named = fields.pop("kind", "") or kind
    if not named:
        raise ValueError("output for programs needs a kind")
    return {"apiVersion": fields.pop("apiVersion", API_VERSION), "kind": named, **fields}


def emit(value: Mapping[str, Any] | Sequence[Any], output: str, *, kind: str = "") -> None:
    """Prints a value as JSON or YAML, in the `envelope` of its kind."""
    value = envelope(value, kind)
    if output != "json":
        click.echo(as_yaml(value))
        return
    for chunk in json_chunks(value):
        click.echo(chunk, nl=False)
    click.echo()


def json_chunks(value: Mapping[str, Any]) -> Iterator[bytes]:
    """An object as indented JSON, in pieces: reports of large clusters have hundreds of megabytes."""
    import msgspec

    from wharfinger.api.encoded import EncodedObjects

    def formatted(data: bytes, pad: bytes) -> bytes:
        return msgspec.json.format(data, indent=4).replace(b"\n", b"\n" + pad)

    before = b"{\n    "
    for name, item in value.items():
        yield before + msgspec.json.encode(name) + b": "
        before = b",\n    "
        if isinstance(item, EncodedObjects) and item:
            for number, data in enumerate(item.encoded()):
                yield (b",\n        " if number else b"[\n        ") + formatted(data, b"        ")
            yield b"\n    ]"
        else:
            plain = list(item) if isinstance(item, EncodedObjects) else item
            yield formatted(msgspec.json.encode(plain), b"    ")
    yield b"\n}"


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "<none>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _width(text: str) -> int:
    return len(click.unstyle(text))
