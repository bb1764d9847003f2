"""Unit limits: a decision of ours never exceeds the maxCount or the maxResources of a unit of a resource policy, and never
leaves the units of a policy that requires them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from wharfinger.api.registry import Document
from wharfinger.fuzz.history import PlainChange, PlainHistory, TracedDecision, is_deleting, is_terminal, node_of, title
from wharfinger.fuzz.invariants.base import Invariant
from wharfinger.fuzz.invariants.interference import Interference
from wharfinger.fuzz.matching import selects
from wharfinger.fuzz.quantities import amounts, counted_requests, exceeding, total


class UnitLimits(Invariant):
    name = "unit-limits"
    kinds = ("resourcepolicies", "nodes", "pods")

    def __init__(self, history: PlainHistory) -> None:
        super().__init__(history)
        self._interference = Interference(history)
        self._policies_changed = 0
        self._nodes_changed = 0
        self._pods_changed: dict[str, int] = defaultdict(int)  # by namespace: not by us
        self._runs: dict[str, dict[object, int]] = defaultdict(dict)  # by namespace and run: its last binding

    def changed(self, change: PlainChange) -> Iterator[str]:
        if change.plural == "resourcepolicies":
            if change.respecified:
                self._policies_changed = change.version
        elif change.plural == "nodes":
            self._nodes_changed = change.version
        elif change.plural == "pods":
            yield from self._pod_changed(change)

    def _pod_changed(self, change: PlainChange) -> Iterator[str]:
        before, after = change.before, change.after
        decision = self._interference.observe(change)
        namespace = change.key[0]
        if decision is not None and after is not None:
            for pod, made in ((after, decision), *self._made_later(namespace, decision)):
                if not self._excused(namespace, made):
                    yield from self._check(pod, made)
            self._runs[namespace][decision.run] = change.version
        elif after is not None and (
            before is None
            or node_of(before) != node_of(after)
            or change.relabelled
            or change.respecified
            or (before.get("status") or {}).get("containerStatuses")
            != (after.get("status") or {}).get("containerStatuses")
        ):
            self._pods_changed[namespace] = change.version

    def _excused(self, namespace: str, decision: TracedDecision) -> bool:
        others = (version for run, version in self._runs[namespace].items() if run is not decision.run)
        return (
            not decision.knew("resourcepolicies", self._policies_changed)
            or not decision.knew("nodes", self._nodes_changed)
            or not decision.knew("pods", self._pods_changed[namespace])
            or not all(decision.knew("pods", version) for version in others)
        )

    def _made_later(self, namespace: str, decision: TracedDecision) -> Iterator[tuple[Document, TracedDecision]]:
        """Pods that were bound already, on decisions that knew of this one and had to count its pod."""
        for pod in self.history.of("pods"):
            if pod["metadata"]["namespace"] != namespace or not node_of(pod) or is_terminal(pod):
                continue
            made = self.history.placed_by(pod["metadata"]["uid"], node_of(pod))
            if made is not None and decision.before(made):
                yield pod, made

    def _check(self, pod: Document, decision: TracedDecision) -> Iterator[str]:
        namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
        policies = [
            each
            for (where, _), each in self.history.objects["resourcepolicies"].items()
            if where == namespace and selects(each["spec"].get("podSelector"), labels)
        ]
        if len(policies) != 1:
            if policies:
                yield f"pod {title(pod)} was bound though {len(policies)} resource policies govern it"
            return
        policy = policies[0]
        units = [each for each in policy["spec"]["units"] if self._is_in(each, node_of(pod))]
        if not units:
            if policy["spec"].get("strategy", "required") == "required":
                yield f"pod {title(pod)} is on node {node_of(pod)}, in no unit of resource policy {title(policy)}"
            return
        if len(units) > 1:
            return
        (unit,) = units
        there = list(self._group(policy, unit, pod, decision))
        where = f"unit {unit['name']} of resource policy {title(policy)}"
        if unit.get("maxCount") is not None and len(there) > unit["maxCount"]:
            yield f"pod {title(pod)} is number {len(there)} in {where}, which allows {unit['maxCount']}"
        if unit.get("maxResources"):
            limit, used = amounts(unit["maxResources"]), total(counted_requests(each) for each in there)
            mine = counted_requests(pod)
            for name in exceeding(used, limit, (each for each in limit if mine.get(each))):
                yield f"with pod {title(pod)}, {used[name]} of {limit[name]} milli-{name} are used in {where}"

    def _is_in(self, unit: Document, node: str) -> bool:
        found = self.history.objects["nodes"].get(("", node))
        return found is not None and selects(unit.get("nodeSelector"), found["metadata"].get("labels") or {})

    def _group(self, policy: Document, unit: Document, pod: Document, decision: TracedDecision) -> Iterator[Document]:
        """The pods in the unit that are counted together with this one: not those that were decided on later. Each pod
        has a view of its own of who belongs together, so that the order matters."""
        labels = pod["metadata"].get("labels") or {}
        keys = [key for key in policy["spec"].get("matchLabelKeys") or () if key in labels]
        ignored = (policy["spec"].get("matchPolicy") or {}).get("ignoreTerminatingPod", False)
        nodes = [name for name, there in self.history.pods_on.items() if there and self._is_in(unit, name)]
        for (namespace, _), each in (item for name in nodes for item in self.history.pods_on[name].items()):
            if namespace != pod["metadata"]["namespace"] or is_terminal(each):
                continue
            theirs = each["metadata"].get("labels") or {}
            if ignored and is_deleting(each):
                continue
            made = self.history.placed_by(each["metadata"]["uid"], node_of(each))
            if made is not None and decision.before(made):
                continue
            if selects(policy["spec"].get("podSelector"), theirs) and all(theirs.get(k) == labels[k] for k in keys):
                yield each
