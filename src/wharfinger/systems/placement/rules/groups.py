"""Decision groups: divides the selection into named groups and groups of a given size, for rollouts."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import msgspec
import numpy as np

from wharfinger.systems.placement.rules.fleet import Fleet
from wharfinger.systems.placement.rules.plan import Misconfiguration, PlacementPlan


class SelectedGroup(msgspec.Struct, frozen=True):
    name: str
    rows: tuple[int, ...]  # in decision order


def group_length(size: int | Fraction, total: int) -> int:
    """The size of a group: a number, or a share of the total, rounded up. An unusable size means one group for all."""
    length = -(-total * size.numerator // size.denominator) if isinstance(size, Fraction) else size
    return length if 0 < length <= total else total


def cut(
    fleet: Fleet, plan: PlacementPlan, totals: dict[int, int], selected: Iterable[int], now: float
) -> list[SelectedGroup] | Misconfiguration:
    """Named groups take the clusters that they match, in order; the rest goes to unnamed groups. There is at least one
    group."""
    rows = list(selected)
    if isinstance(plan.group_size, Misconfiguration):
        return plan.group_size
    if isinstance(plan.groups, Misconfiguration):
        return plan.groups
    ranks = fleet.ranks
    if plan.by_score:
        rows.sort(key=lambda row: (-totals.get(row, 0), ranks[row]))
    else:
        rows.sort(key=lambda row: int(ranks[row]))
    length = group_length(plan.group_size, len(rows))
    groups: list[SelectedGroup] = []
    left = np.array(rows, np.int64)
    for group in plan.groups:
        matched = fleet.matching(group.selector, now)[left]
        groups += _chunks(group.name, left[matched].tolist(), length)
        left = left[~matched]
    groups += _chunks("", left.tolist(), length)
    return groups or [SelectedGroup("", ())]


def _chunks(name: str, rows: list[int], length: int) -> list[SelectedGroup]:
    return [SelectedGroup(name, tuple(rows[start : start + length])) for start in range(0, len(rows), max(1, length))]
