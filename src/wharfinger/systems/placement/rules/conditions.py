"""Conditions of a Placement: whether it is satisfied or misconfigured, and why clusters were not selected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from wharfinger.api.conditions import new_condition, set_condition
from wharfinger.api.views.meta import Condition
from wharfinger.api.wording import counted
from wharfinger.systems.placement.rules.extras import Replicas
from wharfinger.systems.placement.rules.pipeline import PlacementResult
from wharfinger.systems.placement.rules.plan import Misconfiguration, PlacementPlan
from wharfinger.systems.placement.rules.replicas import shortfall
from wharfinger.systems.placement.rules.scope import EligibleSets

SATISFIED, MISCONFIGURED = "PlacementSatisfied", "PlacementMisconfigured"
UNSELECTED = "wharfinger.dev/UnselectedClusters"
REPLICAS_PLACED = "wharfinger.dev/ReplicasPlaced"


class PlacementCondition(msgspec.Struct, frozen=True):
    """A condition without timestamps."""

    type: str
    status: str
    reason: str
    message: str


def satisfied(plan: PlacementPlan, scope: EligibleSets, candidates: int, result: PlacementResult) -> PlacementCondition:
    def verdict(status: str, reason: str, message: str) -> PlacementCondition:
        return PlacementCondition(SATISFIED, status, reason, message)

    if not scope.bound:
        return verdict(
            "False",
            "NoManagedClusterSetBindings",
            f"No valid ManagedClusterSetBindings found in namespace {plan.namespace}",
        )
    if not scope.sets:
        requested = ",".join(plan.cluster_sets)
        return verdict("False", "NoIntersection", f"None of ManagedClusterSets [{requested}] is bound to the namespace")
    if not candidates:
        sets = ",".join(scope.sets)
        return verdict(
            "False", "AllManagedClusterSetsEmpty", f"All ManagedClusterSets [{sets}] have no member ManagedCluster"
        )
    if not result.selected and plan.number != 0:
        return verdict(
            "False", "NoManagedClusterMatched", "No ManagedCluster matches the predicates and tolerates the taints"
        )
    if result.missing:
        return verdict("False", "NotAllDecisionsScheduled", f"{result.missing} cluster decisions unscheduled")
    return verdict("True", "AllDecisionsScheduled", "All cluster decisions scheduled")


def misconfigured(fault: Misconfiguration | None) -> PlacementCondition:
    if fault is None:
        return PlacementCondition(MISCONFIGURED, "False", "Succeedconfigured", "Placement configurations check pass")
    return PlacementCondition(MISCONFIGURED, "True", "Misconfigured", f"{fault.plugin}:{fault.message}")


def replicas_placed(setting: Replicas, shares: Mapping[str, int]) -> PlacementCondition:
    reason, message = shortfall(setting, shares)
    if reason:
        return PlacementCondition(REPLICAS_PLACED, "False", reason, message)
    return PlacementCondition(
        REPLICAS_PLACED, "True", "AllReplicasPlaced", f"{counted(setting.total, 'replica')} placed"
    )


def merged(
    old: Iterable[Condition], verdicts: Iterable[PlacementCondition], generation: int, now: float
) -> list[dict[str, Any]]:
    """The condition list with these conditions set."""
    conditions = [_document(condition) for condition in old]
    for verdict in verdicts:
        condition = new_condition(verdict.type, verdict.status, verdict.reason, verdict.message, now)
        conditions = set_condition(conditions, {**condition, "observedGeneration": generation})
    return conditions


def changed(
    old: Sequence[Condition], verdicts: Iterable[PlacementCondition], generation: int, now: float
) -> list[dict[str, Any]] | None:
    """Like `merged`, but None if nothing changes."""
    new = merged(old, verdicts, generation, now)
    return None if new == merged(old, (), 0, 0.0) else new


def _document(condition: Condition) -> dict[str, Any]:
    document: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.last_transition_time,
    }
    if condition.observed_generation:
        document["observedGeneration"] = condition.observed_generation
    return document


def unselected(reasons: Mapping[str, str], limit: int) -> PlacementCondition:
    """A short summary: a count for each reason, and the first few clusters by name."""
    if not reasons:
        return PlacementCondition(UNSELECTED, "False", "AllSelected", "every candidate is selected")
    counts: dict[str, int] = {}
    for reason in reasons.values():
        kind = reason.partition(":")[0]
        counts[kind] = counts.get(kind, 0) + 1
    summary = ", ".join(
        f"{count} by {kind}" for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
    named = [f"{name} ({reason})" for name, reason in sorted(reasons.items())[:limit]]
    more = len(reasons) - len(named)
    listing = "; ".join(named) + (f"; and {more} more" if more else "")
    message = f"{len(reasons)} not selected, {summary}: {listing}"
    return PlacementCondition(UNSELECTED, "True", "NotSelected", message[:4096])
