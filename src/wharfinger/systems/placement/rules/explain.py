"""Explains a decision: for each cluster the filter that rejected it and why, or its score from each prioritizer and its
rank.

Only reads a `PlacementResult`; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from wharfinger.api.registry import Document
from wharfinger.api.selectors import Operator, Requirement
from wharfinger.systems.placement.kinds.views import ClusterToleration, ManagedCluster
from wharfinger.systems.placement.rules import taints
from wharfinger.systems.placement.rules.cel import cluster_expression
from wharfinger.systems.placement.rules.fleet import Fleet, Mask
from wharfinger.systems.placement.rules.pipeline import (
    CAPACITY,
    PREDICATE,
    TAINT_TOLERATION,
    TIME_WINDOW,
    PlacementResult,
)
from wharfinger.systems.placement.rules.plan import Misconfiguration, PlacementPlan
from wharfinger.systems.placement.rules.selectors import Selector

CLUSTER_SET = "ClusterSet"
SCORE, SPREAD = "Score", "Spread"


class PartScore(msgspec.Struct, frozen=True):
    prioritizer: str
    weight: int
    score: int | None  # None: no data

    @property
    def contribution(self) -> int:
        return self.weight * (self.score or 0)


class ClusterExplanation(msgspec.Struct, frozen=True):
    """The outcome for one cluster. A rejected cluster has `plugin` and `reason`; a feasible one `parts`, `total` and
    `rank`."""

    name: str
    selected: bool = False
    plugin: str = ""
    reason: str = ""
    parts: tuple[PartScore, ...] = ()
    total: int | None = None
    rank: int | None = None  # among feasible clusters, from 1
    capacity: str = ""  # how many pods fit, if the placement asks for that


class PlacementExplanation(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    status: str
    message: str
    selected: tuple[str, ...]
    clusters: tuple[ClusterExplanation, ...] = msgspec.field(default_factory=tuple)  # by name

    def holding(self, clusters: tuple[str, ...], status: str, message: str) -> PlacementExplanation:
        """The same where the decisions stay as they are: these clusters."""
        kept = frozenset(clusters)
        stories = tuple(replace(each, selected=each.name in kept) for each in self.clusters)
        return replace(self, status=status, message=message, selected=clusters, clusters=stories)

    def document(self) -> Document:
        """The JSON document for `-o json`."""
        return {
            "placement": {"namespace": self.namespace, "name": self.name},
            "status": self.status,
            "message": self.message,
            "selected": list(self.selected),
            "clusters": {cluster.name: _cluster_document(cluster) for cluster in self.clusters},
        }


def _cluster_document(cluster: ClusterExplanation) -> Document:
    document: Document = {"selected": cluster.selected}
    if cluster.capacity:
        document["capacity"] = cluster.capacity
    if cluster.plugin:
        document |= {"plugin": cluster.plugin, "reason": cluster.reason}
    if cluster.total is not None:
        document |= {
            "rank": cluster.rank,
            "total": cluster.total,
            "scores": {part.prioritizer: {"weight": part.weight, "score": part.score} for part in cluster.parts},
        }
    return document


def explain(
    fleet: Fleet, plan: PlacementPlan, candidates: Mask, result: PlacementResult, now: float
) -> PlacementExplanation:
    reasons = unselected_reasons(fleet, plan, candidates, result, now)
    stories = feasible_stories(fleet, result)
    clusters = []
    for row in np.argsort(fleet.ranks):
        cluster, name = fleet.clusters[row], fleet.names[row]
        if cluster is None:
            continue
        plugin, _, reason = reasons.get(name, "").partition(": ")
        parts, total, rank = stories.get(int(row), ((), None, None))
        capacity = capacity_text(fleet, plan, int(row), now) if candidates[row] else ""
        clusters.append(
            ClusterExplanation(name, int(row) in result.selected, plugin, reason, parts, total, rank, capacity)
        )
    selected = tuple(fleet.names[row] for row in result.selected)
    message = f"{result.plugin}:{result.message}" if result.misconfigured else "; ".join(result.warnings)
    return PlacementExplanation(plan.namespace, plan.name, result.code.value, message, selected, tuple(clusters))


def feasible_stories(fleet: Fleet, result: PlacementResult) -> dict[int, tuple[tuple[PartScore, ...], int, int]]:
    order = np.lexsort((fleet.ranks[result.rows], -result.totals))
    ranks = {int(result.rows[position]): place + 1 for place, position in enumerate(order)}
    stories = {}
    for position, row in enumerate(result.rows.tolist()):
        parts = tuple(
            PartScore(
                part.prioritizer.name,
                part.prioritizer.weight,
                int(part.scores[position]) if part.scored[position] else None,
            )
            for part in result.parts
        )
        stories[row] = (parts, int(result.totals[position]), ranks[row])
    return stories


def unselected_reasons(
    fleet: Fleet, plan: PlacementPlan, candidates: Mask, result: PlacementResult, now: float
) -> dict[str, str]:
    """`Plugin: reason` for every known cluster that is not selected."""
    reasons: dict[str, str] = {}
    chosen = set(result.selected)
    own = set(fleet.decided(plan.namespace, plan.name))
    left = {stage.rpartition(",")[2]: set(rows.tolist()) for stage, rows in result.filtered.items()}
    lowest = min((total for row, total in result.total_of().items() if row in chosen), default=0)
    totals = result.total_of()
    for row, cluster in enumerate(fleet.clusters):
        if cluster is None or row in chosen:
            continue
        name = fleet.names[row]
        if not candidates[row]:
            why = "is being deleted" if cluster.metadata.deletion_timestamp else "is in no eligible cluster set"
            reasons[name] = f"{CLUSTER_SET}: {why}"
        elif PREDICATE in left and row not in left[PREDICATE]:
            reasons[name] = f"{PREDICATE}: {_predicate_reason(fleet, plan, row, now)}"
        elif TAINT_TOLERATION in left and row not in left[TAINT_TOLERATION]:
            assert not isinstance(plan.tolerations, Misconfiguration)
            reasons[name] = f"{TAINT_TOLERATION}: {_taint_reason(cluster, plan.tolerations, row in own, now)}"
        elif CAPACITY in left and row not in left[CAPACITY]:
            reasons[name] = f"{CAPACITY}: {capacity_text(fleet, plan, row, now)}"
        elif TIME_WINDOW in left and row not in left[TIME_WINDOW]:
            reasons[name] = f"{TIME_WINDOW}: no time window is open"
        elif result.misconfigured:
            reasons[name] = f"{result.plugin or 'Placement'}: {result.message}"
        elif plan.spread and (plan.number is None or len(chosen) < plan.number):
            reasons[name] = f"{SPREAD}: would exceed the maximum skew, or lacks the topology key"
        else:
            reasons[name] = f"{SCORE}: {totals.get(row, 0)}, the last one selected has {lowest}"
    return reasons


def capacity_text(fleet: Fleet, plan: PlacementPlan, row: int, now: float) -> str:
    """What the agent of the cluster says about the workload; empty if the placement does not ask."""
    if plan.extras.capacity is None:
        return ""
    found = fleet.score_object(row, plan.capacity_resource)
    if found is None:
        return f"not asked yet: is there a PodTemplate {plan.namespace}/{plan.extras.capacity.pod_template}?"
    if found.answer is None:
        return "its agent has not answered yet"
    return found.answer.text if now <= found.valid_until else "the answer of its agent has expired"


def _predicate_reason(fleet: Fleet, plan: PlacementPlan, row: int, now: float) -> str:
    assert not isinstance(plan.predicates, Misconfiguration)
    cluster = fleet.cluster(row)
    return "; ".join(_mismatch(fleet, selector, row, cluster, now) for selector in plan.predicates)


def _mismatch(fleet: Fleet, selector: Selector, row: int, cluster: ManagedCluster, now: float) -> str:
    """The first requirement of a predicate that the cluster fails."""
    for requirement in selector.labels:
        if not requirement.matches(cluster.metadata.labels):
            return f"label {_text(requirement)}, but it is {_shown(cluster.metadata.labels, requirement.key)}"
    claims = cluster.claims
    for requirement in selector.claims:
        if not requirement.matches(claims):
            return f"claim {_text(requirement)}, but it is {_shown(claims, requirement.key)}"
    bound = fleet.bound(row, now)
    for expression in selector.expressions:
        if not cluster_expression(expression).matches(bound):
            return f"false, or evaluation failed: {expression}"
    return "the CEL budget is exhausted"


def _shown(values: Mapping[str, str], key: str) -> str:
    return repr(values[key]) if key in values else "absent"


def _text(requirement: Requirement) -> str:
    values = f"({', '.join(sorted(requirement.values))})"
    match requirement.operator:
        case Operator.EXISTS:
            return f"{requirement.key} must be present"
        case Operator.DOES_NOT_EXIST:
            return f"{requirement.key} must be absent"
        case Operator.IN:
            return f"{requirement.key} must be in {values}"
        case _:
            return f"{requirement.key} must not be in {values}"


def _taint_reason(
    cluster: ManagedCluster, tolerations: tuple[ClusterToleration, ...], decided: bool, now: float
) -> str:
    standing = []
    for taint in cluster.spec.taints:
        if taint.effect == taints.PREFER_NO_SELECT or (decided and taint.effect == taints.NO_SELECT_IF_NEW):
            continue
        until = taints.tolerated_until(taint, tolerations)
        if not now < until:
            text = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            standing.append(f"{text} ({'toleration is over' if until > -np.inf else 'not tolerated'})")
    return ", ".join(standing)


def debug_document(fleet: Fleet, placement: Document, result: PlacementResult) -> Document:
    """The response of upstream's debug endpoint."""
    document: dict[str, Any] = {
        "placement": placement,
        "filteredPipelineResults": [
            {"name": stage, "filteredClusters": [fleet.names[row] for row in rows.tolist()]}
            for stage, rows in result.filtered.items()
        ],
        "prioritizeResults": [
            {
                "name": part.prioritizer.name,
                "weight": part.prioritizer.weight,
                "scores": {
                    fleet.names[row]: int(score)
                    for row, score, scored in zip(result.rows.tolist(), part.scores, part.scored, strict=True)
                    if scored
                },
            }
            for part in result.parts
        ],
        "aggregatedScores": [
            {"clusterName": fleet.names[row], "score": total}
            for row, total in sorted(result.total_of().items(), key=lambda item: (-item[1], fleet.names[item[0]]))
        ],
    }
    if result.misconfigured:
        document["error"] = f"{result.plugin}:{result.message}"
    return document
