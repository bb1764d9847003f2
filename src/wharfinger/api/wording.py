"""Numbers, lists and faults in English text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any


def counted(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Iterable[str], most: int) -> str:
    """The first `limit` names and the number of others: `a, b and 3 more`."""
    all_names = list(names)
    left_out = len(all_names) - most
    return ", ".join(all_names[:most]) + (f" and {left_out} more" if left_out > 0 else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that a misspelt one is most like; empty if none is like it."""
    from difflib import get_close_matches  # only mistakes need it

    return next(iter(get_close_matches(name, list(known), 1, 0.6)), "")


_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "bytes": "string"}
_QUOTED = re.compile(r"`([^`]*)`")


def decoding_fault(error: Exception) -> str:
    """A decoding error of msgspec with the types of JSON and OpenAPI, and with the path in front."""
    path, message = path_and_fault(error)
    return f"{path}: {message}" if path else message


def path_and_fault(error: Exception) -> tuple[str, str]:
    """The path, empty for the whole value, and the message."""
    message, _, path = str(error).partition(" - at `$")
    message = _QUOTED.sub(lambda match: " or ".join(_TYPES.get(each, each) for each in match[1].split(" | ")), message)
    message = f"{message[:1].lower()}{message[1:]}" if message.startswith(("Expected", "Object", "Input")) else message
    return path.removesuffix("`").removeprefix(".").replace("[...]", "[]"), message


def object_name(document: Mapping[str, Any]) -> str:
    """`namespace/name` of an object, or `name` where it has no namespace."""
    metadata = document.get("metadata") or {}
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata.get('name')}" if namespace else str(metadata.get("name"))
