"""When pods and reservations end, as far as their objects say."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, parse_duration, parse_time
from wharfinger.api.views import Pod
from wharfinger.node.annotations import NEVER, RUN_FOR, seconds

RESERVATION = "Reservation"


def pod_end(pod: Pod, jobs: Mapping[str, Document]) -> float | None:
    """The latest moment at which the pod ends by itself; None if nothing says so. `jobs` are the Jobs by uid."""
    found = [_after(pod.status.start_time, pod.spec.active_deadline_seconds)]
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    if owner is not None and owner.uid in jobs:
        job = jobs[owner.uid]
        limit = (job.get("spec") or {}).get("activeDeadlineSeconds")
        found.append(_after((job.get("status") or {}).get("startTime") or "", limit))
    runs = seconds(pod.metadata.annotations, RUN_FOR, NEVER)
    if runs != NEVER and pod.spec.restart_policy != "Always":
        states = [each.state.running for each in pod.status.container_statuses if each.state.running is not None]
        started = max((state.started_at for state in states), default=pod.status.start_time)
        found.append(_after(started, runs))
    return min((end for end in found if end is not None), default=None)


def reservation_end(reservation: Document) -> float | None:
    """When a reservation expires."""
    spec, metadata = reservation.get("spec") or {}, reservation.get("metadata") or {}
    found = []
    try:
        if spec.get("expires"):
            found.append(parse_time(spec["expires"]))
        if spec.get("ttl") and (life := parse_duration(spec["ttl"])) > 0:
            found.append(parse_time(metadata.get("creationTimestamp") or "") + life)
    except BadTime:
        return None
    return min(found, default=None)


def _after(start: str, length: float | None) -> float | None:
    if not start or length is None:
        return None
    try:
        return parse_time(start) + float(length)
    except BadTime:
        return None
