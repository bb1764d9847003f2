"""Which units of a ResourcePolicy every node is in, as a column: rows with the same units have the same kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from wharfinger.api.selectors import Requirements
from wharfinger.framework.columns import Bools, Rows
from wharfinger.framework.tables import Tables
from wharfinger.systems.resource_policy.plugin.charges import Units
from wharfinger.systems.resource_policy.rules.policy import PolicyRules

UNKNOWN = -1
"""The kind of a row without a node, or whose node was not looked at yet."""


class NodeKinds:
    def __init__(self, tables: Tables, rules: PolicyRules) -> None:
        self._tables = tables
        self._rules = rules
        self.kinds: npt.NDArray[np.int32] = np.full(tables.capacity, UNKNOWN, dtype=np.int32)  # [row]
        self.units: list[Units] = []  # of each kind
        self.version = 0  # moves when a row's kind changed, or there is a new kind
        self._numbers: dict[Units, int] = {}
        self._position = tables.node_log.position
        self._look_at(tables.rows)

    def at(self, row: int) -> Units:
        """The units of a row's node. The row is looked at when that was not done yet; the tables log a node only after
        they have put the pods on it that came before it."""
        kind = int(self.kinds[row]) if row < len(self.kinds) else UNKNOWN
        if kind != UNKNOWN:
            return self.units[kind]
        node = self._tables.nodes[row]
        return () if node is None else self._rules.units_of(node.metadata.labels)

    @property
    def behind(self) -> bool:
        """Whether nodes changed since they were looked at."""
        return self._position != self._tables.node_log.position

    def catch_up(self) -> Sequence[int]:
        """Looks again at the nodes that changed; returns the rows that are of another kind now."""
        log = self._tables.node_log
        if self._position == log.position:
            return ()
        logged = log.since(self._position)
        self._position = log.position
        capacity = self._tables.capacity
        if len(self.kinds) < capacity:
            grown = np.full(capacity, UNKNOWN, dtype=np.int32)
            grown[: len(self.kinds)] = self.kinds
            self.kinds = grown
        rows = np.arange(capacity) if logged is None else np.unique(logged)
        before = self.kinds[rows]
        self.kinds[rows] = UNKNOWN
        self._look_at(rows[self._tables.alive[rows]])
        changed: list[int] = rows[self.kinds[rows] != before].tolist()
        if changed:
            self.version += 1
        return changed

    def _look_at(self, rows: Rows) -> None:
        if not len(rows):
            return
        # [row, unit], packed to bytes so that rows with the same units compare equal as a whole
        inside = np.stack([self._selected(unit.nodes, rows) for unit in self._rules.units], axis=1)
        packed = np.packbits(inside, axis=1)
        _, first, which = np.unique(
            packed.view(np.dtype((np.void, packed.shape[1]))).ravel(), return_index=True, return_inverse=True
        )
        numbers = [self._number(self._rules.preferred(np.flatnonzero(inside[index]).tolist())) for index in first]
        self.kinds[rows] = np.array(numbers, dtype=np.int32)[which]

    def _selected(self, requirements: Requirements, rows: Rows) -> Bools:
        selected = np.ones(len(rows), dtype=np.bool_)
        for requirement in requirements:
            selected &= self._tables.label(requirement.key).mask(requirement, rows)
        return selected

    def _number(self, units: Units) -> int:
        number = self._numbers.get(units)
        if number is None:
            number = self._numbers[units] = len(self.units)
            self.units.append(units)
            self.version += 1
        return number
