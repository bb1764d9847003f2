"""Columns of resource metrics."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.api.columns.cells import computed
from wharfinger.api.quantity import format_nano, parse_nano
from wharfinger.api.registry import Column, Document


def _of_node(resource: str) -> Callable[[Document], str]:
    return lambda document: str((document.get("usage") or {}).get(resource, "0"))


def _of_pod(resource: str) -> Callable[[Document], str]:
    def total(document: Document) -> str:
        usages = (container.get("usage") or {} for container in document.get("containers") or ())
        amount = sum(parse_nano(usage.get(resource, "0")) for usage in usages)
        return format_nano(amount, "binary" if resource == "memory" else "decimal")

    return total


NODE_METRICS_COLUMNS = (
    computed("cpu", _of_node("cpu")),
    computed("memory", _of_node("memory")),
    Column("Window", "window"),
)
POD_METRICS_COLUMNS = (
    computed("cpu", _of_pod("cpu")),
    computed("memory", _of_pod("memory")),
    Column("Window", "window"),
)
