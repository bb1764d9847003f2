"""Scores of several soft constraints by class of rows.

Rows that are in the same domains, and have equally many pods themselves, get the same score. With few domains other than
single nodes, there are few such classes, and a pod that comes or goes moves one row to another class.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log

import numpy as np

from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.plugin import MAX_SCORE
from wharfinger.plugins.pod_topology_spread.constraints import HOSTNAME
from wharfinger.plugins.pod_topology_spread.counting import Domains


def rounded(value: float) -> int:
    """To a whole number, halves up. The value must not be negative."""
    whole = floor(value)
    return whole + (value - whole >= 0.5)


class RowClasses:
    """The class of each feasible row: its domains as one number, the place, and the pods on it that hostname constraints
    count. All of these constraints must count the same pods."""

    MOST = 64  # classes with rows; with more, arrays are faster
    MOST_PLACES = 256  # so that they fit into bytes

    def __init__(self, rows: Rows, soft: Sequence[Domains], codes: Sequence[Ints], numbers: Sequence[int]) -> None:
        """`codes` are those of the rows and `numbers` the numbers of domains, both by constraint."""
        self._rows = rows
        self._soft = soft
        self._parts = [
            (_is_node(each), log(number + 2), each.constraint.max_skew - 1)
            for each, number in zip(soft, numbers, strict=True)
        ]
        self._places_known: dict[int, list[tuple[int, int]]] = {}  # by place: see `_domains_of`
        self._counter = next(each.counter for each in soft if each.constraint.topology_key == HOSTNAME)
        self._version = -1
        # Of domains that are nodes, a place has only whether there is one.
        self._sizes = [2 if _is_node(each) else len(each.column.values) + 1 for each in soft]
        self._width = 1
        places: Ints = np.zeros(len(rows), dtype=np.int64)
        for domains, of_rows, size in zip(soft, codes, self._sizes, strict=True):
            places += (np.minimum(of_rows, 0) if _is_node(domains) else of_rows) * self._width + self._width
            self._width *= size
        self._places = places.astype(np.uint8)  # [row]
        self._classes: Ints = np.zeros(0, dtype=np.int64)  # [row]; what `take` need not convert first
        self._members: dict[int, int] = {}  # number of rows, by class
        self._scores: dict[int, int] = {}  # final scores, by class
        self._final: Ints | None = None  # [row]

    @classmethod
    def of(
        cls, rows: Rows, soft: Sequence[Domains], codes: Sequence[Ints], numbers: Sequence[int]
    ) -> RowClasses | None:
        """None if there may be too many classes."""
        nodes = [each for each in soft if _is_node(each)]
        places = 1
        for each in soft:
            places *= 2 if _is_node(each) else len(each.column.values) + 1
        if not nodes or not len(rows) or places > cls.MOST_PLACES:
            return None
        if any(each.counter is not nodes[0].counter for each in nodes):
            return None
        return cls(rows, soft, codes, numbers)

    def final(self) -> Ints | None:
        """The normalized scores of all rows, as the same array while they are the same; None if there are too many classes."""
        moved = self._catch_up()
        if len(self._members) > self.MOST:
            return None
        sums = [() if part[0] else each.sums.tolist() for part, each in zip(self._parts, self._soft, strict=True)]
        raw = [self._raw(each, sums) for each in self._members]
        largest, smallest = max(raw), min(raw)
        scores = {
            each: (largest + smallest - score) * MAX_SCORE // largest if largest else MAX_SCORE
            for each, score in zip(self._members, raw, strict=True)
        }
        if self._final is None or moved or scores != self._scores:
            by_class = [0] * (max(scores) + 1)
            for each, score in scores.items():
                by_class[each] = score
            self._scores, self._final = scores, np.array(by_class, dtype=np.int64).take(self._classes)
        return self._final

    def _raw(self, row_class: int, sums: Sequence[Sequence[int]]) -> int:
        """The raw score of the rows of a class, added up in the order of the constraints; `sums` are the pods by constraint
        and domain."""
        count, place = divmod(row_class, self._width)
        total = 0.0
        for index, domain in self._places_known.get(place) or self._domains_of(place):
            is_node, weight, skew = self._parts[index]
            total += (count if is_node else sums[index][domain]) * weight + skew
        return rounded(total)

    def _domains_of(self, place: int) -> list[tuple[int, int]]:
        """The constraints whose key rows of this place have, with the domain of each."""
        found, rest = [], place
        for index, size in enumerate(self._sizes):
            rest, code = divmod(rest, size)
            if code:  # 0: a row without the key
                found.append((index, code - 1))
        self._places_known[place] = found
        return found

    def _catch_up(self) -> bool:
        """Moves rows whose pods have come or gone to other classes; returns whether there are some."""
        counter = self._counter
        version, self._version = self._version, counter.version
        if version == counter.version:
            return False
        changes = counter.since(version) if version >= 0 else None
        if changes is None or len(changes) > self.MOST:
            classes = counter.counts.take(self._rows) * self._width + self._places
            self._classes = classes
            numbers = np.bincount(classes)
            present = np.flatnonzero(numbers)
            self._members = dict(zip(present.tolist(), numbers[present].tolist(), strict=True))
            return True
        moved = False
        for row, amount in changes:
            index = int(self._rows.searchsorted(row))
            if index < len(self._rows) and self._rows[index] == row:
                self._move(index, amount)
                moved = True
        return moved

    def _move(self, index: int, amount: int) -> None:
        before = int(self._classes[index])
        after = before + amount * self._width
        self._classes[index] = after
        self._members[after] = self._members.get(after, 0) + 1
        self._members[before] -= 1
        if not self._members[before]:
            del self._members[before]


def _is_node(domains: Domains) -> bool:
    return domains.constraint.topology_key == HOSTNAME
