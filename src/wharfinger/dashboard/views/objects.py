"""What several screens say about an object."""

from __future__ import annotations

from typing import Any

from wharfinger.api.conditions import find_condition
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, parse_time


def seconds(text: object) -> float | None:
    """The time as seconds since the epoch; None if there is none."""
    try:
        return parse_time(str(text)) if text else None
    except (BadTime, ValueError):
        return None


def created(document: Document) -> float | None:
    return seconds(document["metadata"].get("creationTimestamp"))


def place(document: Document) -> dict[str, Any]:
    metadata = document["metadata"]
    return {"namespace": metadata.get("namespace", ""), "name": metadata["name"]}


def scheduling_message(pod: Document) -> str:
    """What the scheduler last said about a pod without a node."""
    condition = find_condition((pod.get("status") or {}).get("conditions") or (), "PodScheduled") or {}
    return str(condition.get("message") or "") if condition.get("status") == "False" else ""


def workload(pod: Document) -> str:
    """`Kind/name` of the pod's controller, with ReplicaSets of Deployments called by the Deployment's name."""
    owner = controller_of(pod)
    if owner is None:
        return ""
    owner_kind, name = str(owner.get("kind")), str(owner.get("name"))
    template = (pod["metadata"].get("labels") or {}).get("pod-template-hash")
    if owner_kind == "ReplicaSet" and template and name.endswith(f"-{template}"):
        return f"Deployment/{name.removesuffix(f'-{template}')}"
    return f"{owner_kind}/{name}"


def happened(event: Document) -> float:
    """When an event happened last."""
    series = event.get("series") or {}
    for text in (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    ):
        if found := seconds(text):
            return found
    return 0.0


def event_row(event: Document) -> Document:
    involved = event.get("involvedObject") or {}
    return {
        "time": happened(event),
        "type": event.get("type", "Normal"),
        "reason": event.get("reason", ""),
        "message": event.get("message", ""),
        "count": max(int(event.get("count") or 1), int((event.get("series") or {}).get("count") or 1)),
        "from": event.get("reportingComponent") or (event.get("source") or {}).get("component") or "",
        "kind": involved.get("kind", ""),
        "namespace": involved.get("namespace", ""),
        "name": involved.get("name", ""),
    }
