"""Counts or percentages (upstream's intstr), and the limits of rolling updates."""

from __future__ import annotations

import re

from wharfinger.api.views.workloads import IntOrPercent


def scaled(value: IntOrPercent, total: int, *, round_up: bool) -> int:
    """The number that `3` or `25%` stands for, given the `total`. Raises ValueError for any other text."""
    if isinstance(value, int):
        return value
    if not re.fullmatch(r"[0-9]{1,18}%", value):
        raise ValueError("invalid value for IntOrPercent: invalid type: string is not a percentage")
    product = int(value[:-1]) * total
    return -(-product // 100) if round_up else product // 100


def surge_and_unavailable(
    surge: IntOrPercent | None, unavailable: IntOrPercent | None, desired: int
) -> tuple[int, int]:
    """Both limits of a rolling update. Surge is rounded up, unavailability down; they are never both 0."""
    most_surge = scaled(surge if surge is not None else 0, desired, round_up=True)
    most_unavailable = scaled(unavailable if unavailable is not None else 0, desired, round_up=False)
    if most_surge == 0 and most_unavailable == 0:
        # Validation rejects two zeros, but percentages may be rounded to them; the update must make progress.
        most_unavailable = 1
    return most_surge, most_unavailable
