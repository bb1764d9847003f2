"""Numbers and lists in English text."""

from __future__ import annotations

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


def object_name(document: Mapping[str, Any]) -> str:
    """`namespace/name` of an object, or `name` where it has no namespace."""
    metadata = document.get("metadata") or {}
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata.get('name')}" if namespace else str(metadata.get("name"))
