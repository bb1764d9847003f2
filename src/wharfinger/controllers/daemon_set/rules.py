"""The decisions of the DaemonSet controller: which nodes need a pod, which pods to delete, and rolling updates. Pure.

The rules are those of upstream's pkg/controller/daemon (daemon_controller.go, update.go, util).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from wharfinger.api.node_affinity import required_node_affinity
from wharfinger.api.object_meta import created_at
from wharfinger.api.pod_state import is_available
from wharfinger.api.registry import Document
from wharfinger.api.taints import (
    DAEMON_TOLERATIONS,
    HOST_NETWORK_DAEMON_TOLERATION,
    NO_EXECUTE,
    has_untolerated_taint,
)
from wharfinger.api.views import DaemonSet, Node, Pod, view
from wharfinger.api.views.pods import PodSpec
from wharfinger.controllers.int_or_percent import scaled
from wharfinger.controllers.template_hashes import REVISION_HASH


def with_tolerations(spec: Document) -> Document:
    """The pod spec with the tolerations that every daemon pod gets."""
    wanted = [*DAEMON_TOLERATIONS, *([HOST_NETWORK_DAEMON_TOLERATION] if spec.get("hostNetwork") else [])]
    tolerations = [
        each for each in spec.get("tolerations") or () if not any(_same(each, key, effect) for key, effect in wanted)
    ]
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in wanted]
    return {**spec, "tolerations": tolerations + added}


def _same(toleration: Mapping[str, Any], key: str, effect: str) -> bool:
    return (
        toleration.get("key") == key
        and toleration.get("effect") == effect
        and toleration.get("operator") == "Exists"
        and not toleration.get("value")
    )


def for_node(spec: Document, node: str) -> Document:
    """The pod spec with a required node affinity to one node, where the scheduler then places it."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = dict(spec.get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    # The required affinity of the template has been checked already; upstream replaces it too.
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
    return {**spec, "affinity": {**affinity, "nodeAffinity": node_affinity}}


