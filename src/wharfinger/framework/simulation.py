"""Simulates other pods on one node: for preemption, nominated pods, and plugins that restore or hide resources.

A simulation holds the difference to the tables. Prepared answers read it in `filter_row`; those that count pods themselves
keep their counts in `state`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.framework.shapes import HostPort
from wharfinger.framework.tables import PodOnNode, Tables

if TYPE_CHECKING:
    from wharfinger.framework.plugin import Prepared


class Simulation:
    __slots__ = ("_prepared", "opened", "pods", "ports", "requested", "row", "state")

    def __init__(self, tables: Tables, row: int, prepared: Sequence[Prepared]) -> None:
        """`prepared` are the answers whose `pod_simulated` is called (`Prepared.simulates`)."""
        self.row = row
        self._prepared = prepared
        self.requested: dict[int, int] = {}  # resource number to difference
        self.pods = 0  # difference in the number of pods
        self.ports: set[HostPort] = set(tables.ports[row]) if row in tables.ports else set()
        self.state: dict[Prepared, Any] = {}
        #: uid of the stand-in whose room the pod would use; empty: it would use none; None: nothing is assumed about that
        self.opened: str | None = None

    def add(self, pod: PodOnNode) -> None:
        if pod.shape.host_ports:
            self.ports.update(pod.shape.host_ports)
        self._change(pod, 1)

    def remove(self, pod: PodOnNode) -> None:
        if pod.shape.host_ports:
            # A set, as upstream's HostPortInfo: a port that two pods share is gone with the first.
            self.ports.difference_update(pod.shape.host_ports)
        self._change(pod, -1)

    def remove_elsewhere(self, pod: PodOnNode) -> None:
        """Imagines that a pod on another node is gone; only answers that look beyond the row care."""
        for prepared in self._prepared:
            prepared.pod_left_elsewhere(self, pod)

    def charge(self, resource: int, amount: int) -> None:
        """Adds to the use of a resource; a negative amount reduces it."""
        self.requested[resource] = self.requested.get(resource, 0) + amount

    def _change(self, pod: PodOnNode, sign: int) -> None:
        self.pods += sign
        for number, amount in pod.charge:
            self.requested[number] = self.requested.get(number, 0) + sign * amount
        for prepared in self._prepared:
            prepared.pod_simulated(self, pod, sign)


Overlay = Callable[[Simulation], None]
"""Changes a fresh simulation of a row into what a pod may see there."""
