"""One ResourcePolicy in an engine: the kinds of node it distinguishes and the pods counted in its units."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.api.keys import ObjectKey
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.systems.resource_policy.plugin.nodes import NodeKinds
from wharfinger.systems.resource_policy.plugin.places import Places
from wharfinger.systems.resource_policy.rules.policy import PolicyRules, Signature


class ScheduledPolicy:
    """Methods that return a bool report whether unit usage may have changed."""

    def __init__(self, tables: Tables, rules: PolicyRules) -> None:
        self._tables = tables
        self.rules = rules
        self.nodes = NodeKinds(tables, rules)
        self._places = Places(rules)
        self.counting = self._places.counting

    def catch_up(self) -> None:
        """Process node changes: pods on nodes whose units changed are charged again."""
        for row in self.nodes.catch_up():
            for key in self._tables.pods_on[row]:
                self._places.move(key, self.nodes.at(row))

    def add(self, pod: PodOnNode, signature: Signature, reservation: str | None = None) -> bool:
        """Count a governed pod on a node; `reservation` is the uid of the reservation it uses, if any."""
        if not self.rules.counts(pod.pod):
            return False
        if self.nodes.behind:
            self.catch_up()
        return self._places.add(pod.key, pod.pod, pod.node_name, self.nodes.at(pod.row), signature, reservation)

    def add_foreign(
        self, pod: PodOnNode, labels: Mapping[str, str], signature: Signature, reservation: str | None
    ) -> bool:
        """Count a governed pod on a node that is not ours, given the labels of the node."""
        if not self.rules.counts(pod.pod):
            return False
        units = self.rules.units_of(labels)
        return self._places.add(pod.key, pod.pod, pod.node_name, units, signature, reservation)

    def reservation_of(self, key: ObjectKey) -> str | None:
        """The uid of the reservation that a counted pod uses."""
        return self._places.reservation_of(key)

    def remove(self, pod: PodOnNode) -> bool:
        """Stop counting a pod that has left its node."""
        return self._places.remove(pod.key)
