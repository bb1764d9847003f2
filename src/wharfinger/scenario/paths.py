"""Field paths of expectations: `status.conditions[type=Ready].status`, `metadata.annotations['a.b/c']`, `spec.units[0].name`."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_SEGMENT = re.compile(
    r"""
    (?:^|\.)(?P<name>[^.\[\]'"]+)
    | \[(?P<index>\d+)\]
    | \[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]
    | \[(?P<key>[^=\[\]'"]+)=(?P<value>[^\]]*)\]
    """,
    re.VERBOSE,
)


class BadPath(ValueError):
    """The text is not a field path."""


class _Absent:
    """The value of a path that does not exist; not None, because that is a valid value."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = _Absent()


class Path(msgspec.Struct, frozen=True):
    """A parsed path. A string is a key, an int an index into a list, a pair the field and value of a list item."""

    text: str
    steps: tuple[str | int | tuple[str, str], ...]

    def of(self, document: Any) -> Any:
        value = document
        for step in self.steps:
            value = _enter(value, step)
            if value is ABSENT:
                return ABSENT
        return value


def parse_path(text: str) -> Path:
    steps: list[str | int | tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _SEGMENT.match(text, position)
        if match is None:
            raise BadPath(
                f"cannot read the field path {text!r} at {text[position:]!r}; "
                "write a.b.c, list[0], list[key=value] or map['dotted.key']"
            )
        if match["name"] is not None:
            steps.append(match["name"])
        elif match["index"] is not None:
            steps.append(int(match["index"]))
        elif match["quote"] is not None:
            steps.append(match["quoted"])
        else:
            steps.append((match["key"], match["value"].strip("'\"")))
        position = match.end()
    if not steps:
        raise BadPath("a field path cannot be empty")
    return Path(text, tuple(steps))


def _enter(value: Any, step: str | int | tuple[str, str]) -> Any:
    match step:
        case str():
            return value.get(step, ABSENT) if isinstance(value, dict) else ABSENT
        case int():
            return value[step] if isinstance(value, list) and step < len(value) else ABSENT
        case (key, wanted):
            for item in value if isinstance(value, list) else ():
                if isinstance(item, dict) and key in item and scalar_text(item[key]) == wanted:
                    return item
            return ABSENT


def scalar_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
