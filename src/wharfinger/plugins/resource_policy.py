"""resourcepolicy: fills kinds of node in the order a ResourcePolicy gives, each up to its limit.

A pod on a node takes a place in its unit from the moment it is assumed until it ends or goes, so that the tables' own
reserving and giving back is all there is to Reserve and Unreserve. What is counted is in `resource_policy_counting.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from wharfinger.api.views import Pod
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.plugin import MAX_SCORE, Plugin, Prepared, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.status import Status, unresolvable, unschedulable
from wharfinger.framework.tables import Key, PodOnNode, Tables
from wharfinger.plugins.resource_policy_charges import Units
from wharfinger.plugins.resource_policy_counting import Counting
from wharfinger.plugins.resource_policy_nodes import NodeKinds
from wharfinger.plugins.resource_policy_rules import OUTSIDE, BadPolicy, Rules, Signature, order, read

KIND = "ResourcePolicy"
PRIORITY_POINTS = 20
"""Raw points for each step of priority; nodes of no unit get as many below nothing."""


def several(names: list[str]) -> Status:
    quoted = ", ".join(f'"{name}"' for name in sorted(names))
    return unresolvable(f"pod is matched by more than one resource policy: {quoted}")


def outside(policy: str) -> Status:
    return unresolvable(f'node(s) were in no unit of resource policy "{policy}"')


def full(policy: str, units: list[str]) -> Status:
    names = ", ".join(f'"{name}"' for name in units)
    if len(units) == 1:
        return unschedulable(f'node(s) were in unit {names} of resource policy "{policy}", which is full')
    return unschedulable(f'node(s) were in units {names} of resource policy "{policy}", which are full')


class Policy:
    """One policy with the pods it counts and the kinds of node it tells apart."""

    def __init__(self, tables: Tables, rules: Rules) -> None:
        self._tables = tables
        self.rules = rules
        self.nodes = NodeKinds(tables, rules)
        self.counting = Counting(rules)

    def catch_up(self) -> None:
        """Nodes that are in other units now take their pods with them."""
        for row in self.nodes.catch_up():
            for key in self._tables.pods_on[row]:
                counted = self.counting.pods.get(key)
                if counted is not None:
                    self.counting.remove(key)
                    self.counting.add(key, counted.order, counted.signature, self.nodes.at(row))

    def add(self, pod: PodOnNode, signature: Signature) -> bool:
        """Counts a pod on its node; says whether a unit got full by it."""
        if not self.rules.counts(pod.pod):
            return False
        if self.nodes.behind:
            self.catch_up()
        return self.counting.add(pod.key, order(pod.pod.metadata), signature, self.nodes.at(pod.row))


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
                policy.add(pod, policy.rules.signature(labels))
        return policy

    def pod_added(self, pod: PodOnNode) -> None:
        namespace = pod.key[0]
        self._pods.setdefault(namespace, {})[pod.key] = pod
        if namespace in self._policies:
            for policy, signature in self._governed(pod.shape):
                if policy.add(pod, signature):
                    self.tables.moved()

    def pod_removed(self, pod: PodOnNode) -> None:
        namespace = pod.key[0]
        self._pods[namespace].pop(pod.key, None)
        if not self._pods[namespace]:
            del self._pods[namespace]
        for policy in self._policies.get(namespace, {}).values():
            if policy.counting.remove(pod.key):
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

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        if shape.namespace not in self._policies:
            return None
        governing = self._governed(shape)
        if not governing:
            return None
        if len(governing) > 1:
            return several([policy.rules.name for policy, _ in governing])
        return Governed(*governing[0])

    # queueing hints

    def wake_ups(self) -> tuple[WakeUp, ...]:
        ends = Action.DELETE | Action.UPDATE_POD_LABEL | Action.UPDATE_OTHER
        nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL
        return (
            WakeUp(KIND, Action.ALL, self._policy_changed),
            WakeUp(POD, ends, self._pod_changed),
            WakeUp(NODE, nodes, self._node_changed),
        )

    def _policy_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        if (new or old)["metadata"].get("namespace", "") != pod.metadata.namespace:
            return False
        return old is None or new is None or old.get("spec") != new.get("spec")

    def _pod_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        """A pod that took a place for one of the pod's policies does no longer."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        if old is None or old.metadata.namespace != namespace:
            return False
        for policy in self._policies.get(namespace, {}).values():
            rules = policy.rules
            if rules.governs(labels) and rules.governs(old.metadata.labels) and rules.counts(old):
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


