"""What reading one YAML document gives, and its limits."""

from __future__ import annotations

from typing import Any

import msgspec

MAX_DEPTH = 200
MAX_ALIASED = 1_000_000  # nodes that aliases may add to one document
MAX_REQUEST_NODES = 40_000  # in a request, aliases expanded: reading them takes a tenth of a second at most


class BadYaml(ValueError):
    """The text is not valid YAML, or exceeds our limits; `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Reading(msgspec.Struct):
    """One document. `faults` are (line, path, message); `repaired` has the corrections."""

    value: Any = None
    empty: bool = True
    line: int = 1
    faults: list[tuple[int, str, str]] = msgspec.field(default_factory=list)
    repaired: list[tuple[int, str]] = msgspec.field(default_factory=list)
    lines: dict[str, int] = msgspec.field(default_factory=dict)  # by path, if requested
