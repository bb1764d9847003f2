"""The state of the ResourcePolicy controller: pods, other schedulable objects, nodes and policies, with the unit each
pod is charged to.

The state is updated incrementally from informer events and collects the keys that need to be reconciled. No I/O. An
object that is scheduled but is not a Pod, such as a reservation, is represented by its stand-in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wharfinger.api.keys import ObjectKey
from wharfinger.api.registry import Document
from wharfinger.api.resources import requests
from wharfinger.api.views import Node, Pod
from wharfinger.framework.stand_ins import StandIn
from wharfinger.scheduler.schedulable import Schedulable
from wharfinger.systems.resource_policy.plugin.charges import Order, Units
from wharfinger.systems.resource_policy.plugin.counting import Group
from wharfinger.systems.resource_policy.plugin.places import Places
from wharfinger.systems.resource_policy.rules.costs import marked
from wharfinger.systems.resource_policy.rules.policy import BadPolicy, PolicyRules, Signature, read

Labels = Mapping[str, str]


class CountedPolicy:
    """A valid policy and the pods it counts."""

    def __init__(self, rules: PolicyRules, nodes: Mapping[str, Labels], moved: set[Order]) -> None:
        """`moved` collects the pods whose charge changed."""
        self.rules = rules
        self._places = Places(rules)
        self.counting = self._places.counting
        self.overlapping: set[str] = set()  # nodes in several units
        self.shared: Counter[str] = Counter()  # number of pods also matched by each other policy
        self._moved = moved
        self._groups: dict[Signature, Group] = {}  # groups as seen by counted pods
        self._members: Counter[Signature] = Counter()
        self._keys = sorted({each.key for unit in rules.units for each in unit.nodes})
        self._known: dict[
            tuple[str | None, ...], Units
        ] = {}  # cache: units by the values of the labels that selectors use
        for name, labels in nodes.items():
            self.update_node(name, labels)

    def units_of(self, labels: Labels) -> Units:
        values = tuple(labels.get(key) for key in self._keys)
        units = self._known.get(values)
        if units is None:
            units = self._known[values] = self.rules.units_of(labels)
        return units

    def update_node(self, node: str, labels: Labels | None) -> bool:
        """Handle an added, changed or (None) deleted node; returns whether the status is affected."""
        before = len(self.overlapping)
        if labels is not None and len(self.units_of(labels)) > 1:
            self.overlapping.add(node)
        else:
            self.overlapping.discard(node)
        return bool(before) != bool(self.overlapping)

    def count(self, pod: Pod, labels: Labels, uses: str) -> None:
        """Count a pod. `uses` is the uid of the stand-in whose room the pod uses; empty if none."""
        signature = self.rules.signature(pod.metadata.labels)
        if signature not in self._groups:
            group = self._groups[signature] = self.counting.acquire(signature)
            group.moved = self._moved
        self._members[signature] += 1
        self._places.add(pod.metadata.key, pod, pod.spec.node_name, self.units_of(labels), signature, uses)

    def uncount(self, key: ObjectKey) -> bool:
        """Stop counting a pod; returns whether it was counted."""
        counted = self.counting.pods.get(key)
        if counted is None:
            return False
        self._places.remove(key)
        self._members[counted.signature] -= 1
        if not self._members[counted.signature]:
            del self._members[counted.signature], self._groups[counted.signature]
            self.counting.release(counted.signature)
        return True

    def cost(self, key: ObjectKey) -> int | None:
        """The deletion cost of a counted pod, which is the priority of its unit."""
        counted = self.counting.pods.get(key)
        if counted is None or counted.share(counted.signature) is None:
            return None
        return self.rules.priority(self.unit_of(key))

    def unit_of(self, key: ObjectKey) -> int | None:
        """The unit that a counted pod is charged to; None if its node is in no unit, or if it takes no place."""
        counted = self.counting.pods[key]
        if counted.share(counted.signature) is None:
            return None
        return self._groups[counted.signature].unit(counted.order)

    @property
    def costs_differ(self) -> bool:
        """Whether more than one cost is possible. If not, costs are not written."""
        return self.rules.prefer or len({unit.priority for unit in self.rules.units}) > 1

    def groups(self) -> dict[Signature, list[int]]:
        """The number of pods of each group charged to each unit. A pod that lacks a key is in the group of those that
        lack it."""
        found: dict[Signature, list[int]] = {}
        for counted in self.counting.pods.values():
            share = counted.share(counted.signature)
            unit = None if share is None else self._groups[counted.signature].unit(counted.order)
            of_group = found.setdefault(counted.signature, [0] * len(self.rules.units))
            if share is not None and unit is not None:
                of_group[unit] += share[1]
        return found

    def counts(self) -> list[int]:
        """The number of pods charged to each unit, where each pod is charged within its own group."""
        totals = [0] * len(self.rules.units)
        partial = {signature for signature in self._groups if None in signature}
        for signature, group in self._groups.items():
            if signature not in partial:
                totals = [total + count for total, count in zip(totals, group.counts, strict=True)]
        if partial:
            for counted in self.counting.pods.values():
                share = counted.share(counted.signature)
                if counted.signature in partial and share is not None:
                    unit = self._groups[counted.signature].unit(counted.order)
                    if unit is not None:
                        totals[unit] += share[1]
        return totals


class PolicyCache:
    """`dirty_pods` and `dirty_policies` collect the keys to reconcile; the controller clears them."""

    def __init__(self, schedulables: Sequence[type[Schedulable]] = ()) -> None:
        self._schedulables = schedulables
        self.policies: dict[str, dict[str, CountedPolicy]] = {}  # by namespace and name
        self.faults: dict[ObjectKey, str] = {}  # invalid policies and their faults
        self.dirty_pods: set[ObjectKey] = set()
        self.dirty_policies: set[ObjectKey] = set()
        self._pods: dict[str, dict[ObjectKey, Pod]] = {}  # by namespace; without terminated pods
        self._governing: dict[ObjectKey, tuple[str, ...]] = {}  # names of the policies that match a pod, if any
        self._nodes: dict[str, Labels] = {}
        self._pods_on: dict[str, set[ObjectKey]] = {}  # pods by node
        self._moved: dict[str, set[Order]] = {}  # pods whose charge changed, by namespace, until `_collect_moved`

    def governing(self, key: ObjectKey) -> list[CountedPolicy]:
        return [self.policies[key[0]][name] for name in self._governing.get(key, ())]

    # -- pods

    def stand_in(self, key: ObjectKey) -> StandIn | None:
        found = self._pods.get(key[0], {}).get(key)
        return found if isinstance(found, StandIn) else None

    def uses(self, pod: Pod) -> str:
        """The uid of the stand-in whose room a pod uses; empty if none."""
        return next((uid for each in self._schedulables if (uid := each.used_by(pod))), "")

    def set_schedulable(self, schedulable: type[Schedulable], old: Any, new: Any) -> None:
        """Handle an added, updated or deleted object that is scheduled but is not a Pod."""
        before = None if old is None else schedulable.stand_in(old)
        after = None if new is None else schedulable.stand_in(new)
        if before is not None and after is not None and before.metadata.key == after.metadata.key:
            self.set_pod(before, after)
            return
        if before is not None:
            self.set_pod(before, None)
        if after is not None:
            self.set_pod(None, after)

    def set_pod(self, old: Pod | None, new: Pod | None) -> None:
        metadata = (new or old).metadata  # type: ignore[union-attr]  # at least one is given
        if old is not None and new is not None and self._is_unchanged(old, new) and not self._is_resized(old, new):
            if not new.terminal:
                self._pods[metadata.namespace][metadata.key] = new
                if old.metadata.annotations != metadata.annotations:
                    self.dirty_pods.add(metadata.key)
            return
        if old is not None:
            self._forget_pod(old)
        if new is not None and not new.terminal:
            self._pods.setdefault(metadata.namespace, {})[metadata.key] = new
            if new.spec.node_name:
                self._pods_on.setdefault(new.spec.node_name, set()).add(metadata.key)
            self._govern(new)
            if marked(metadata.annotations) or metadata.key in self._governing:
                self.dirty_pods.add(metadata.key)
        self._collect_moved(metadata.namespace)

    def _is_unchanged(self, old: Pod, new: Pod) -> bool:
        """Whether an update left everything that affects counting unchanged."""
        return (
            old.metadata.uid == new.metadata.uid
            and old.metadata.labels == new.metadata.labels
            and old.spec.node_name == new.spec.node_name
            and (old.terminal, old.terminating) == (new.terminal, new.terminating)
            and self.uses(old) == self.uses(new)
        )

    def _is_resized(self, old: Pod, new: Pod) -> bool:
        """Whether the requests of a pod changed and a policy in its namespace depends on them."""
        policies = self.policies.get(new.metadata.namespace, {})
        return any(policy.rules.sized for policy in policies.values()) and requests(old) != requests(new)

    def _forget_pod(self, pod: Pod) -> None:
        key = pod.metadata.key
        self._ungovern(key)
        pods = self._pods.get(key[0], {})
        pods.pop(key, None)
        if not pods:
            self._pods.pop(key[0], None)
        on = self._pods_on.get(pod.spec.node_name)
        if on is not None:
            on.discard(key)
            if not on:
                del self._pods_on[pod.spec.node_name]

    def _govern(self, pod: Pod) -> None:
        """Count the pod for the policies that match it."""
        key = pod.metadata.key
        policies = self.policies.get(key[0], {})
        names = tuple(name for name, policy in policies.items() if policy.rules.governs(pod.metadata.labels))
        if not names:
            return
        self._governing[key] = names
        labels = self._nodes.get(pod.spec.node_name)
        for name in names:
            policy = policies[name]
            if labels is not None and policy.rules.counts(pod):
                policy.count(pod, labels, self.uses(pod))
                self.dirty_policies.add((key[0], name))
            self._share(policy, name, key[0], names, 1)

    def _ungovern(self, key: ObjectKey) -> None:
        names = self._governing.pop(key, ())
        for name in names:
            policy = self.policies.get(key[0], {}).get(name)
            if policy is not None:
                if policy.uncount(key):
                    self.dirty_policies.add((key[0], name))
                self._share(policy, name, key[0], names, -1)

    def _share(self, policy: CountedPolicy, name: str, namespace: str, names: Iterable[str], amount: int) -> None:
        for other in names:
            if other != name:
                policy.shared[other] += amount
                if not policy.shared[other]:
                    del policy.shared[other]
                self.dirty_policies.add((namespace, name))

    def _collect_moved(self, namespace: str) -> None:
        """Collect pods whose charge changed because another pod was added or removed."""
        moved = self._moved.get(namespace)
        if moved:
            self.dirty_pods.update((namespace, name) for _, _, name in moved)
            moved.clear()

    # -- nodes

    def set_node(self, node: Node | None, name: str) -> None:
        """Handle an added, changed or (None) deleted node."""
        labels = None if node is None else node.metadata.labels
        if self._nodes.get(name) == labels:
            return
        if labels is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = labels
        for namespace, policies in self.policies.items():
            for policy_name, policy in policies.items():
                if policy.update_node(name, labels):
                    self.dirty_policies.add((namespace, policy_name))
        touched = set()
        for key in self._pods_on.get(name, ()):
            if key in self._governing:
                self._ungovern(key)
                self._govern(self._pods[key[0]][key])
                self.dirty_pods.add(key)
                touched.add(key[0])
        for namespace in touched:
            self._collect_moved(namespace)

    # -- policies

    def set_policy(self, old: Document | None, new: Document | None) -> None:
        metadata = (new or old)["metadata"]  # type: ignore[index]  # at least one is given
        key = (metadata.get("namespace", ""), metadata["name"])
        self.dirty_policies.add(key)
        if old is not None and new is not None and old.get("spec") == new.get("spec"):
            return
        namespace, name = key
        pods = self._pods.get(namespace, {})
        concerned = {each for each in pods if name in self._governing.get(each, ())}
        for each in concerned:
            self._ungovern(each)
        policies = self.policies.setdefault(namespace, {})
        policies.pop(name, None)
        self.faults.pop(key, None)
        if new is not None:
            try:
                policies[name] = CountedPolicy(read(new), self._nodes, self._moved.setdefault(namespace, set()))
            except BadPolicy as fault:
                self.faults[key] = str(fault)
        if name in policies:
            for each, pod in pods.items():
                if each not in concerned and policies[name].rules.governs(pod.metadata.labels):
                    self._ungovern(each)
                    concerned.add(each)
        for each in concerned:
            self._govern(pods[each])
        self.dirty_pods |= concerned
        self._collect_moved(namespace)
        if not policies:
            del self.policies[namespace]
            self._moved.pop(namespace, None)
