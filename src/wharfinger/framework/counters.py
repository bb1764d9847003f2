"""Counts of pods per topology domain, updated as pods come and go, so that affinity is a look-up.

A `DomainCounter` holds one number for each value of a topology key. A `TermCounter` counts the pods on nodes that carry
an affinity term, a `PodCounter` those that match a selection in which some shape is interested. A `RowCounter` counts
matching pods on each node. Equal terms and selections share a counter; `Counters` holds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from wharfinger.framework.columns import Bools, Ints, LabelColumn, Rows
from wharfinger.framework.label_index import PodSelection, SelectionIndex, ShapeIndex
from wharfinger.framework.pod_selectors import AffinityTerm

if TYPE_CHECKING:
    from wharfinger.framework.shapes import Shape
    from wharfinger.framework.tables import PodOnNode


class DomainCounter:
    """One count for each domain of a topology key.

    `total` is the sum of the counts. `version` moves with every change, `crossings` when a count changes to or from zero.
    """

    __slots__ = ("column", "counts", "crossings", "total", "version")

    def __init__(self, column: LabelColumn) -> None:
        self.column = column
        self.counts: Ints = np.zeros(max(64, len(column.values) + 1), dtype=np.int64)
        self.total = 0
        self.version = 0
        self.crossings = 0

    def add(self, row: int, amount: int) -> None:
        """Adds to the count of the row's domain; a node without the key is in no domain."""
        code = self.column.codes.cells[row]
        if code < 0:
            return
        if code >= len(self.counts):
            grown = np.zeros(max(2 * len(self.counts), code + 1), dtype=np.int64)
            grown[: len(self.counts)] = self.counts
            self.counts = grown
        before = int(self.counts[code])
        self.counts[code] = before + amount
        if (before > 0) != (before + amount > 0):
            self.crossings += 1
        self.total += amount
        self.version += 1

    def at(self, row: int) -> int:
        return self.of(self.column.codes.cells[row])

    def of(self, code: int) -> int:
        """The count of a domain; 0 for `ABSENT`."""
        return int(self.counts[code]) if 0 <= code < len(self.counts) else 0

    def on(self, rows: Rows) -> Ints:
        """The count of each row's domain; 0 for nodes without the key."""
        codes = self.column.codes.take(rows)
        if len(self.counts) < len(self.column.values) + 1:
            grown = np.zeros(2 * len(self.column.values) + 1, dtype=np.int64)
            grown[: len(self.counts)] = self.counts
            self.counts = grown
        # The last cell belongs to no domain: code -1 reads it.
        return self.counts.take(codes, mode="wrap")


class TermKind(msgspec.Struct, frozen=True):
    """An affinity term of a pod on a node, with the rule it belongs to and its weight if it is a preferred one."""

    rule: str  # requiredAffinity, requiredAntiAffinity, preferredAffinity, preferredAntiAffinity
    weight: int
    term: AffinityTerm


class TermCounter(DomainCounter):
    """The number of pods on nodes that carry a term, for each domain of its topology key."""

    __slots__ = ("carriers", "kind")

    def __init__(self, column: LabelColumn, kind: TermKind) -> None:
        super().__init__(column)
        self.kind = kind
        self.carriers = 0  # includes pods on nodes without the topology key

    def add(self, row: int, amount: int) -> None:
        self.carriers += amount
        super().add(row, amount)


class PodCounter(DomainCounter):
    """The number of pods on nodes that a selection matches, for each domain of a topology key."""

    __slots__ = ("selection",)

    def __init__(self, column: LabelColumn, selection: PodSelection) -> None:
        super().__init__(column)
        self.selection = selection


