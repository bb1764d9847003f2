"""Sets of completion indexes, written as `0,2-4`. Pure.

They are kept as intervals, since a job may have 2^31 indexes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from wharfinger.api.numbers import parse_uint64

Interval = tuple[int, int]


class Indexes:
    """An immutable set of ordered, disjoint and non-adjacent intervals."""

    __slots__ = ("intervals",)

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        merged: list[Interval] = []
        for first, last in sorted(intervals):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        self.intervals = tuple(merged)

    @classmethod
    def of(cls, indexes: Iterable[int]) -> Indexes:
        return cls((index, index) for index in indexes)

    @classmethod
    def parse(cls, text: str, completions: int) -> Indexes:
        """The indexes below `completions`; malformed parts are ignored."""
        found: list[Interval] = []
        for part in filter(None, text.split(",")):
            first, dash, last = part.partition("-")
            start, end = parse_uint64(first), parse_uint64(last) if dash else 0
            if start is None or end is None:
                continue
            if start >= completions:
                break
            found.append((start, min(end, completions - 1) if dash else start))
        return cls(found)

    def __or__(self, other: Indexes) -> Indexes:
        return Indexes((*self.intervals, *other.intervals))

    def __contains__(self, index: int) -> bool:
        place = bisect_left(self.intervals, index, key=lambda interval: interval[1])
        return place < len(self.intervals) and self.intervals[place][0] <= index

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.intervals)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Indexes) and self.intervals == other.intervals

    def __hash__(self) -> int:
        return hash(self.intervals)

    def __str__(self) -> str:
        """Two adjacent indexes are separated by a comma, as upstream writes them."""
        return ",".join(
            str(first) if first == last else f"{first},{last}" if last == first + 1 else f"{first}-{last}"
            for first, last in self.intervals
        )

    def overlap(self, other: Indexes) -> int:
        """The number of common indexes."""
        return len(self) + len(other) - len(self | other)

    def missing(self, completions: int) -> Iterator[int]:
        """The indexes below `completions` that are not in the set, lowest first."""
        candidate = 0
        for first, last in (*self.intervals, (completions, completions)):
            yield from range(candidate, min(first, completions))
            candidate = max(candidate, last + 1)
