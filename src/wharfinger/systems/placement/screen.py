"""The fleet on the dashboard: clusters, placements, and why each placement has its clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wharfinger.api.conditions import find_condition
from wharfinger.api.registry import Document, Resource
from wharfinger.api.times import time_or_none
from wharfinger.api.views.base import readable_views
from wharfinger.systems.placement.controllers.cache import PlacementCache
from wharfinger.systems.placement.controllers.sets import DEFAULT_SETS
from wharfinger.systems.placement.kinds.names import (
    ADDON_PLACEMENT_SCORES,
    MANAGED_CLUSTER_SET_BINDINGS,
    MANAGED_CLUSTER_SETS,
    MANAGED_CLUSTERS,
    PLACEMENT_DECISIONS,
    PLACEMENTS,
)
from wharfinger.systems.placement.kinds.views import (
    AddOnPlacementScore,
    ManagedClusterSet,
    ManagedClusterSetBinding,
    Placement,
    PlacementDecision,
)
from wharfinger.systems.placement.rules.explain import explain
from wharfinger.systems.placement.rules.pipeline import schedule

_EXPLAINED = 50  # placements that are explained

Objects = Callable[[Resource], Sequence[Document]]


def fleet_view(objects: Objects, now: float) -> dict[str, list[Document]]:
    """The clusters, and for each placement every cluster's scores or the filter that rejects it."""
    return {"clusters": [_cluster(each) for each in objects(MANAGED_CLUSTERS)], "placements": _placements(objects, now)}


def _placements(objects: Objects, now: float) -> list[Document]:
    cache = PlacementCache(lambda key: None, lambda: now)
    for document in objects(MANAGED_CLUSTERS):
        cache.put_cluster(document)
    sets = readable_views(objects(MANAGED_CLUSTER_SETS), ManagedClusterSet)
    known = {each.metadata.name for each in sets}
    missing = [{"metadata": {"name": name}, "spec": spec} for name, spec in DEFAULT_SETS.items() if name not in known]
    for each in (*sets, *readable_views(missing, ManagedClusterSet)):
        cache.put_set(each)
    for binding in readable_views(objects(MANAGED_CLUSTER_SET_BINDINGS), ManagedClusterSetBinding):
        cache.put_binding(binding)
    for score in readable_views(objects(ADDON_PLACEMENT_SCORES), AddOnPlacementScore):
        cache.put_score(None, score)
    for page in readable_views(objects(PLACEMENT_DECISIONS), PlacementDecision):
        cache.put_page(page)
    for placement in readable_views(objects(PLACEMENTS), Placement):
        cache.put_placement(placement)
    rows = []
    for key in sorted(cache.placements)[:_EXPLAINED]:
        plan, candidates = cache.plan(key), cache.fleet.eligible(cache.scope(key).selectors)
        story = explain(cache.fleet, plan, candidates, schedule(cache.fleet, plan, candidates, now), now).document()
        decided = [each.cluster_name for page in cache.pages.get(key, {}).values() for each in page.status.decisions]
        rows.append({"namespace": key[0], "name": key[1], "decided": decided, **story})
    return rows


def _cluster(document: Document) -> Document:
    metadata, status = document["metadata"], document.get("status") or {}
    available = find_condition(status.get("conditions") or (), "ManagedClusterConditionAvailable") or {}
    return {
        "name": metadata["name"],
        "available": available.get("status") or "Unknown",
        "message": available.get("message") or ("" if available else "no agent has reported yet"),
        "since": time_or_none(available.get("lastTransitionTime")),
        "labels": metadata.get("labels") or {},
        "taints": (document.get("spec") or {}).get("taints") or [],
        "allocatable": status.get("allocatable") or {},
        "version": (status.get("version") or {}).get("kubernetes") or "",
    }
