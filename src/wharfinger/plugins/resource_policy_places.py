"""One ResourcePolicy in an engine: the kinds of node it tells apart and the pods that take a place in its units.

A reservation is a pod too: the fake one that stands for it takes a place until a pod that takes one itself uses it.
"""

from __future__ import annotations

from wharfinger.api.reservations import is_fake
from wharfinger.api.resources import requests
from wharfinger.framework.tables import Key, PodOnNode, Tables
from wharfinger.plugins.resource_policy_counting import Counting
from wharfinger.plugins.resource_policy_nodes import NodeKinds
from wharfinger.plugins.resource_policy_rules import Rules, Signature, order
from wharfinger.plugins.resource_policy_sized import NOTHING


class Policy:
    """Calls that may change how full units are say whether they did."""

    def __init__(self, tables: Tables, rules: Rules) -> None:
        self._tables = tables
        self.rules = rules
        self.nodes = NodeKinds(tables, rules)
        self.counting = Counting(rules)
        self._fakes: dict[str, tuple[PodOnNode, Signature]] = {}  # by uid of the reservation
        self._users: dict[str, set[Key]] = {}  # counted pods that use a reservation, by its uid
        self._uses: dict[Key, str] = {}

    def catch_up(self) -> None:
        """Nodes that are in other units now take their pods with them."""
        for row in self.nodes.catch_up():
            for key in self._tables.pods_on[row]:
                counted = self.counting.pods.get(key)
                if counted is not None:
                    self.counting.remove(key)
                    self.counting.add(key, counted.order, counted.signature, self.nodes.at(row), counted.size)

    def add(self, pod: PodOnNode, signature: Signature, reservation: str | None = None) -> bool:
        """A governed pod is on a node, perhaps in a reservation."""
        if not self.rules.counts(pod.pod):
            return False
        if is_fake(pod.pod):
            uid = pod.pod.metadata.uid
            self._fakes[uid] = (pod, signature)
            return uid not in self._users and self._count(pod, signature)
        changed = self._count(pod, signature)
        if reservation is not None:
            self._uses[pod.key] = reservation
            users = self._users.setdefault(reservation, set())
            users.add(pod.key)
            if reservation in self._fakes:
                changed = self.counting.remove(self._fakes[reservation][0].key) or changed
        return changed

    def reservation_of(self, key: Key) -> str | None:
        """The reservation in which a counted pod is."""
        return self._uses.get(key)

    def remove(self, pod: PodOnNode) -> bool:
        """A pod is no longer on its node."""
        if is_fake(pod.pod):
            self._fakes.pop(pod.pod.metadata.uid, None)
        changed = self.counting.remove(pod.key)
        reservation = self._uses.pop(pod.key, None)
        if reservation is not None:
            users = self._users[reservation]
            users.discard(pod.key)
            if not users:
                del self._users[reservation]
                if reservation in self._fakes:
                    changed = self._count(*self._fakes[reservation]) or changed
        return changed

    def _count(self, pod: PodOnNode, signature: Signature) -> bool:
        if self.nodes.behind:
            self.catch_up()
        size = self.rules.size(requests(pod.pod)) if self.rules.sized else NOTHING
        return self.counting.add(pod.key, order(pod.pod.metadata), signature, self.nodes.at(pod.row), size)
