"""Templates of YAML items: a list of a cluster's objects has thousands of items that differ in their values only.

An item without the values after its keys is its skeleton. What items of the same skeleton mean is compiled once, to a
function of the values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wharfinger.api.yaml_scalars import NotBlock, ScalarValues, is_strange

_OFTEN = 12  # items of a skeleton after which it is compiled, which takes as long as reading ten of them
_KEPT = 1 << 14  # skeletons to know
# No text has NUL.
_HOLE = "\0"
_WHOLE = "\0"  # at the end of a line of a skeleton that has no value
_DASHED = "\0\0"  # at the end of a line of a skeleton that has a value after a dash

Build = Callable[[list[Any]], Any]
ReadLines = Callable[[str, ScalarValues], Any]


class ItemTemplates:
    def __init__(self, scalars: ScalarValues, read_lines: ReadLines) -> None:
        self._scalars = scalars
        self._read_lines = read_lines
        self._known: dict[tuple[str, ...], Build | int | None] = {}  # None: cannot be compiled; a number: seen so often

    def read(self, text: str) -> Any:
        """The item of a list. Raises NotBlock if it has to be read in another way."""
        if _HOLE in text:
            raise NotBlock
        skeleton, values = _taken_apart(text)
        build = self._known.get(skeleton, 0)
        if callable(build):
            return build(list(map(self._scalars.__getitem__, values)))
        if build is not None:
            self._count(skeleton, build)
        raise NotBlock

    def _count(self, skeleton: tuple[str, ...], seen: int) -> None:
        if seen + 1 >= _OFTEN:
            self._known[skeleton] = self._compiled(skeleton)
        elif seen or len(self._known) < _KEPT:
            self._known[skeleton] = seen + 1

    def _compiled(self, skeleton: tuple[str, ...]) -> Build | None:
        """Reads the skeleton with a hole in place of each value."""
        lines, number = [], 0
        for line in skeleton:
            if line.endswith(_WHOLE) and not line.endswith(_DASHED):
                lines.append(line[:-1].replace("\0", " "))
                continue
            lines.append(f"{line[:-2]}{_HOLE}{number}" if line.endswith(_DASHED) else f"{line}: {_HOLE}{number}")
            number += 1
        text = "\n".join(lines)
        try:
            if is_strange(text.replace(_HOLE, "")):
                return None
            made = self._read_lines(text, _Holes())
            if type(made) is not list or len(made) != 1:
                return None
            # The source consists of our own `repr` of strings, numbers and None, and of indices.
            build: Build = eval(f"lambda v: {_source(made[0])}", {"__builtins__": {}})  # noqa: S307
        except (NotBlock, SyntaxError, MemoryError, RecursionError):  # Python's parser limits the depth, too
            return None
        return build


def _taken_apart(text: str) -> tuple[tuple[str, ...], list[str]]:
    """The lines of an item without values, and the values: what follows a key, or a dash without a key. Empty collections
    stay in the skeleton, since each item needs its own."""
    lines, values = [], []
    for line in text.replace(": {}\n", ":\0{}\n").replace(": []\n", ":\0[]\n").split("\n"):
        head, found, value = line.partition(": ")
        if found:
            values.append(value)
        elif line[-1:] in ":}]":  # or empty
            head += _WHOLE
        else:
            head, found, value = line.partition("- ")
            if not found:
                raise NotBlock
            head += f"- {_DASHED}"
            values.append(value)
        lines.append(head)
    return tuple(lines), values


class _Hole(str):
    """The place of a value."""

    __slots__ = ()


class _Holes(ScalarValues):
    def __missing__(self, text: str) -> Any:
        return _Hole(text[1:]) if text[0] == _HOLE else super().__missing__(text)

    def literal(self, header: str, text: str) -> str:
        raise NotBlock  # what looks like keys and values there is text

    def continued(self, plain: str, more: str) -> str:
        raise NotBlock  # so it is here


def _source(value: Any) -> str:
    """The Python expression of a value, with `v[number]` for holes."""
    if type(value) is _Hole:
        return f"v[{int(value)}]"
    if type(value) is dict:
        return "{" + ", ".join(f"{key!r}: {_source(item)}" for key, item in value.items()) + "}"
    if type(value) is list:
        return "[" + ", ".join(map(_source, value)) + "]"
    return repr(value)
