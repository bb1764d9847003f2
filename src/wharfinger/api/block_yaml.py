"""A fast reader for the YAML that programs write: block mappings and sequences with one key or item per line.

Anything else, and every error, is left to `wharfinger.api.yaml_reader`, which returns the same values at a third of the
speed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

_LINE = re.compile(r"( *)((?:- )*)(?:([A-Za-z0-9_./][A-Za-z0-9_./:-]{0,250}):(?: (.+))?|(.*))$", re.MULTILINE)
# No tabs, no other line breaks, no curly quotes, nothing that YAML forbids.
_STRANGE = re.compile(r"[^\n -~\xa1-\u2017\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_NOT_PLAIN = frozenset(" !&*|>%@`\"'#{}[],?:")  # first characters of scalars that are left to the full reader
_DOUBLE_QUOTED = re.compile(r'"[^"\\]*"')
_SINGLE_QUOTED = re.compile(r"'(?:[^']|'')*'")
_LITERAL = ("|", "|-", "|+")
_KEPT = 1 << 16  # scalars to intern


class NotBlock(Exception):
    """The text needs the full reader."""


Read = Callable[[str], Any]
"""The value of a text by the full reader. Raises NotBlock if that reports an error or a repair."""


def read_block(text: str, resolve: Callable[[str], Any], read: Read, max_depth: int) -> Any:
    """The value of a document that is a mapping or a sequence. Raises NotBlock."""
    if _STRANGE.search(text) is not None:
        raise NotBlock
    scalars = _Scalars(resolve, read)
    root: list[Any] = []
    top: Any = root
    indent = -1  # of `top`
    above: list[tuple[int, Any]] = []  # the open containers around `top`, with their indents
    key: str | None = None  # the key whose value begins on a later line
    awaited = True  # whether a value is expected: of `key`, or the next item of `top`
    made: Any
    position, end = 0, len(text)
    match_line = _LINE.match
    while position < end:
        match = match_line(text, position)
        if match is None:
            raise NotBlock
        spaces, dashes, name, value, other = match.groups()
        position = match.end() + 1
        column = len(spaces) + len(dashes)
        if dashes:
            for dash in range(len(spaces), column, 2):
                if awaited and key is not None and dash < indent:
                    top[key], awaited = None, False
                if awaited:
                    if len(above) >= max_depth or dash < indent or (dash == indent and key is None):
                        raise NotBlock
                    above.append((indent, top))
                    top, indent = _opened(top, key, []), dash
                else:
                    while indent > dash:
                        indent, top = above.pop()
                    if indent != dash or type(top) is not list:
                        raise NotBlock
                key, awaited = None, True
        elif not name:
            if spaces or other:
                raise NotBlock
            continue  # an empty line
        if name:
            if awaited and key is not None and column <= indent:
                top[key], awaited = None, False
            if awaited:
                if len(above) >= max_depth or column <= indent:
                    raise NotBlock
                above.append((indent, top))
                top, indent = _opened(top, key, {}), column
                awaited = False
            else:
                while indent > column or (indent == column and type(top) is list):
                    indent, top = above.pop()
                if indent != column or name in top:
                    raise NotBlock
            key = scalars.key(name)
            if value is None:
                awaited = True
                continue
        else:
            key, value = None, other
        if value in _LITERAL:
            stop = _literal_end(text, position, indent)
            made = scalars.text(f"{value}\n{text[position:stop]}")
            position = stop
        elif value == "{}":
            made = {}
        elif value == "[]":
            made = []
        else:
            made = scalars.value(value)
        if key is None:
            top.append(made)
        else:
            top[key] = made
        awaited = False
    if awaited and key is not None:
        top[key] = None
    if not root:
        raise NotBlock
    return root[0]


def _opened(parent: Any, key: str | None, container: Any) -> Any:
    if key is None:
        parent.append(container)
    else:
        parent[key] = container
    return container


def _literal_end(text: str, position: int, indent: int) -> int:
    """The end of the lines that are empty or indented by more than `indent`."""
    found = re.compile(rf"^ {{0,{max(indent, 0)}}}[^ \n]", re.MULTILINE).search(text, position)
    return len(text) if found is None else found.start()


class _Scalars:
    """The values of scalars by their text; equal strings are shared."""

    def __init__(self, resolve: Callable[[str], Any], read: Read) -> None:
        self._resolve = resolve
        self._read = read
        self._values: dict[str, Any] = {}
        self._keys: dict[str, str] = {}

    def key(self, text: str) -> str:
        known = self._keys.get(text)
        if known is None:
            if self._resolve(text) != text:
                raise NotBlock
            known = text
            if len(self._keys) < _KEPT:
                self._keys[text] = text
        return known

    def value(self, text: str) -> Any:
        try:
            return self._values[text]
        except KeyError:
            made = self._meaning(text)
            if len(self._values) < _KEPT:
                self._values[text] = made
            return made

    def text(self, written: str) -> str:
        """The value of a scalar that only the full reader understands."""
        made = self._read(f"a: {written}")["a"]  # inside a mapping, so that trailing text is an error
        if type(made) is not str:
            raise NotBlock
        return made

    def _meaning(self, text: str) -> Any:
        if not text:
            raise NotBlock
        if text[0] == '"':
            if _DOUBLE_QUOTED.fullmatch(text):
                return text[1:-1]
            return self.text(text)
        if text[0] == "'":
            if _SINGLE_QUOTED.fullmatch(text):
                return text[1:-1].replace("''", "'")
            raise NotBlock
        if text[0] in _NOT_PLAIN or text[-1] in ": " or text == "-" or text[:2] == "- ":
            raise NotBlock
        if ": " in text or " #" in text:
            raise NotBlock
        made = self._resolve(text)
        if type(made) is float and not math.isfinite(made):
            raise NotBlock
        return made
