"""Shapes whose pods come in turn: each row that changed is evaluated for all of them at once.

A shape that is asked for the first time in a while would otherwise evaluate all rows that the pods of other shapes changed.
Instead, the rows are evaluated a few at a time, as arrays over rows and shapes, and each shape takes the values of those
that changed since it was asked last. That takes plugins that can answer for many shapes together (`Prepared.joint_key`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from wharfinger.engine.rows import REFUSED, SHIFT, RowParts, RowScope
from wharfinger.framework.columns import Bools, IntColumn, Ints, Rows
from wharfinger.framework.joint import JointAnswers
from wharfinger.framework.tables import Tables

# Values of different members at a distance of a power of two would share few lines of the processor's cache.
PADDING = 8

Cohorts = dict[Hashable, "Cohort"]
"""By `RowScope.joint_key`."""


class CohortMember:
    """One shape of a cohort."""

    __slots__ = ("constant", "index", "position", "scope")

    def __init__(self, scope: RowScope, constant: int, index: int, position: int) -> None:
        self.scope = scope
        self.constant = constant  # added to all scores
        self.index = index  # -1: no longer a member
        self.position = position  # of the log when it was asked last


class Cohort:
    """The values that the rows which changed last have for each member: scores of row scope, the member's constant and the
    tie-break, as in `RowValues`."""

    BLOCK = 4  # rows evaluated at once; fewer are left to the shape that is asked
    FALLEN_BEHIND = 32  # with more rows to evaluate than these, other shapes are asked most of the time
    LENGTH = 2048  # rows whose values are kept; a member that is not asked while half as many change leaves
    MOST = 512  # members
    KNOWN = 1024  # results by inputs that are kept; if fewer rows are found among them, that does not pay

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._members: list[CohortMember] = []
        # With whether they filter, and the weight of their scores.
        self._joint: list[tuple[JointAnswers, bool, int]] = []
        self._constants: Ints = np.zeros(0, dtype=np.int64)  # [member]
        self._possible = False
        #: By the cells of the inputs: the scores for each member, and who accepts; None: all do. None if rows differ too much.
        self._known: dict[tuple[int, ...], tuple[Ints, Bools | None]] | None = None
        self._inputs: Sequence[Sequence[int]] = ()
        self._hits = 0  # rows that were found there
        self._node_position = -1
        self._start = self._done = -1  # positions of the log between which the rows are known
        self._rows: Rows = np.zeros(self.LENGTH, dtype=np.int64)  # [position]
        self._values: Ints = np.zeros((0, self.LENGTH + PADDING), dtype=np.int64)  # [member, position]
        self._last: dict[int, int] = {}  # by row: the last position at which it changed

    def join(self, scope: RowScope, constant: int) -> CohortMember | None:
        """A new member, whose values reflect the tables as they are now. None if there are too many."""
        if self._members:
            self._follow()
        index = len(self._members)
        if index >= self.MOST:
            return None
        if index >= len(self._values):
            grown = np.zeros((max(16, 2 * index), self.LENGTH + PADDING), dtype=np.int64)
            grown[:index] = self._values
            self._values = grown
        member = CohortMember(scope, constant, index, self._tables.pod_log.position)
        self._members.append(member)
        self._joint = []
        return member

    def set_constant(self, member: CohortMember, constant: int) -> None:
        """For a member whose values reflect the tables as they are now."""
        member.constant = constant
        member.position = self._tables.pod_log.position
        self._joint = []

    def leave(self, member: CohortMember) -> None:
        member.position = -1

    def changed(self, member: CohortMember, position: int) -> tuple[Rows, Ints, Sequence[int]] | None:
        """The rows that changed after a position of the log, in order, with their values for the member; the last few of them
        without. A row that occurs more than once has the same value each time. None if they are not known."""
        log = self._tables.pod_log
        member.position = log.position
        if position >= self._start:
            self._follow()
        if position < self._start:
            return None
        first, last = position - self._start, self._done - self._start
        if first >= last:
            return self._rows[:0], self._values[0, :0], _rows(log.since(position))
        return self._rows[first:last], self._values[member.index, first:last], _rows(log.since(self._done))

    def _follow(self) -> None:
        """Evaluates the rows that changed, unless there are few or too many, or it is not possible."""
        tables = self._tables
        if self._node_position != tables.node_log.position:
            self._node_position = tables.node_log.position
            self._joint = []
            self._start_over()
        if tables.pod_log.position - self._done > self.FALLEN_BEHIND:
            self._start_over()
        if self._done - self._start > self.LENGTH - self.FALLEN_BEHIND:
            self._drop_half()
        if tables.pod_log.position - self._done >= self.BLOCK:
            if not self._joint:
                self._prepare()
            rows = _rows(tables.pod_log.since(self._done))
            if not self._possible or any(tables.nodes[row] is None for row in rows):
                self._start_over()
            else:
                self._evaluate(rows)

    def _start_over(self) -> None:
        """No row is known."""
        self._start = self._done = self._tables.pod_log.position

    def _prepare(self) -> None:
        scopes = [each.scope for each in self._members]
        self._joint = [
            (type(answers).jointly([scope.parts[index][0] for scope in scopes]), filters, weight)
            for index, (answers, filters, weight) in enumerate(scopes[0].parts)
        ]
        self._constants = np.array([each.constant for each in self._members], dtype=np.int64)
        self._possible = all(each.possible() for each, _, _ in self._joint)
        self._inputs, self._hits = scopes[0].inputs, 0
        alike = all(each.names_inputs and _same(each.inputs, self._inputs) for each in scopes)
        self._known = {} if alike else None

    def _evaluate(self, rows: list[int]) -> None:
        found = self._results(rows)
        ties = self._tables.tie_breaks.cells
        values: Ints = np.array([scores for scores, _ in found])
        values -= np.array([ties[row] for row in rows])[:, None]
        for index, (_, accepted) in enumerate(found):
            if accepted is not None:
                values[index, ~accepted] = REFUSED
        self._keep(rows, values)

    def _results(self, rows: Sequence[int]) -> Sequence[tuple[Ints, Bools | None]]:
        """The scores of each row as in values, and which members accept it. Rows that are equal in everything that the members
        read are evaluated once."""
        known = self._known
        if known is None:
            return self._evaluate_jointly(rows)
        inputs = self._inputs
        keys = [tuple([cells[row] for cells in inputs]) for row in rows]
        new = {key: row for key, row in zip(keys, rows, strict=True) if key not in known}
        if new:
            known |= zip(new, self._evaluate_jointly(list(new.values())), strict=True)
        found = [known[key] for key in keys]
        self._hits += len(rows) - len(new)
        if len(known) > self.KNOWN:
            self._known = {} if self._hits > len(known) else None
            self._hits = 0
        return found

    def _evaluate_jointly(self, rows: Sequence[int]) -> Sequence[tuple[Ints, Bools | None]]:
        number = len(self._members)
        self._tables.work.rows += len(rows) * number
        total: Ints = np.zeros((len(rows), number), dtype=np.int64)
        total += self._constants
        accepted: Bools | None = None
        for each, filters, weight in self._joint:
            if weight:
                part = each.scores(rows)
                if weight != 1:
                    part *= weight
                total += part
            passed = each.accepts(rows) if filters else None
            if passed is not None:
                accepted = passed if accepted is None else accepted & passed
        total <<= SHIFT
        return [
            (total[index], None if accepted is None or accepted[index].all() else accepted[index])
            for index in range(len(rows))
        ]

    def _keep(self, rows: Sequence[int], values: Ints) -> None:
        at, number = self._done - self._start, len(self._members)
        self._rows[at : at + len(rows)] = rows
        self._values[:number, at : at + len(rows)] = values.T
        for index, row in enumerate(rows):
            before = self._last.get(row, -1)
            if before >= self._start:
                self._values[:number, before - self._start] = values[index]
            self._last[row] = self._done + index
        self._done += len(rows)

    def _drop_half(self) -> None:
        """Forgets the older half of the rows, and the members that were not asked since."""
        length = self._done - self._start
        dropped = length // 2
        self._rows[: length - dropped] = self._rows[dropped:length].copy()
        self._values[:, : length - dropped] = self._values[:, dropped:length].copy()
        self._start += dropped
        self._last = {row: position for row, position in self._last.items() if position >= self._start}
        kept = [each for each in self._members if each.position >= self._start]
        if len(kept) == len(self._members):
            return
        self._values[: len(kept)] = self._values[[each.index for each in kept]]
        for each in self._members:
            each.index = -1
        for index, each in enumerate(kept):
            each.index = index
        self._members = kept
        self._joint = []


class CohortPlace:
    """The place of one shape in the cohort that it belongs to, if any."""

    __slots__ = ("_cohort", "_cohorts", "_member", "_parts", "_tables")

    def __init__(self, tables: Tables, parts: RowParts, cohorts: Cohorts) -> None:
        self._tables = tables
        self._parts = parts
        self._cohorts = cohorts
        self._cohort: Cohort | None = None
        self._member: CohortMember | None = None

    def changed(
        self, position: int, constant: int, beyond: IntColumn | None
    ) -> tuple[Rows, Ints, Sequence[int]] | None:
        """`Cohort.changed` with what node scope says, and scores from elsewhere: a constant, and those of a column. With None,
        the shape is a member from now on, if that is possible."""
        cohort, member = self._cohort, self._member
        if cohort is None or member is None or member.index < 0:
            self._join(constant)
            return None
        if member.constant != constant:
            cohort.set_constant(member, constant)
            return None
        found = cohort.changed(member, position)
        if found is None:
            return None
        rows, values, late = found
        parts = self._parts
        for column in (parts.node_base if parts.nodes_score else None, beyond):
            if column is not None:
                values = np.where(values == REFUSED, REFUSED, values + (column.view[rows] << SHIFT))
        if not parts.nodes_accept:
            values = np.where(parts.node_accepts.view[rows], values, REFUSED)
        return rows, values, late

    def _join(self, constant: int) -> None:
        if self._cohort is None:
            key = self._parts.scope.joint_key()
            if key is None:
                return
            self._cohort = self._cohorts.get(key)
            if self._cohort is None:
                self._cohort = self._cohorts[key] = Cohort(self._tables)
        self._member = self._cohort.join(self._parts.scope, constant)

    def leave(self) -> None:
        if self._cohort is not None and self._member is not None:
            self._cohort.leave(self._member)


def _same(inputs: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> bool:
    return len(inputs) == len(others) and all(one is other for one, other in zip(inputs, others, strict=True))


def _rows(logged: Sequence[int] | None) -> list[int]:
    return [] if logged is None else list(logged)
