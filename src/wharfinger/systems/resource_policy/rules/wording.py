"""How limits and usage of units are worded in messages, in the status and in reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wharfinger.api.wording import counted


def maximum(count: int | None, percent: int | None, amounts: Mapping[str, Any]) -> str:
    """The limits of a unit, such as `2`, `50%` or `cpu 4`; empty if it has none."""
    parts = [] if count is None else [str(count)]
    if percent is not None:
        parts.append(f"{percent}%")
    parts += [f"{name} {amount}" for name, amount in sorted(amounts.items())]
    return ", ".join(parts)


def usage(count: int, most: str, groups: int | None) -> str:
    """What a unit holds of what it may hold. `groups` is the number of groups, each with a limit of its own; None without
    matchLabelKeys."""
    if groups is None:
        if not most:
            return str(count)
        return f"{count}/{most}" if most.isdigit() else f"{count} (max {most})"
    each = f", max {most} each" if most else ""
    return f"{count} ({counted(groups, 'group')}{each})"


def group_text(keys: Sequence[str], values: Sequence[str | None]) -> str:
    """A group, such as `app=web,team=x`; a key that its pods lack is left out."""
    return ",".join(f"{key}={value}" for key, value in zip(keys, values, strict=True) if value is not None)
