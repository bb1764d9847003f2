"""Columns of the node table: integers, flags and dictionary-encoded labels, one value for each row.

A column is one block of memory with two views: `cells` reads and writes single rows fast, `view` is a numpy array over
all rows. Growing replaces both, so neither may be held across events.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Hashable, Mapping

import numpy as np
import numpy.typing as npt

from wharfinger.api.numbers import parse_int64
from wharfinger.api.selectors import Operator, Requirement

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

ABSENT = -1
"""The code of a label that the node does not have."""


def distinct(values: npt.ArrayLike) -> Ints:
    """The distinct values in ascending order: `np.unique`, which takes ten times as long for few values, and loads
    masked arrays."""
    ordered = np.array(values, dtype=np.int64)
    ordered.sort()
    if len(ordered) < 2:
        return ordered
    first = np.empty(len(ordered), dtype=np.bool_)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


class IntColumn:
    """An int64 for each row."""

    __slots__ = ("cells", "view")

    def __init__(self, capacity: int, fill: int = 0) -> None:
        self.cells = array("q", [fill]) * capacity
        self.view: Ints = np.frombuffer(self.cells, dtype=np.int64)

    def take(self, rows: Rows) -> Ints:
        """The cells of some rows; faster than indexing the view."""
        return self.view.take(rows)

    def grow(self, capacity: int, fill: int = 0) -> None:
        old = self.view
        self.cells = array("q", [fill]) * capacity
        self.view = np.frombuffer(self.cells, dtype=np.int64)
        self.view[: len(old)] = old


class InternedColumn(IntColumn):
    """A number for the value of each row; rows with equal values have equal numbers."""

    __slots__ = ("_next", "_numbers")

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._numbers: dict[Hashable, int] = {}
        self._next = 0

    def number(self, value: Hashable) -> int:
        """The number of a value: 0, 1, 2 and so on as values appear."""
        number = self._numbers.get(value)
        if number is None:
            if len(self._numbers) > 2 * len(self.cells):
                self._numbers.clear()  # most belong to nodes that are gone; numbers are not used again
            number = self._numbers[value] = self._next
            self._next += 1
        return number


class TieBreaks(IntColumn):
    """The order among rows of equal score: the smallest number first. A row that was chosen goes to the end."""

    __slots__ = ("_last", "_random")

    def __init__(self, capacity: int, seed: int) -> None:
        super().__init__(capacity)
        self._last = 0
        self._random = random.Random(seed)

    def enter(self, row: int) -> None:
        """A row is new: it comes before all that were chosen, in random order."""
        self.cells[row] = self._random.getrandbits(30) - (1 << 30)

    def chosen(self, row: int) -> None:
        self._last += 1
        self.cells[row] = self._last


class Flags:
    """A bool for each row."""

    __slots__ = ("cells", "view")

    def __init__(self, capacity: int) -> None:
        self.cells = bytearray(capacity)
        self.view: Bools = np.frombuffer(self.cells, dtype=np.bool_)


class LabelColumn:
    """The value of one label on each row, as a code: equal values have equal codes, `ABSENT` means no such label."""

    def __init__(self, key: str, capacity: int) -> None:
        self.key = key
        self.codes = IntColumn(capacity, ABSENT)
        self.code_of: dict[str, int] = {}
        self.values: list[str] = []
        self._holders: list[int] = []  # [code] number of nodes with the value
        self._shared = 0  # values that more than one node has

    @property
    def unique(self) -> bool:
        """Whether no two nodes have the same value, as is usual for host names."""
        return self._shared == 0

    def set(self, row: int, labels: Mapping[str, str]) -> None:
        value = labels.get(self.key)
        old = self.codes.cells[row]
        new = ABSENT if value is None else self.code(value)
        if old == new:
            return
        self.codes.cells[row] = new
        if old >= 0:
            self._holders[old] -= 1
            self._shared -= self._holders[old] == 1
        if new >= 0:
            self._holders[new] += 1
            self._shared += self._holders[new] == 2

    def same(self, row: int, other: int) -> bool:
        """Whether both rows have the label, with the same value."""
        return self.codes.cells[row] >= 0 and self.codes.cells[row] == self.codes.cells[other]

    def rows_like(self, row: int) -> list[int]:
        """The rows with the same value as this one; none if it lacks the label."""
        code = self.codes.cells[row]
        return [] if code < 0 else np.flatnonzero(self.codes.view == code).tolist()

    def code(self, value: str) -> int:
        code = self.code_of.get(value)
        if code is None:
            code = self.code_of[value] = len(self.values)
            self.values.append(value)
            self._holders.append(0)
        return code

    def mask(self, requirement: Requirement, rows: Rows) -> Bools:
        """Which of the rows meet the requirement; the same as `Requirement.matches` for each."""
        codes = self.codes.take(rows)
        match requirement.operator:
            case Operator.IN:
                return self._among(codes, requirement.values)
            case Operator.NOT_IN:
                return ~self._among(codes, requirement.values)
            case Operator.EXISTS:
                return codes >= 0
            case Operator.DOES_NOT_EXIST:
                return codes < 0
            case Operator.GT | Operator.LT:
                return self._compared(codes, requirement)

    def _among(self, codes: Ints, values: frozenset[str]) -> Bools:
        wanted = [code for value in values if (code := self.code_of.get(value)) is not None]
        if not wanted:
            return np.zeros(len(codes), dtype=np.bool_)
        if len(wanted) == 1:
            same: Bools = codes == wanted[0]
            return same
        return np.isin(codes, wanted)

    def _compared(self, codes: Ints, requirement: Requirement) -> Bools:
        bound = parse_int64(next(iter(requirement.values)))
        # One entry more than there are values, always false: code -1 reads it.
        holds = np.zeros(len(self.values) + 1, dtype=np.bool_)
        for code, value in enumerate(self.values):
            number = parse_int64(value)
            if number is not None and bound is not None:
                holds[code] = number > bound if requirement.operator is Operator.GT else number < bound
        return holds[codes]
