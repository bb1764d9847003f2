"""Decision groups: the selection cut into named parts and parts of a given size, for rollouts to follow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from wharfinger.systems.placement.rules.fleet import Fleet
from wharfinger.systems.placement.rules.plan import Misconfiguration, PlacementPlan


@dataclass(frozen=True, slots=True)
class SelectedGroup:
    name: str
    rows: tuple[int, ...]  # in the order of decisions


def group_length(size: int | Fraction, total: int) -> int:
    """The size of a group: a number as it is, a share of the total rounded up; what is no use means all."""
    length = -(-total * size.numerator // size.denominator) if isinstance(size, Fraction) else size
    return length if 0 < length <= total else total


def cut(
    fleet: Fleet, plan: PlacementPlan, totals: dict[int, int], selected: Iterable[int], now: float
) -> list[SelectedGroup] | Misconfiguration:
    """Named groups take what they match, in order; the rest is left unnamed. There is always at least one group."""
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
