"""NodeName: a pod with `spec.nodeName` fits on that node only. Since 1.37 no other node is even looked at."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.events import NODE, Action, WakeUp
from wharfinger.framework.plugin import Plugin, Prepared
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status, unresolvable
from wharfinger.framework.tables import Tables

REASON = unresolvable("node(s) didn't match the requested node name")


class NodeName(Plugin):
    name = "NodeName"
    points = frozenset({"preFilter", "filter"})
    position = 25
    earlier_positions: ClassVar = {KubernetesVersion.V1_36: 40}

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        return _Named(self.tables, shape.pod.spec.node_name) if shape.pod.spec.node_name else None

    def wake_ups(self) -> tuple[WakeUp, ...]:
        return (WakeUp(NODE, Action.ADD),)


class _Named(Prepared):
    filters = True

    def __init__(self, tables: Tables, node_name: str) -> None:
        super().__init__()
        self._tables = tables
        self._node_name = node_name
        self._code = self.refuse(REASON)
        if tables.kubernetes >= KubernetesVersion.V1_37:
            self.nodes = frozenset((node_name,))

    def filter(self, rows: Rows) -> Ints:
        return np.where(rows == self._tables.row_of.get(self._node_name, -1), 0, self._code)


plugins = (NodeName,)