class Governed(Prepared):
    """The answers for pods of one group."""

    scope = Scope.CLUSTER
    filters = scores = normalizes = True

    def __init__(self, policy: Policy, signature: Signature) -> None:
        super().__init__()
        self._policy = policy
        self._signature = signature
        policy.catch_up()
        self._group = policy.counting.acquire(signature)
        self._computed = -1
        self._verdicts: Ints = np.zeros(0, dtype=np.int64)  # [kind]
        self._raw: Ints = np.zeros(0, dtype=np.int64)  # [kind]

    @property
    def version(self) -> int:
        self._policy.catch_up()
        return self._group.version + self._policy.nodes.version

    def filter(self, rows: Rows) -> Ints:
        self._compute()
        return self._verdicts.take(self._policy.nodes.kinds.take(rows))

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        self._compute()
        imagined = None if simulation is None else simulation.state.get(self)
        if not imagined:
            return int(self._verdicts[self._policy.nodes.kinds[row]])
        units = self._policy.nodes.at(row)
        came = [pod for pod, amount in imagined.items() if amount > 0]
        went = [pod for pod, amount in imagined.items() if amount < 0]
        version = self._group.version
        for each in went:
            self._group.remove(each)
        for each in came:
            self._group.add(each, units)
        code = self._code(units)
        for each in came:
            self._group.remove(each)
        for each in went:
            self._group.add(each, units)
        self._group.version = version  # nothing is full now that was not before
        return code

    def pod_simulated(self, simulation: Simulation, pod: PodOnNode, sign: int) -> None:
        rules = self._policy.rules
        if pod.key[0] != rules.namespace or not rules.governs(pod.pod.metadata.labels) or not rules.counts(pod.pod):
            return
        if not self._policy.counting.sees(self._signature, rules.signature(pod.pod.metadata.labels)):
            return
        imagined = simulation.state.setdefault(self, {})
        counted = self._policy.counting.pods.get(pod.key)
        which = counted.order if counted is not None else order(pod.pod.metadata)
        amount = imagined.get(which, 0) + sign
        # A pod that is counted can only go, and one that is not can only come.
        if amount == 0 or (amount > 0) == (counted is not None):
            imagined.pop(which, None)
        else:
            imagined[which] = amount

    def close(self) -> None:
        self._policy.counting.release(self._signature)

    def score(self, rows: Rows) -> Ints:
        self._compute()
        return self._raw.take(self._policy.nodes.kinds.take(rows))

    def normalize(self, scores: Ints, rows: Rows) -> Ints:
        """By dense rank, so that far-apart priorities do not make near ones equal."""
        present = np.bincount(self._policy.nodes.kinds.take(rows), minlength=len(self._raw)) > 0
        levels = np.unique(self._raw[present])
        if len(levels) == 1:
            return np.full_like(scores, MAX_SCORE)
        ranks = np.searchsorted(levels, self._raw) * MAX_SCORE // (len(levels) - 1)
        return ranks.take(self._policy.nodes.kinds.take(rows))

    def _compute(self) -> None:
        """The answers for each kind of node."""
        version = self.version
        if version == self._computed:
            return
        self._computed = version
        kinds = self._policy.nodes.units
        self._verdicts = np.array([self._code(units) for units in kinds], dtype=np.int64)
        self._raw = np.array([self._points(units) for units in kinds], dtype=np.int64)

    def _code(self, units: Units) -> int:
        rules = self._policy.rules
        if not units:
            return 0 if rules.prefer else self.refuse(outside(rules.name))
        if any(self._group.has_room(unit) for unit in units):
            return 0
        return self.refuse(full(rules.name, [rules.units[unit].name for unit in sorted(units)]))

    def _points(self, units: Units) -> int:
        """By the unit that the pod would be charged to. Where none has room, the pod can only be let in by what it
        imagines, such as a reservation made for it."""
        rules = self._policy.rules
        if not units:
            return OUTSIDE * PRIORITY_POINTS
        unit = next((unit for unit in units if self._group.has_room(unit)), units[0])
        return rules.priority(unit) * PRIORITY_POINTS


plugins = (ResourcePolicyPlugin,)
