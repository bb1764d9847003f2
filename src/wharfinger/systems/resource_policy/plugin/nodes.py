"""The units of each node under one ResourcePolicy, as a column: rows with the same units share a kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from wharfinger.api.selectors import Requirements
from wharfinger.framework.columns import Bools, Rows, distinct
from wharfinger.framework.tables import Tables
from wharfinger.systems.resource_policy.plugin.charges import Units
from wharfinger.systems.resource_policy.rules.policy import PolicyRules

UNKNOWN = -1
"""The kind of a row that has no node or has not been evaluated yet."""


class NodeKinds:
    def __init__(self, tables: Tables, rules: PolicyRules) -> None:
        self._tables = tables
        self._rules = rules
        self.kinds: npt.NDArray[np.int32] = np.full(tables.capacity, UNKNOWN, dtype=np.int32)  # [row]
        self.units: list[Units] = []  # by kind
        self.version = 0  # incremented when the kind of a row changes or a kind is added
        self._numbers: dict[Units, int] = {}
        self._position = tables.node_log.position
        self._evaluate(tables.rows)

    def at(self, row: int) -> Units:
        """The units of a row's node. A new row is evaluated on the spot, because the tables log a node only after
        adding the pods that arrived before it."""
        kind = int(self.kinds[row]) if row < len(self.kinds) else UNKNOWN
        if kind != UNKNOWN:
            return self.units[kind]
        node = self._tables.nodes[row]
        return () if node is None else self._rules.units_of(node.metadata.labels)

    def row(self, node: str) -> int:
        """The row of a node; -1 if it is not known."""
        return self._tables.row_of.get(node, -1)

    @property
    def behind(self) -> bool:
        """Whether nodes changed since the last `catch_up`."""
        return self._position != self._tables.node_log.position

    def catch_up(self) -> Sequence[int]:
        """Re-evaluate the nodes that changed; returns the rows whose kind changed."""
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
        rows = np.arange(capacity) if logged is None else distinct(logged)
        before = self.kinds[rows]
        self.kinds[rows] = UNKNOWN
        self._evaluate(rows[self._tables.alive[rows]])
        changed: list[int] = rows[self.kinds[rows] != before].tolist()
        if changed:
            self.version += 1
        return changed

    def _evaluate(self, rows: Rows) -> None:
        if not len(rows):
            return
        # [row, unit], packed into bytes so that rows with the same units compare equal
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
