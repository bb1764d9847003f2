"""Scorers whose final scores depend on the other rows, with what the totals contain of them.

Normalizing takes all feasible rows. Two kinds of scorers need not do that again for every pod: those whose final score
follows from the raw score and the range of raw scores (`ScoreClasses`), and those that score topology domains
(`Prepared.by_domain`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from wharfinger.engine.front import DomainFronts
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.domains import DomainScores
from wharfinger.framework.plugin import Prepared, Scope
from wharfinger.framework.tables import Tables


class ScoreClasses:
    """The feasible rows by raw score: how many have each, and the final score of each.

    When one row gets another raw score, usually no other row gets another final score.
    """

    MOST = 64  # distinct raw scores; with more, arrays are faster

    __slots__ = ("_counts", "_finals", "_prepared")

    def __init__(self, prepared: Prepared, counts: dict[int, int], finals: dict[int, int]) -> None:
        self._prepared = prepared
        self._counts = counts
        self._finals = finals

    @classmethod
    def of(cls, prepared: Prepared, raw: Ints) -> ScoreClasses | None:
        """The classes of raw scores; None if there are too many."""
        least = int(raw.min())
        if int(raw.max()) - least > 64 * cls.MOST:
            return None
        numbers = np.bincount(raw - least)
        present = np.flatnonzero(numbers)
        if len(present) > cls.MOST:
            return None
        values = [int(each) + least for each in present.tolist()]
        finals = prepared.normalize_values(values)
        counts = dict(zip(values, numbers[present].tolist(), strict=True))
        return cls(prepared, counts, dict(zip(values, finals, strict=True)))

    def move(self, before: int, after: int) -> dict[int, int] | None:
        """One row gets another raw score. Returns by how much the final scores of classes changed, without those that stay
        the same; None if the classes are no longer known."""
        counts = self._counts
        arrives = after not in counts
        counts[after] = counts.get(after, 0) + 1
        return self._renormalized() if self._taken(before) or arrives else {}

    def leave(self, before: int) -> dict[int, int] | None:
        """One row is no longer feasible. Returns the same as `move`."""
        return self._renormalized() if self._taken(before) else {}

    def _taken(self, value: int) -> bool:
        """Takes a row out of its class; returns whether it was the last."""
        left = self._counts[value] - 1
        if left:
            self._counts[value] = left
            return False
        del self._counts[value]
        return True

    def _renormalized(self) -> dict[int, int] | None:
        counts, known = self._counts, self._finals
        if not 0 < len(counts) <= self.MOST:
            return None
        finals = self._finals = dict(zip(counts, self._prepared.normalize_values(list(counts)), strict=True))
        return {value: final - known[value] for value, final in finals.items() if known.get(value, final) != final}

    def final(self, value: int) -> int:
        return self._finals[value]


SPARSE = 32  # of rows without gaps, which are changed as one slice, only fewer than one in so many are picked out


def gapless(rows: Rows) -> bool:
    """Whether rows in order are a range, as where all nodes are feasible."""
    return len(rows) > 1 and bool(rows[-1] - rows[0] == len(rows) - 1)


_NOTHING: Ints = np.zeros(0, dtype=np.int64)


def _no_numbers() -> Ints:
    return _NOTHING


@dataclass(slots=True, eq=False)
class NormalizedScorer:
    """The totals contain the scores of `rows` (None: they contain none), which are in one of three forms: by class, by
    domain or by row."""

    prepared: Prepared
    weight: int
    version: Hashable = None
    active: bool = False  # whether there is anything to score
    raw: Ints = field(
        default_factory=_no_numbers
    )  # [row]; not kept if `uniform`, nor for cluster scope unless `tracked`
    tracked: bool = False  # cluster scope: whether `raw` is updated row by row as pods come and go
    stale: bool = False  # whether `raw` is newer than what the totals contain
    uniform: bool = False  # whether all raw scores are equal, so that normalizing cannot tell rows apart
    same: int = 0  # the raw score of all rows then
    constant: int = 0  # what every row gets then, weighted

    rows: Rows | None = None  # the feasible rows
    final: Ints | None = None  # their normalized scores; None: only known by class. Outdated if there are domains
    scaled: bool = False  # whether they follow from raw scores (`Prepared.scales`)
    classes: ScoreClasses | None = None
    domains: DomainScores | None = None
    by_domain: list[int] = field(default_factory=list)  # [domain]

    def reset(self, capacity: int) -> None:
        self.version = None
        self.forget()
        self.active = self.tracked = self.uniform = False
        self.raw = np.zeros(capacity if self.prepared.scope is Scope.ROW else 0, dtype=np.int64)

    def nodes_changed(self, tables: Tables, rows: Rows) -> None:
        """Node scope: scores rows whose node changed."""
        if len(self.raw) != tables.capacity:
            self.raw = np.full(tables.capacity, self.same, dtype=np.int64)
        self.raw[rows] = self.prepared.score(rows)
        raw = self.raw[tables.alive]
        self.uniform = bool((raw == raw[0]).all()) if len(raw) else False
        if self.uniform:
            self.constant = int(self.prepared.normalize(raw[:1], tables.rows[:1])[0]) * self.weight
            self.same, self.raw = int(raw[0]), _NOTHING

    def track(self, tables: Tables) -> None:
        """Cluster scope: decides whether raw scores are tracked, and computes them if so."""
        prepared = self.prepared
        self.tracked = self.active and prepared.scope is Scope.CLUSTER and prepared.scores_follow_pods
        if self.tracked:
            if len(self.raw) != tables.capacity:
                self.raw = np.zeros(tables.capacity, dtype=np.int64)
            self.raw[tables.rows] = prepared.score(tables.rows)
            self.classes = None

    def normalized(self, tables: Tables, rows: Rows) -> Ints:
        """The normalized scores of the feasible rows."""
        if self.prepared.scope is Scope.CLUSTER and not self.tracked:
            final = self.prepared.final(rows)
        else:
            final = self.prepared.normalize(self.raw.take(rows), rows)
        if final is not self.final:
            tables.work.rows += len(rows)
        return final

    # -- what the totals contain

    def forget(self) -> None:
        """The totals contain nothing."""
        self.rows = self.final = self.classes = self.domains = None
        self.stale = False

    def contained(self, rows: Rows, final: Ints) -> None:
        """The totals contain these scores of all feasible rows."""
        self.rows, self.final = rows, final
        self.classes = self.domains = None
        self.stale = False
        self.scaled = self.prepared.scales
        if self.prepared.scope is Scope.CLUSTER and not self.tracked:
            found = self.prepared.by_domain(rows)
            if found is not None and 1 < len(found[0].codes) <= DomainFronts.MOST:
                self.domains, self.by_domain = found

    def classify(self) -> ScoreClasses | None:
        """The classes of what the totals contain. `raw` must not be newer than that."""
        rows = self.rows
        if self.classes is None and rows is not None and self.final is not None and self.scaled and not self.stale:
            self.classes = ScoreClasses.of(self.prepared, self.raw.take(rows))
            if self.classes is not None:
                self.final = None  # the classes are kept up to date instead
        return self.classes

    def gained(self, tables: Tables) -> tuple[Rows, Ints] | None:
        """Normalizes all feasible rows again; returns the rows whose final scores changed, or all of them, and by how much.
        None if the scores that the totals contain are not known by row."""
        before, rows = self.final, self.rows
        if before is None or rows is None:
            return None
        final = self.final = self.normalized(tables, rows)
        self.stale = False
        if final is before:
            return rows[:0], final[:0]
        difference = final - before
        changed = np.count_nonzero(difference)
        if not changed:
            return rows[:0], difference[:0]
        if changed * (SPARSE if gapless(rows) else 2) >= len(rows):
            return rows, difference  # finding the others would take longer than adding nothing to them
        where = difference.nonzero()[0]
        return rows.take(where), difference.take(where)
