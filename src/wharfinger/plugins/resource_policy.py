"""resourcepolicy: fills kinds of node in the order a ResourcePolicy gives, each up to its limit.

A pod on a node takes a place in its unit from the moment it is assumed until it ends or goes, so that the tables' own
reserving and giving back is all there is to Reserve and Unreserve. What is counted is in `resource_policy_counting.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import Any

from wharfinger.api.views import Pod
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.plugin import Plugin, Prepared
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status, unresolvable
from wharfinger.framework.tables import Key, PodOnNode, Tables
from wharfinger.plugins.reservation_ledger import ledger_of
from wharfinger.plugins.resource_policy_answers import Governed
from wharfinger.plugins.resource_policy_places import Policy
from wharfinger.plugins.resource_policy_rules import NEXT_UNITS, BadPolicy, Signature, read

KIND = "ResourcePolicy"


def several(names: list[str]) -> Status:
    quoted = ", ".join(f'"{name}"' for name in sorted(names))
    return unresolvable(f"pod is matched by more than one resource policy: {quoted}")


class ResourcePolicyPlugin(Plugin):
    name = "resourcepolicy"
    aliases = ("ResourcePolicy",)
    points = frozenset({"preFilter", "filter", "preScore", "score"})
    position = 300
    weight = 100  # the order of units stands above all stock scores together
    ours = True
    kinds = (KIND,)
    watches_pods = True

    MEMORY = 1 << 14  # shapes for which the governing policies are remembered

    def __init__(self, tables: Tables, args: Any) -> None:
        super().__init__(tables, args)
        self._ledger = ledger_of(tables)
        self._policies: dict[str, dict[str, Policy]] = {}  # by namespace and name
        self._pods: dict[str, dict[Key, PodOnNode]] = {}  # pods on nodes, by namespace
        self._governing: dict[int, list[tuple[Policy, Signature]]] = {}  # by number of the shape

    # what happens in the cluster

    def observe(self, kind: str, old: Any, new: Any) -> None:
        if old is not None and new is not None and old.get("spec") == new.get("spec"):
            return  # most updates are of the status
        metadata = (new or old)["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
        policies = self._policies.setdefault(namespace, {})
        policies.pop(name, None)
        if new is not None:
            # One that got past validation somehow is ignored; the controller says so in its status.
            with suppress(BadPolicy):
                policies[name] = self._counted(Policy(self.tables, read(new)))
        if not policies:
            del self._policies[namespace]
        self._governing.clear()
        self.tables.invalidate()

    def _counted(self, policy: Policy) -> Policy:
        for pod in self._pods.get(policy.rules.namespace, {}).values():
            labels = pod.pod.metadata.labels
            if policy.rules.governs(labels):
                policy.add(pod, policy.rules.signature(labels), self._ledger.reservation_of(pod.key))
        return policy

    def pod_added(self, pod: PodOnNode) -> None:
        namespace = pod.key[0]
        self._pods.setdefault(namespace, {})[pod.key] = pod
        if namespace in self._policies:
            reservation = self._ledger.reservation_of(pod.key)
            for policy, signature in self._governed(pod.shape):
                if policy.add(pod, signature, reservation):
                    self.tables.moved()

    def pod_removed(self, pod: PodOnNode) -> None:
        namespace = pod.key[0]
        self._pods[namespace].pop(pod.key, None)
        if not self._pods[namespace]:
            del self._pods[namespace]
        if namespace in self._policies:
            for policy, _ in self._governed(pod.shape):
                if policy.remove(pod):
                    self.tables.moved()

    def pod_replaced(self, pod: PodOnNode) -> None:
        if pod.key[0] not in self._policies:
            return
        reservation = self._ledger.reservation_of(pod.key)
        for policy, signature in self._governed(pod.shape):
            # What a bound pod names as its reservation counts, whatever was assumed before.
            if policy.reservation_of(pod.key) != reservation:
                policy.remove(pod)
                policy.add(pod, signature, reservation)
                self.tables.moved()

    def _governed(self, shape: Shape) -> list[tuple[Policy, Signature]]:
        found = self._governing.get(shape.number)
        if found is None:
            found = [
                (policy, policy.rules.signature(shape.labels))
                for policy in self._policies.get(shape.namespace, {}).values()
                if policy.rules.governs(shape.labels)
            ]
            if len(self._governing) >= self.MEMORY:
                self._governing.clear()
            self._governing[shape.number] = found
        return found

    # the way of a pod

    def shape_key(self, pod: Pod) -> Hashable:
        return pod.metadata.annotations.get(NEXT_UNITS)

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        if shape.namespace not in self._policies:
            return None
        governing = self._governed(shape)
        if not governing:
            return None
        if len(governing) > 1:
            return several([policy.rules.name for policy, _ in governing])
        return Governed(*governing[0], shape)

    # queueing hints

    def wake_ups(self) -> tuple[WakeUp, ...]:
        pods = Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL | Action.UPDATE_OTHER
        nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL
        return (
            WakeUp(KIND, Action.ALL, self._policy_changed),
            WakeUp(POD, pods, self._pod_changed),
            WakeUp(NODE, nodes, self._node_changed),
        )

    def _policy_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        if (new or old)["metadata"].get("namespace", "") != pod.metadata.namespace:
            return False
        return old is None or new is None or old.get("spec") != new.get("spec")

    def _pod_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        """A pod that took a place for one of the pod's policies does no longer, or one took a place that was waited for."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        if (new or old).metadata.namespace != namespace:
            return False
        for policy in self._policies.get(namespace, {}).values():
            rules = policy.rules
            if old is None:
                if rules.grows and rules.governs(labels) and rules.governs(new.metadata.labels):
                    return True
            elif rules.governs(labels) and rules.governs(old.metadata.labels) and rules.counts(old):
                if new is None or not rules.governs(new.metadata.labels) or not rules.counts(new):
                    return True
                if rules.signature(old.metadata.labels) != rules.signature(new.metadata.labels):
                    return True
        return False

    def _node_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        """A node came into a unit, or left one together with its pods."""
        before: Mapping[str, str] | None = None if old is None else old.metadata.labels
        after: Mapping[str, str] | None = None if new is None else new.metadata.labels
        for policy in self._policies.get(pod.metadata.namespace, {}).values():
            rules = policy.rules
            if rules.governs(pod.metadata.labels):
                left = () if before is None else rules.units_of(before)
                entered = () if after is None else rules.units_of(after)
                if left != entered or (before is None and rules.prefer):
                    return True
        return False


plugins = (ResourcePolicyPlugin,)
