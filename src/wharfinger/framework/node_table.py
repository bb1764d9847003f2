"""The nodes: a row for each, with columns for its resources, labels, taints and images.

Rows are stable while a node exists and are reused afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from wharfinger.api.names import qualified_name
from wharfinger.api.quantity import milli_value, value
from wharfinger.api.resources import CPU, MOST
from wharfinger.api.selectors import Requirements
from wharfinger.api.views import Node
from wharfinger.api.views.nodes import Taint
from wharfinger.framework.changes import Log
from wharfinger.framework.columns import Bools, IntColumn, InternedColumn, LabelColumn, Rows, TieBreaks
from wharfinger.framework.images import ImageIndex

PODS = "pods"


class NodeTable:
    """Written only by `set_node` and `remove_node`, except for `tie_breaks`."""

    def __init__(self, seed: int = 0, capacity: int = 64) -> None:
        # Rows.
        self.capacity = capacity
        self.row_of: dict[str, int] = {}
        self.nodes: list[Node | None] = [None] * capacity
        self.names: list[str] = [""] * capacity
        self.alive: Bools = np.zeros(capacity, dtype=np.bool_)  # which rows hold a node
        self._rows: Rows | None = None
        self._free: list[int] = list(range(capacity - 1, -1, -1))
        self.node_log = Log()  # rows whose node changed

        # Resources; columns are added by `resource`.
        self.resources: dict[str, int] = {}  # name to number
        self.resource_names: list[str] = []
        self.allocatable: list[IntColumn] = []  # [resource][row]
        self.pod_limit = IntColumn(capacity)
        self.sizes = InternedColumn(capacity)  # equal for nodes with the same allocatable resources
        self._everywhere: dict[int, bool] = {}
        self._everywhere_position = -1

        # Other properties of nodes; label columns are added by `label`.
        self.unschedulable: Bools = np.zeros(capacity, dtype=np.bool_)
        self.taints = InternedColumn(capacity)  # index in `taint_lists`
        self.taint_lists: list[tuple[Taint, ...]] = [()]
        self.taints.number(())
        self._labels: dict[str, LabelColumn] = {}
        self.images = ImageIndex()

        self.zeros = IntColumn(capacity)  # never written: stands for columns that are all zero

        # Written by the engine when it places a pod.
        self.tie_breaks = TieBreaks(capacity, seed)

    # -- reading

    @property
    def rows(self) -> Rows:
        """The rows that hold a node."""
        if self._rows is None:
            self._rows = np.flatnonzero(self.alive)
        return self._rows

    @property
    def node_count(self) -> int:
        return len(self.row_of)

    def name(self, row: int) -> str:
        return self.names[row]

    def resource(self, name: str) -> int:
        """The number of a resource; its columns are added on first use."""
        number = self.resources.get(name)
        if number is None:
            number = self.resources[name] = len(self.resource_names)
            self.resource_names.append(name)
            self._add_resource()
        return number

    def everywhere(self, column: IntColumn) -> bool:
        """Whether no node has zero in the column, which must be one that only changes with nodes."""
        if self._everywhere_position != self.node_log.position:
            self._everywhere_position = self.node_log.position
            self._everywhere.clear()
        found = self._everywhere.get(id(column))
        if found is None:
            found = self._everywhere[id(column)] = bool(column.take(self.rows).all())
        return found

    def label(self, key: str) -> LabelColumn:
        """The column of a label key, added on first use."""
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = LabelColumn(key, self.capacity)
            for row in self.row_of.values():
                node = self.nodes[row]
                if node is not None:
                    column.set(row, node.metadata.labels)
        return column

    def labelled(self, requirements: Requirements, rows: Rows) -> Bools:
        """Which of the rows have labels that meet all requirements."""
        found = np.ones(len(rows), dtype=np.bool_)
        for requirement in requirements:
            found &= self.label(requirement.key).mask(requirement, rows)
        return found

    # -- writing

    def set_node(self, node: Node) -> int:
        """Adds or replaces a node; returns its row."""
        row = self.row_of.get(node.metadata.name)
        if row is None:
            return self._add_node(node)
        old = self.nodes[row]
        assert old is not None
        if _same(old, node):
            self.nodes[row] = node
            return row
        relabelled = old.metadata.labels != node.metadata.labels
        if relabelled:
            self._before_relabelling(row)
        self.images.remove(row, old)
        self._write_node(row, node)
        if relabelled:
            self._after_relabelling(row)
        self.node_log.append(row)
        return row

    def remove_node(self, name: str) -> None:
        row = self.row_of.pop(name, None)
        if row is None:
            return
        node = self.nodes[row]
        assert node is not None
        self._before_removal(row)
        self.images.remove(row, node)
        self.images.node_count_changed()
        self.nodes[row] = None
        self.alive[row] = False
        self._rows = None
        self.unschedulable[row] = False
        for column in (*self.allocatable, self.pod_limit, self.taints):
            column.cells[row] = 0
        for labels in self._labels.values():
            labels.set(row, {})
        self._free.append(row)
        self.node_log.append(row)

    def _add_node(self, node: Node) -> int:
        if not self._free:
            self._grow()
        row = self._free.pop()
        self.row_of[node.metadata.name] = row
        self.names[row] = node.metadata.name
        self.alive[row] = True
        self._rows = None
        self.tie_breaks.enter(row)
        self._write_node(row, node)
        self.images.node_count_changed()
        self._after_addition(row)
        self.node_log.append(row)
        return row

    def _write_node(self, row: int, node: Node) -> None:
        self.nodes[row] = node
        self.unschedulable[row] = node.spec.unschedulable
        self.taints.cells[row] = self._taint_list(node.spec.taints)
        for labels in self._labels.values():
            labels.set(row, node.metadata.labels)
        for column in self.allocatable:
            column.cells[row] = 0
        self.pod_limit.cells[row] = 0
        self.sizes.cells[row] = self.sizes.number(tuple(sorted(node.status.allocatable.items())))
        for name, quantity in node.status.allocatable.items():
            if name == CPU:
                self.allocatable[0].cells[row] = min(milli_value(quantity), MOST)
            elif name == PODS:
                self.pod_limit.cells[row] = min(value(quantity), MOST)
            elif name in self.resources or is_scalar(name):
                self.allocatable[self.resource(name)].cells[row] = min(value(quantity), MOST)
        self.images.add(row, node)

    def _taint_list(self, taints: tuple[Taint, ...]) -> int:
        number = self.taints.number(tuple((taint.key, taint.value, taint.effect) for taint in taints))
        if number == len(self.taint_lists):
            self.taint_lists.append(taints)
        return number

    # -- hooks for the pods on the rows

    def _before_relabelling(self, row: int) -> None:
        """The labels of a node are about to change."""

    def _after_relabelling(self, row: int) -> None:
        """The labels of a node changed."""

    def _after_addition(self, row: int) -> None:
        """A row got a node."""

    def _before_removal(self, row: int) -> None:
        """A row is about to lose its node."""

    def _add_resource(self) -> None:
        """Adds the columns of the resource with the next number."""
        self.allocatable.append(IntColumn(self.capacity))

    def _columns(self) -> Iterable[IntColumn]:
        """The columns that grow with the number of rows, except for those of labels."""
        return (*self.allocatable, self.pod_limit, self.sizes, self.taints, self.zeros, self.tie_breaks)

    def _grow(self) -> None:
        """Adds rows."""
        more = max(64, self.capacity // 4)
        old, self.capacity = self.capacity, self.capacity + more
        self._free = list(range(self.capacity - 1, old - 1, -1))
        self.nodes += [None] * more
        self.names += [""] * more
        self.alive = np.concatenate((self.alive, np.zeros(more, dtype=np.bool_)))
        self.unschedulable = np.concatenate((self.unschedulable, np.zeros(more, dtype=np.bool_)))
        for column in self._columns():
            column.grow(self.capacity)
        for labels in self._labels.values():
            labels.codes.grow(self.capacity, -1)


def _same(old: Node, new: Node) -> bool:
    """Whether nothing changed that a plugin might read; heartbeats are not part of the view."""
    a, b = old.metadata, new.metadata
    return (
        a.labels == b.labels
        and a.annotations == b.annotations
        and a.deletion_timestamp == b.deletion_timestamp
        and old.spec == new.spec
        and old.status == new.status
    )


@lru_cache(maxsize=4096)
def is_scalar(name: str) -> bool:
    """Whether this is a resource that the scheduler counts besides cpu, memory and ephemeral storage: an extended resource,
    huge pages, attachable volumes or a name with a native prefix."""
    if name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name:
        return True
    if "/" not in name or name.startswith("requests."):
        return False
    return not qualified_name(f"requests.{name}")
