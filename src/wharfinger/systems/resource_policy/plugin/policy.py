"""One ResourcePolicy in an engine: the kinds of node it tells apart and the pods that take a place in its units."""

from __future__ import annotations

from wharfinger.api.keys import ObjectKey
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.systems.resource_policy.plugin.nodes import NodeKinds
from wharfinger.systems.resource_policy.plugin.places import Places
from wharfinger.systems.resource_policy.rules.policy import PolicyRules, Signature


class ScheduledPolicy:
    """Calls that may change how full units are say whether they did."""

    def __init__(self, tables: Tables, rules: PolicyRules) -> None:
        self._tables = tables
        self.rules = rules
        self.nodes = NodeKinds(tables, rules)
        self._places = Places(rules)
        self.counting = self._places.counting

    def catch_up(self) -> None:
        """Nodes that are in other units now take their pods with them."""
        for row in self.nodes.catch_up():
            for key in self._tables.pods_on[row]:
                self._places.move(key, self.nodes.at(row))

    def add(self, pod: PodOnNode, signature: Signature, reservation: str | None = None) -> bool:
        """A governed pod is on a node, perhaps in a reservation."""
        if not self.rules.counts(pod.pod):
            return False
        if self.nodes.behind:
            self.catch_up()
        return self._places.add(pod.key, pod.pod, pod.node_name, self.nodes.at(pod.row), signature, reservation)

    def reservation_of(self, key: ObjectKey) -> str | None:
        """The reservation in which a counted pod is."""
        return self._places.reservation_of(key)

    def remove(self, pod: PodOnNode) -> bool:
        """A pod is no longer on its node."""
        return self._places.remove(pod.key)
