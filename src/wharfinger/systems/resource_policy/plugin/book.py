"""All ResourcePolicies of an engine: which pods each one governs and which pods are counted in its units. One book
serves all profiles and follows the pods on nodes through the tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from wharfinger.api.keys import ObjectKey
from wharfinger.api.registry import Document
from wharfinger.api.resources import requests
from wharfinger.api.views import Pod
from wharfinger.framework.shapes import Shape
from wharfinger.framework.stand_ins import priority_for_room
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.scheduler.schedulable import schedulables
from wharfinger.systems.resource_policy.plugin.charges import Order
from wharfinger.systems.resource_policy.plugin.counting import sees
from wharfinger.systems.resource_policy.plugin.policy import ScheduledPolicy
from wharfinger.systems.resource_policy.rules.policy import BadPolicy, Signature, order, read

_SHARED = "resource policies"
_ABSENT: Any = object()


class NominatedPlace(NamedTuple):
    """A place that a nominated pod will take."""

    node: str
    order: Order
    size: tuple[tuple[str, int], ...]


class PolicyKey(NamedTuple):
    """What this plugin reads of a pod beyond its plain shape."""

    next_units: str | None  # the annotation
    nominated: tuple[NominatedPlace, ...]


class Book:
    CACHE_SIZE = 1 << 14  # number of shapes whose governing policies are cached

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._users = tables.stand_in_users.on_nodes  # its writer is notified of pods before this listener
        self._specs: dict[ObjectKey, Any] = {}  # of all policies, including invalid ones
        self._policies: dict[str, dict[str, ScheduledPolicy]] = {}  # by namespace and name
        self._pods: dict[str, list[PodOnNode]] = {}  # pods on nodes by namespace, valid at `_pods_at`
        self._pods_at = -1
        self._governing: dict[int, list[tuple[ScheduledPolicy, Signature]]] = {}  # cache by shape number
        tables.listen(self)
        tables.listen_to_foreign_pods(self)

    def policies(self, namespace: str) -> Collection[ScheduledPolicy]:
        return self._policies.get(namespace, {}).values()

    def spec(self, namespace: str, name: str) -> Document:
        """The spec of a policy as it was written."""
        found: Document = self._specs.get((namespace, name)) or {}
        return found

    def set(self, old: Document | None, new: Document | None) -> None:
        """Add, update or delete a policy. Every profile reports each change; only the first report has an effect."""
        document = new or old
        assert document is not None
        metadata = document["metadata"]
        namespace, name = key = (metadata.get("namespace", ""), metadata.get("name", ""))
        spec = _ABSENT if new is None else new.get("spec")
        if self._specs.get(key, _ABSENT) == spec:
            return  # already reported, or only the status changed
        if new is None:
            self._specs.pop(key, None)
        else:
            self._specs[key] = spec
        policies = self._policies.setdefault(namespace, {})
        if not policies:
            self._tables.changed(listeners=True)
            self._tables.nominations_matter.add(namespace)
        policies.pop(name, None)
        if new is not None:
            # An invalid policy that got past validation is ignored; the controller reports it in the status.
            with suppress(BadPolicy):
                policies[name] = self._counted(ScheduledPolicy(self._tables, read(new)))
        if not policies:
            del self._policies[namespace]
            self._tables.nominations_matter.discard(namespace)
        self._governing.clear()
        self._tables.changed(namespace=namespace)

    def _counted(self, policy: ScheduledPolicy) -> ScheduledPolicy:
        position = self._tables.pod_log.position
        if self._pods_at != position:
            # Cached, because many policies arrive in a row when the scheduler starts.
            self._pods_at = position
            self._pods = {}
            for pod in self._tables.placed():
                self._pods.setdefault(pod.key[0], []).append(pod)
        for pod in self._pods.get(policy.rules.namespace, ()):
            labels = pod.pod.metadata.labels
            if policy.rules.governs(labels):
                policy.add(pod, policy.rules.signature(labels), self._users.get(pod.key))
        for node, node_labels in self._tables.foreign_nodes.items():
            for pod in self._tables.orphans.get(node, {}).values():
                labels = pod.pod.metadata.labels
                if pod.key[0] == policy.rules.namespace and policy.rules.governs(labels):
                    policy.add_foreign(pod, node_labels, policy.rules.signature(labels), _stand_in_of(pod.pod))
        return policy

    def foreign_pod_added(self, pod: PodOnNode, labels: Mapping[str, str]) -> None:
        for policy, signature in self.governing(pod.shape):
            if policy.add_foreign(pod, labels, signature, _stand_in_of(pod.pod)):
                self._tables.changed(versions=True)

    def foreign_pod_removed(self, pod: PodOnNode) -> None:
        for policy, _ in self.governing(pod.shape):
            if policy.remove(pod):
                self._tables.changed(versions=True)

    def concerned(self, shape: Shape) -> bool:
        return shape.namespace in self._policies

    def pod_added(self, pod: PodOnNode) -> None:
        if self._pods:
            self._pods = {}  # out of date
        if pod.key[0] in self._policies:
            reservation = self._users.get(pod.key)
            for policy, signature in self.governing(pod.shape):
                if policy.add(pod, signature, reservation):
                    self._tables.changed(versions=True)

    def pod_removed(self, pod: PodOnNode) -> None:
        if pod.key[0] in self._policies:
            for policy, _ in self.governing(pod.shape):
                if policy.remove(pod):
                    self._tables.changed(versions=True)

    def pod_replaced(self, pod: PodOnNode) -> None:
        if pod.key[0] not in self._policies:
            return
        reservation = self._users.get(pod.key)
        for policy, signature in self.governing(pod.shape):
            # The reservation named by a bound pod replaces the assumed one.
            if policy.reservation_of(pod.key) != reservation:
                policy.remove(pod)
                policy.add(pod, signature, reservation)
                self._tables.changed(versions=True)

    def nominated(self, pod: Pod) -> tuple[NominatedPlace, ...]:
        """The places in units that are kept from this pod by pods for which others were evicted, on any node."""
        namespace = pod.metadata.namespace
        if not self._tables.nominated or namespace not in self._policies:
            return ()
        policies = [each for each in self._policies[namespace].values() if each.rules.governs(pod.metadata.labels)]
        if len(policies) != 1:
            return ()
        rules, priority, found = policies[0].rules, priority_for_room(pod), []
        group = rules.signature(pod.metadata.labels)
        for records in self._tables.nominated.values():
            for record in records.values():
                metadata = record.pod.metadata
                if metadata.namespace != namespace or metadata.uid == pod.metadata.uid or record.priority < priority:
                    continue
                if rules.governs(metadata.labels) and sees(group, rules.signature(metadata.labels)):
                    size = tuple(sorted(rules.size(requests(record.pod)).items())) if rules.sized else ()
                    found.append(NominatedPlace(record.node_name, order(metadata), size))
        return tuple(sorted(found))

    def governing(self, shape: Shape) -> Sequence[tuple[ScheduledPolicy, Signature]]:
        """The policies that match pods of a shape, with the group signature of those pods."""
        if shape.namespace not in self._policies:
            return ()
        found = self._governing.get(shape.number)
        if found is None:
            found = [
                (policy, policy.rules.signature(shape.labels))
                for policy in self._policies.get(shape.namespace, {}).values()
                if policy.rules.governs(shape.labels)
            ]
            if len(self._governing) >= self.CACHE_SIZE:
                self._governing.clear()
            self._governing[shape.number] = found
        return found


def _stand_in_of(pod: Pod) -> str | None:
    """The uid of the stand-in that a pod on a node that is not ours uses; those of our nodes are in the tables."""
    return next((uid for each in schedulables() if (uid := each.used_by(pod))), None)


def book_of(tables: Tables) -> Book:
    """The book of an engine, created on first use."""
    found: Book | None = tables.shared.get(_SHARED)
    if found is None:
        found = tables.shared[_SHARED] = Book(tables)
    return found