def node_of(pod: Pod) -> str:
    """The node of a daemon pod: where it is bound, or else the one that its affinity names."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return ""
    for term in affinity.required.node_selector_terms:
        for each in term.match_fields:
            if each.key == "metadata.name" and each.operator == "In" and len(each.values) == 1:
                return each.values[0]
    return ""


PodPairs = Mapping[str, tuple[Pod | None, Pod | None] | None]
"""By node, the updated and the old pod; None if there are several of either."""


class Eligibility(msgspec.Struct, frozen=True):
    run: bool  # the node should have a pod
    stay: bool  # an existing pod may stay


class NodeEligibility:
    """Which nodes the pods of a daemon set may run on (upstream's NodeShouldRunDaemonPod)."""

    def __init__(self, daemon_set: DaemonSet) -> None:
        self._spec = view(with_tolerations(daemon_set.spec.template.get("spec") or {}), PodSpec)
        self._affinity = required_node_affinity(self._spec)

    def of(self, node: Node) -> Eligibility:
        spec, taints = self._spec, node.spec.taints
        if spec.node_name and spec.node_name != node.metadata.name:
            return Eligibility(False, False)
        if not self._affinity.matches(node):
            return Eligibility(False, False)
        if not has_untolerated_taint(spec.tolerations, taints):
            return Eligibility(True, True)
        return Eligibility(False, not has_untolerated_taint(spec.tolerations, taints, (NO_EXECUTE,)))


class DaemonPlan(msgspec.Struct):
    create: list[str] = msgspec.field(default_factory=list)  # nodes
    delete: list[Pod] = msgspec.field(default_factory=list)
    failed: list[Pod] = msgspec.field(default_factory=list)  # the pods of `delete` that have finished


def limits(spec: DaemonSet, desired: int) -> tuple[int, int]:
    """Surge and unavailability. Both are rounded up, unlike those of deployments."""
    rolling = spec.spec.update_strategy.rolling_update
    if rolling is None:
        return 0, 1 if desired else 0
    surge = scaled(rolling.max_surge, desired, round_up=True)
    unavailable = scaled(rolling.max_unavailable, desired, round_up=True)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, unavailable


def allows_surge(spec: DaemonSet) -> bool:
    rolling = spec.spec.update_strategy.rolling_update
    return (
        spec.spec.update_strategy.type == "RollingUpdate" and rolling is not None and rolling.max_surge not in (0, "0%")
    )


def manage(
    spec: DaemonSet, nodes: Sequence[Node], by_node: Mapping[str, Sequence[Pod]], revision: str, now: float
) -> DaemonPlan:
    """Which pods to create and delete so that exactly the eligible nodes have one."""
    eligibility = NodeEligibility(spec)
    result = DaemonPlan()
    for node in nodes:
        name = node.metadata.name
        pods = by_node.get(name, ())
        verdict = eligibility.of(node)
        if verdict.run and not pods:
            result.create.append(name)
        elif verdict.stay:
            _prune(spec, verdict, name, pods, revision, now, result)
        else:
            result.delete += [pod for pod in pods if not pod.terminating]
    known = {node.metadata.name for node in nodes}
    for name, pods in by_node.items():
        if name not in known:
            result.delete += [pod for pod in pods if not pod.terminating and not pod.spec.node_name]
    return result


def _prune(
    spec: DaemonSet, verdict: Eligibility, node: str, pods: Sequence[Pod], revision: str, now: float, result: DaemonPlan
) -> None:
    running = []
    for pod in pods:
        if pod.terminating:
            continue
        if pod.terminal:
            result.delete.append(pod)
            result.failed.append(pod)
        else:
            running.append(pod)
    running.sort(key=_seniority)
    if not allows_surge(spec):
        result.delete += running[1:]
        return
    if not running:
        if verdict.run:
            result.create.append(node)
        return
    fresh = [pod for pod in running if pod.metadata.labels.get(REVISION_HASH) == revision]
    old = [pod for pod in running if pod.metadata.labels.get(REVISION_HASH) != revision]
    result.delete += [*fresh[1:], *old[1:]]
    if fresh and old and (not old[0].ready or is_available(fresh[0], spec.spec.min_ready_seconds, now)):
        result.delete.append(old[0])


def _seniority(pod: Pod) -> tuple[bool, float, str]:
    """A sort key: bound pods first, then by age."""
    return not pod.spec.node_name, created_at(pod.metadata), pod.metadata.name


def rolling_update(
    spec: DaemonSet, nodes: Sequence[Node], by_node: Mapping[str, Sequence[Pod]], revision: str, now: float
) -> DaemonPlan:
    """The pods that an update replaces now; if surge is allowed, the nodes that get the new pod first."""
    eligibility = NodeEligibility(spec)
    wanted = {node.metadata.name for node in nodes if eligibility.of(node).run}
    surge, unavailable = limits(spec, len(wanted))
    seconds = spec.spec.min_ready_seconds
    pairs: PodPairs = {node: _pair(by_node.get(node, ()), revision) for node in sorted({*wanted, *by_node})}
    if surge == 0:
        return _replace(pairs, unavailable, seconds, now)
    return _surge(pairs, wanted, surge, seconds, now)


def _replace(pairs: PodPairs, most: int, seconds: int, now: float) -> DaemonPlan:
    missing = 0
    at_once: list[Pod] = []
    candidates: list[Pod] = []
    for pair in pairs.values():
        fresh, old = pair if pair is not None else (None, None)
        if pair is None or (fresh is None) == (old is None):
            missing += 1  # `manage` creates or deletes it
        elif fresh is not None:
            missing += not is_available(fresh, seconds, now)
        elif old is not None and not is_available(old, seconds, now):
            at_once.append(old)
            missing += 1
        elif old is not None:
            candidates.append(old)
    return DaemonPlan(delete=at_once + candidates[: max(0, most - missing)])


def _surge(pairs: PodPairs, wanted: set[str], most: int, seconds: int, now: float) -> DaemonPlan:
    result = DaemonPlan()
    surging = 0
    candidates: list[str] = []
    for node, pair in pairs.items():
        if pair is None:
            surging += 1
            continue
        fresh, old = pair
        if old is None:
            continue
        if fresh is not None:
            if is_available(fresh, seconds, now):
                result.delete.append(old)
            else:
                surging += 1
        elif node not in wanted:
            continue
        elif not is_available(old, seconds, now):
            result.create.append(node)
        else:
            candidates.append(node)
    result.create += candidates[: max(0, most - surging)]
    return result


def _pair(pods: Sequence[Pod], revision: str) -> tuple[Pod | None, Pod | None] | None:
    """The updated and the old pod of a node; None if there are several of either."""
    fresh = [p for p in pods if not p.terminating and p.metadata.labels.get(REVISION_HASH) == revision]
    old = [p for p in pods if not p.terminating and p.metadata.labels.get(REVISION_HASH) != revision]
    if len(fresh) > 1 or len(old) > 1:
        return None
    return (fresh[0] if fresh else None), (old[0] if old else None)


def status(
    spec: DaemonSet, nodes: Sequence[Node], by_node: Mapping[str, Sequence[Pod]], revision: str, now: float
) -> Document:
    eligibility = NodeEligibility(spec)
    desired = current = misplaced = ready = up = updated = 0
    for node in nodes:
        pods = by_node.get(node.metadata.name, ())
        if not eligibility.of(node).run:
            misplaced += bool(pods)
            continue
        desired += 1
        if not pods:
            continue
        current += 1
        oldest = min(pods, key=_seniority)
        ready += any(pod.ready and not pod.terminating for pod in pods)
        up += any(is_available(pod, spec.spec.min_ready_seconds, now) and not pod.terminating for pod in pods)
        updated += oldest.metadata.labels.get(REVISION_HASH) == revision or (
            allows_surge(spec) and any(pod.metadata.labels.get(REVISION_HASH) == revision for pod in pods)
        )
    return {
        "desiredNumberScheduled": desired,
        "currentNumberScheduled": current,
        "numberMisscheduled": misplaced,
        "numberReady": ready,
        "updatedNumberScheduled": updated,
        "numberAvailable": up,
        "numberUnavailable": desired - up,
        "observedGeneration": spec.metadata.generation,
    }
