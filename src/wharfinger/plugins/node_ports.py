"""NodePorts: the host ports of a pod must be free on the node."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from wharfinger.api.views import Pod
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.plugin import Plugin, Prepared, Scope
from wharfinger.framework.shapes import ANY_ADDRESS, HostPort, Shape, host_ports
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.status import Status, unschedulable
from wharfinger.framework.tables import Tables

PORTS_TAKEN = "node(s) didn't have free ports for the requested pod ports"
REASON = unschedulable(PORTS_TAKEN)


class NodePorts(Plugin):
    name = "NodePorts"
    points = frozenset({"preFilter", "filter"})
    position = 70

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        return _Ports(self.tables, shape.host_ports) if shape.host_ports else None

    def wake_ups(self) -> tuple[WakeUp, ...]:
        return (WakeUp(POD, Action.DELETE, _port_freed), WakeUp(NODE, Action.ADD))


class _Ports(Prepared):
    scope = Scope.ROW
    filters = True

    def __init__(self, tables: Tables, wanted: tuple[HostPort, ...]) -> None:
        super().__init__()
        self._tables = tables
        self._wanted = wanted
        self._code = self.refuse(REASON)

    def filter(self, rows: Rows) -> Ints:
        ports = self._tables.ports
        codes = np.zeros(len(rows), dtype=np.int64)
        for index, row in enumerate(rows.tolist()):
            if row in ports and conflict(self._wanted, ports[row]):
                codes[index] = self._code
        return codes

    def detail(self, row: int) -> str:
        taken = [port for port in self._wanted if conflict((port,), self._tables.ports.get(row, ()))]
        return ", ".join(f"{port}/{protocol}" for _, protocol, port in taken)

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        used = self._tables.ports.get(row, ()) if simulation is None else simulation.ports
        return self._code if used and conflict(self._wanted, used) else 0


def conflict(wanted: tuple[HostPort, ...], used: Collection[HostPort]) -> bool:
    """Whether a wanted port is in use: the same protocol and port, with the same address or 0.0.0.0 on either side."""
    for address, protocol, port in wanted:
        for other, other_protocol, other_port in used:
            if port == other_port and protocol == other_protocol:
                if address == other or ANY_ADDRESS in (address, other):
                    return True
    return False


def _port_freed(pod: Pod, old: Any, new: Any) -> bool:
    if not old.spec.node_name and not old.status.nominated_node_name:
        return False
    return conflict(host_ports(pod), host_ports(old))


plugins = (NodePorts,)
