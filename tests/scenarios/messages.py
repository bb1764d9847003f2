"""What scenarios say to users, compared with the page that lists all reasons and messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from scripts.reference.messages import reported, scheduling_reasons
from scripts.reference.source import UNKNOWN, singular

from wharfinger.simulate.cluster import SimulatedCluster

_PLACEHOLDER = re.compile(rf"(<[^<>]*>|{UNKNOWN})")


def unlisted(cluster: SimulatedCluster) -> Iterator[str]:
    """The reasons of events and conditions that the page lacks, and messages about pods that begin with none of its texts."""
    for reason, message in said(cluster):
        if reason in ("FailedScheduling", "Unschedulable", "SchedulerError"):
            if not _scheduling().match(singular(message)):
                yield f"{reason}: {message}"
        elif reason and reason not in _reasons():
            yield f"{reason}: {message}"


def said(cluster: SimulatedCluster) -> Iterator[tuple[str, str]]:
    for kind in cluster.registry:
        for stored in cluster.store.scan(kind.storage):
            document = stored.document()
            if document.get("kind") == "Event":
                yield document["reason"], document.get("message") or document.get("note") or ""
            else:
                status = document.get("status")
                conditions = status.get("conditions") if isinstance(status, dict) else None
                for condition in conditions or ():
                    yield condition.get("reason") or "", condition.get("message") or ""


@cache
def _reasons() -> frozenset[str]:
    return frozenset(told.reason for told in reported())


@cache
def _scheduling() -> re.Pattern[str]:
    """Any of the page's texts, after what comes before the first one in a message."""
    patterns = []
    for text in {text for found in scheduling_reasons().values() for text in found}:
        if _PLACEHOLDER.sub("", text).strip(" :"):  # an error of any kind says nothing
            parts = _PLACEHOLDER.split(singular(text.strip()))
            patterns.append("".join(".+?" if _PLACEHOLDER.fullmatch(part) else re.escape(part) for part in parts))
    return re.compile(rf"(?:0/\d+ nodes is available: (?:\d+ )?)?(?:{'|'.join(sorted(patterns))})", re.DOTALL)
