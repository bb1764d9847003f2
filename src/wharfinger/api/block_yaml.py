"""A fast reader for the YAML that programs write, and for most of what people write: block mappings and sequences with one
key or item per line.

Anything else, and every error, is left to `wharfinger.api.yaml_events`, which returns the same values at a tenth of the
speed. The items of a large list are read one by one, so that one that is out of the ordinary does not slow down others.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from wharfinger.api.yaml_scalars import NotBlock, Read, ScalarValues, is_strange
from wharfinger.api.yaml_templates import ItemTemplates

_LINE = re.compile(r"( *)((?:- )*)(?:([A-Za-z0-9_./][A-Za-z0-9_./:-]{0,250}):(?: (.+))?|(.*))$", re.MULTILINE)
_LITERAL = ("|", "|-", "|+")
_ITEMS = re.compile(r"^items:\n( *)- ", re.MULTILINE)
_OUTSIDE = re.compile(r"^[^ \n#]", re.MULTILINE)
_LARGE = 1 << 16  # characters of a list that is read item by item


class BlockReader:
    """Reads any number of texts; what it learns from one makes others faster. `read` is the full reader."""

    def __init__(self, read: Read, max_depth: int) -> None:
        self._scalars = ScalarValues()
        self._read_fully = read
        self._max_depth = max_depth
        self._templates = ItemTemplates(self._scalars, lambda text, scalars: _read_lines(text, scalars, max_depth - 1))

    def read(self, text: str) -> Any:
        """The value of a document that is a mapping or a sequence. Raises NotBlock."""
        if len(text) >= _LARGE and (found := _ITEMS.search(text)) is not None:
            with suppress(NotBlock):
                return self._read_list(text, found)
        return self._read_lines(text, self._max_depth)

    def _read_lines(self, text: str, max_depth: int) -> Any:
        if is_strange(text):
            raise NotBlock
        return _read_lines(text, self._scalars, max_depth)

    def _read_list(self, text: str, found: re.Match[str]) -> Any:
        """A mapping with the key `items`, whose value begins in the next line: each item is read on its own. An item that
        is valid by itself means the same as a part of the list: a scalar or collection that continues in the next item
        does not end in its own."""
        mark = f"\n{found[1]}- "
        items: list[Any] = []
        start, rest = found.start() + len("items:"), len(text)  # `start`: the line break before an item
        while start >= 0:
            end = text.find(mark, start + len(mark))
            if end < 0 and (outside := _OUTSIDE.search(text, start + len(mark))) is not None:
                rest = outside.start()
            items.append(self._read_item(text[start + 1 : end + 1 if end >= 0 else rest]))
            start = end
        made = self._read_lines(text[: found.start() + len("items:\n")] + text[rest:], self._max_depth)
        if type(made) is not dict or made.get("items", made) is not None:
            raise NotBlock
        made["items"] = items
        return made

    def _read_item(self, text: str) -> Any:
        with suppress(NotBlock):
            return self._templates.read(text)
        depth = self._max_depth - 1
        try:
            made = self._read_lines(text, depth)
        except NotBlock:
            made = self._read_fully(text, depth)
        if type(made) is not list or len(made) != 1:
            raise NotBlock
        return made[0]


def _read_lines(text: str, scalars: ScalarValues, max_depth: int) -> Any:
    root: list[Any] = []
    top: Any = root
    indent = -1  # of `top`
    above: list[tuple[int, Any]] = []  # the open containers around `top`, with their indents
    key: str | None = None  # the key whose value begins on a later line
    awaited = True  # whether a value is expected: of `key`, or the next item of `top`
    plain = ""  # the text of the scalar in the line above, which may continue
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
            if other and other[0] != "#":
                if not plain or column <= indent:
                    raise NotBlock
                plain = scalars.continued(plain, other)
                top[-1 if key is None else key] = scalars[plain]
            else:  # an empty line or a comment
                plain = ""
            continue
        plain = ""
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
        if value and (value[0] == " " or value[-1] == " "):
            value = value.strip(" ")
        if not value or value[0] == "#":  # nothing, or a comment
            if key is None:
                raise NotBlock
            awaited = True
            continue
        if value in _LITERAL:
            stop = _literal_end(text, position, indent)
            made = scalars.literal(value, text[position:stop])
            position = stop
        elif value[0] in "{[":
            made = scalars.flow(value)
        elif value[0] in "'\"" and scalars.is_open(value):
            made, position = scalars.folded(text, text.index(value[0], match.start(4 if name else 5)))
        else:
            made, plain = scalars[value], value
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
