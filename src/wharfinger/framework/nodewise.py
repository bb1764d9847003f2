"""Plugins that see one node at a time, like upstream's: they implement `filter_node` and `score_node`.

Slower than plugins over rows, but still incremental: only rows whose node or pods changed are evaluated again.
"""

from __future__ import annotations

import msgspec
import numpy as np

from wharfinger.api.views import Node, Pod
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.node_table import PODS
from wharfinger.framework.plugin import Plugin, Prepared, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.status import SUCCESS, Status, unschedulable
from wharfinger.framework.tables import Tables


class NodeInfo(msgspec.Struct, frozen=True):
    """A node, the pods on it, and its resources (cpu in millicores, everything else in whole units)."""

    node: Node
    pods: tuple[Pod, ...]
    allocatable: dict[str, int]
    requested: dict[str, int]


class NodePlugin(Plugin):
    """Override `filter_node`, `score_node` or both. `filter_node` returns None, a reason, or a status."""

    def filter_node(self, pod: Pod, info: NodeInfo) -> str | Status | None:
        return None

    def score_node(self, pod: Pod, info: NodeInfo) -> int:
        return 0

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        return _EachNode(self, shape)


class _EachNode(Prepared):
    scope = Scope.ROW

    def __init__(self, plugin: NodePlugin, shape: Shape) -> None:
        super().__init__()
        self._plugin = plugin
        self._shape = shape
        self.filters = type(plugin).filter_node is not NodePlugin.filter_node
        self.scores = type(plugin).score_node is not NodePlugin.score_node

    def filter(self, rows: Rows) -> Ints:
        return np.fromiter((self.filter_row(int(row)) for row in rows), dtype=np.int64, count=len(rows))

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        answer = self._plugin.filter_node(self._shape.pod, node_info(self._plugin.tables, row, simulation, self))
        if answer is None or answer == SUCCESS:
            return 0
        return self.refuse(answer if isinstance(answer, Status) else unschedulable(answer))

    def score(self, rows: Rows) -> Ints:
        return np.fromiter((self.score_row(int(row)) for row in rows), dtype=np.int64, count=len(rows))

    def score_row(self, row: int) -> int:
        return self._plugin.score_node(self._shape.pod, node_info(self._plugin.tables, row, None, self))

    def pod_simulated(self, simulation: Simulation, pod: object, sign: int) -> None:
        simulation.state.setdefault(self, []).append((pod, sign))


def node_info(tables: Tables, row: int, simulation: Simulation | None, owner: Prepared) -> NodeInfo:
    node = tables.nodes[row]
    assert node is not None
    pods = dict(tables.pods_on[row])
    requested = {name: tables.requested[number].cells[row] for name, number in tables.resources.items()}
    if simulation is not None:
        for number, amount in simulation.requested.items():
            requested[tables.resource_names[number]] += amount
        for pod, sign in simulation.state.get(owner, ()):
            if sign > 0:
                pods[pod.key] = pod
            else:
                pods.pop(pod.key, None)
    requested[PODS] = len(pods)
    allocatable = {name: tables.allocatable[number].cells[row] for name, number in tables.resources.items()}
    allocatable[PODS] = tables.pod_limit.cells[row]
    return NodeInfo(node, tuple(each.pod for each in pods.values()), allocatable, requested)
