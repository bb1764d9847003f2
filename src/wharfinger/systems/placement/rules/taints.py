"""Cluster taints and placement tolerations: until when a cluster is tolerated."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wharfinger.api.taints import tolerates
from wharfinger.api.times import BadTime, parse_time
from wharfinger.api.views.nodes import Taint
from wharfinger.systems.placement.kinds.views import ClusterToleration

NAME = "TaintToleration"
NO_SELECT, PREFER_NO_SELECT, NO_SELECT_IF_NEW = "NoSelect", "PreferNoSelect", "NoSelectIfNew"


def fault(tolerations: Sequence[ClusterToleration]) -> str:
    """Why the tolerations are invalid; empty if they are valid."""
    for toleration in tolerations:
        if not toleration.key and toleration.operator != "Exists":
            return "If the key is empty, operator must be Exists."
        if toleration.operator == "Exists" and toleration.value:
            return "If the operator is Exists, the value should be empty."
    return ""


def tolerated_until(taint: Taint, tolerations: Sequence[ClusterToleration]) -> float:
    """When the taint stops being tolerated: infinity if never, minus infinity if it is not tolerated at all.

    Expired tolerations are skipped and the next one is tried, so the latest end counts.
    """
    until = -math.inf
    for toleration in tolerations:
        if tolerates(toleration, taint):
            if toleration.toleration_seconds is None:
                return math.inf
            until = max(until, _added(taint) + toleration.toleration_seconds)
    return until


def _added(taint: Taint) -> float:
    """When the taint was added. Without a time: so long ago that every limited toleration has expired."""
    try:
        return parse_time(taint.time_added) if taint.time_added else -math.inf
    except BadTime:
        return -math.inf


def passes_until(taints: Sequence[Taint], tolerations: Sequence[ClusterToleration]) -> tuple[float, float]:
    """Until when a cluster passes the filter: as a new selection, and if already selected."""
    new = decided = math.inf
    for taint in taints:
        if taint.effect == PREFER_NO_SELECT:
            continue
        until = tolerated_until(taint, tolerations)
        new = min(new, until)
        if taint.effect != NO_SELECT_IF_NEW:
            decided = min(decided, until)
    return new, decided


def preferred_until(taints: Sequence[Taint], tolerations: Sequence[ClusterToleration]) -> float:
    """Until when every PreferNoSelect taint of a cluster is tolerated."""
    return min(
        (tolerated_until(taint, tolerations) for taint in taints if taint.effect == PREFER_NO_SELECT),
        default=math.inf,
    )