class RowCounter:
    """The number of pods on each row that a selection matches. Readers catch up with `since`, as with a `Log`."""

    LIMIT = 1 << 14

    __slots__ = ("_base", "_deltas", "counts", "selection")

    def __init__(self, capacity: int, selection: PodSelection) -> None:
        self.selection = selection
        self.counts: Ints = np.zeros(capacity, dtype=np.int64)
        self._deltas: list[tuple[int, int]] = []
        self._base = 0

    @property
    def version(self) -> int:
        return self._base + len(self._deltas)

    def add(self, row: int, amount: int) -> None:
        self.counts[row] += amount
        self._deltas.append((row, amount))
        if len(self._deltas) > self.LIMIT:
            del self._deltas[: self.LIMIT // 2]
            self._base += self.LIMIT // 2

    def since(self, version: int) -> list[tuple[int, int]] | None:
        """The changes after the version, as (row, amount); None when they are no longer known."""
        return None if version < self._base else self._deltas[version - self._base :]

    def grow(self, capacity: int) -> None:
        grown = np.zeros(capacity, dtype=np.int64)
        grown[: len(self.counts)] = self.counts
        self.counts = grown


def any_on(counters: Iterable[DomainCounter], rows: Rows) -> Bools:
    """Which of the rows are in a domain where one of the counts is above zero."""
    found = np.zeros(len(rows), dtype=np.bool_)
    for counter in counters:
        if counter.total:
            found |= counter.on(rows) > 0
    return found


Counting = PodCounter | RowCounter


class Counters:
    """The counters in use. The tables call `count` for every pod that comes to a row or leaves it."""

    SWEEP = 1024

    def __init__(self, column: Callable[[str], LabelColumn], capacity: Callable[[], int]) -> None:
        self._column = column
        self._capacity = capacity
        self.terms: dict[TermKind, TermCounter] = {}
        self.terms_version = 0  # moves when a term is added or dropped
        self._generation = 0
        self._pods: dict[tuple[str | None, PodSelection], tuple[Counting, int]] = {}  # and the number of users
        self._pods_version = 0
        self._by_label = SelectionIndex()
        self._placed = ShapeIndex()
        self.version = 0  # moves whenever any count does

    def pod_counter(self, topology_key: str, selection: PodSelection) -> PodCounter:
        """A counter of matching pods over a topology key; to be given back with `release`."""
        counter = self._acquire(topology_key, selection)
        assert isinstance(counter, PodCounter)
        return counter

    def row_counter(self, selection: PodSelection) -> RowCounter:
        """A counter of matching pods on each row; to be given back with `release`."""
        counter = self._acquire(None, selection)
        assert isinstance(counter, RowCounter)
        return counter

    def _acquire(self, topology_key: str | None, selection: PodSelection) -> Counting:
        key = (topology_key, selection)
        counter, users = self._pods.get(key, (None, 0))
        if counter is None:
            counter = (
                RowCounter(self._capacity(), selection)
                if topology_key is None
                else PodCounter(self._column(topology_key), selection)
            )
            self._pods_version += 1
            self._by_label.add(counter)
            for shape in self._placed.matching(selection):
                for pod in shape.placed:
                    if not (pod.terminating and selection.ignore_terminating):
                        counter.add(pod.row, 1)
        self._pods[key] = (counter, users + 1)
        return counter

    def release(self, counter: Counting) -> None:
        key = (counter.column.key if isinstance(counter, PodCounter) else None, counter.selection)
        found, users = self._pods[key]
        if users > 1:
            self._pods[key] = (found, users - 1)
        else:
            del self._pods[key]
            self._by_label.remove(found)
            self._pods_version += 1

    def first_placed(self, shape: Shape) -> None:
        """The first pod of a shape came to a node."""
        self._placed.add(shape)

    def last_removed(self, shape: Shape) -> None:
        self._placed.remove(shape)

    def count(self, pod: PodOnNode, amount: int) -> None:
        """A pod came to its row (1) or left it (-1)."""
        shape = pod.shape
        if not self._pods and not shape.has_terms:
            return
        if shape.counted_version != self._pods_version:
            shape.counted = self._by_label.matching(shape)
            shape.counted_version = self._pods_version
        if shape.counted or shape.has_terms:
            self.version += 1
        for counter in shape.counted:
            if not (pod.terminating and counter.selection.ignore_terminating):
                counter.add(pod.row, amount)
        if shape.has_terms:
            for term in self._terms_of(shape):
                term.add(pod.row, amount)

    def grow(self, capacity: int) -> None:
        for counter, _ in self._pods.values():
            if isinstance(counter, RowCounter):
                counter.grow(capacity)

    def _terms_of(self, shape: Shape) -> list[TermCounter]:
        if shape.terms_generation == self._generation:
            return shape.terms
        if len(self.terms) >= self.SWEEP:
            # Drop terms that no pod carries any more, and with them what shapes have cached.
            self.terms = {kind: counter for kind, counter in self.terms.items() if counter.carriers}
            self.terms_version += 1
            self._generation += 1
        found = []
        for kind in shape.term_kinds:
            counter = self.terms.get(kind)
            if counter is None:
                counter = self.terms[kind] = TermCounter(self._column(kind.term.topology_key), kind)
                self.terms_version += 1
            found.append(counter)
        shape.terms, shape.terms_generation = found, self._generation
        return found
