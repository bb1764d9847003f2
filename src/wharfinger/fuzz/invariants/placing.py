"""Placement: at rest, decisions equal what a plain computation from the same objects gives.

Histories use predicates, taints with tolerations that end, and scores that expire. They use the mode Exact without
Steady and Balance, so that nothing depends on earlier decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from wharfinger.api.registry import Document
from wharfinger.fuzz.history import PlainHistory, is_deleting, title
from wharfinger.fuzz.matching import selects

_PLACEMENT = "cluster.open-cluster-management.io/placement"
_BLUR = 2.0  # seconds around a deadline in which either answer is right


def placement_faults(history: PlainHistory) -> Iterator[str]:
    """A sentence for each placement whose decisions are not the ones that its inputs give."""
    for (namespace, name), placement in history.objects["placements"].items():
        if is_deleting(placement) or _near_a_deadline(history, placement):
            continue
        wanted = chosen(history, placement, history.now)
        found = sorted(
            each["clusterName"]
            for (where, _), page in history.objects["placementdecisions"].items()
            if where == namespace and (page["metadata"].get("labels") or {}).get(_PLACEMENT) == name
            for each in (page.get("status") or {}).get("decisions") or ()
        )
        if found != wanted:
            yield f"placement {title(placement)} has decided for {found}, but its inputs give {wanted}"


def chosen(history: PlainHistory, placement: Document, now: float) -> list[str]:
    spec, namespace = placement["spec"], placement["metadata"]["namespace"]
    if (namespace, "global") not in history.objects["managedclustersetbindings"]:
        return []
    if ("", "global") not in history.objects["managedclustersets"]:
        return []
    scored = []
    for cluster in history.objects["managedclusters"].values():
        labels = cluster["metadata"].get("labels") or {}
        predicates = spec.get("predicates") or ()
        fits = not predicates or any(
            selects((each.get("requiredClusterSelector") or {}).get("labelSelector"), labels) for each in predicates
        )
        taints = (cluster.get("spec") or {}).get("taints") or ()
        if fits and not is_deleting(cluster) and all(_tolerated(each, spec, now) for each in taints):
            scored.append((-_score(history, spec, cluster["metadata"]["name"], now), cluster["metadata"]["name"]))
    scored.sort()
    limit = spec.get("numberOfClusters")
    return sorted(name for _, name in (scored if limit is None else scored[:limit]))


def _tolerated(taint: Document, spec: Document, now: float) -> bool:
    for each in spec.get("tolerations") or ():
        if each.get("key") not in (None, "", taint["key"]):
            continue
        seconds = each.get("tolerationSeconds")
        if seconds is None or (taint.get("timeAdded") and now < _moment(taint["timeAdded"]) + seconds):
            return True
    return False


def _score(history: PlainHistory, spec: Document, cluster: str, now: float) -> int:
    weight = int(spec["prioritizerPolicy"]["configurations"][0].get("weight", 1))
    status = (history.objects["addonplacementscores"].get((cluster, "load")) or {}).get("status") or {}
    if status.get("validUntil") and now > _moment(status["validUntil"]):
        return 0
    return weight * sum(int(each.get("value") or 0) for each in status.get("scores") or () if each["name"] == "s")


def _near_a_deadline(history: PlainHistory, placement: Document) -> bool:
    moments = [
        _moment(each["status"]["validUntil"])
        for each in history.objects["addonplacementscores"].values()
        if (each.get("status") or {}).get("validUntil")
    ]
    moments += [
        _moment(taint["timeAdded"]) + float(toleration["tolerationSeconds"])
        for cluster in history.objects["managedclusters"].values()
        for taint in (cluster.get("spec") or {}).get("taints") or ()
        for toleration in placement["spec"].get("tolerations") or ()
        if taint.get("timeAdded") and toleration.get("tolerationSeconds") is not None
    ]
    return any(abs(moment - history.now) <= _BLUR for moment in moments)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
