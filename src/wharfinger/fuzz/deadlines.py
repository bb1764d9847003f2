"""Moments at which time alone changes something: what was so before need not be so after."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.registry import Document
from wharfinger.api.times import parse_time
from wharfinger.fuzz.history import PlainHistory, annotation, node_of

_AGENT_STOPPED = "wharfinger.dev/agent-stopped"
_LEASES_MISSED = 5
_LEASE_SECONDS = 60


def deadlines(history: PlainHistory) -> Iterator[float]:
    """Scores expire, tolerations end, and clusters are given up whose agents are silent. Seconds since the epoch."""
    for score in history.of("addonplacementscores"):
        if until := (score.get("status") or {}).get("validUntil"):
            yield parse_time(until)
    yield from _of_clusters(history)
    yield from _of_pods(history)


def _of_clusters(history: PlainHistory) -> Iterator[float]:
    tolerated = [seconds for each in history.of("placements") for seconds in _tolerated(each)]
    for cluster in history.of("managedclusters"):
        if since := annotation(cluster, _AGENT_STOPPED):
            lease = cluster["spec"].get("leaseDurationSeconds") or _LEASE_SECONDS
            yield parse_time(since) + _LEASES_MISSED * lease
        for added in _added(cluster):
            yield from (added + seconds for seconds in tolerated)


def _of_pods(history: PlainHistory) -> Iterator[float]:
    for pod in history.of("pods"):
        node = history.objects["nodes"].get(("", node_of(pod)))
        for added in _added(node or {}):
            yield from (added + seconds for seconds in _tolerated(pod))


def _added(tainted: Document) -> Iterator[float]:
    for taint in (tainted.get("spec") or {}).get("taints") or ():
        if taint.get("timeAdded"):
            yield parse_time(taint["timeAdded"])


def _tolerated(tolerating: Document) -> Iterator[float]:
    for toleration in tolerating["spec"].get("tolerations") or ():
        if toleration.get("tolerationSeconds") is not None:
            yield float(toleration["tolerationSeconds"])
