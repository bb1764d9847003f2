"""Whether a pod is active or available. `Pod` itself has `ready`, `terminal` and `terminating`."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.times import parse_time
from wharfinger.api.views.pods import Pod


def is_active(pod: Pod) -> bool:
    """Neither finished nor being deleted."""
    return not pod.terminal and not pod.terminating


def ready_since(pod: Pod) -> float | None:
    """When the pod became ready; None while it is not ready, or if the condition has no transition time."""
    condition = pod.status.condition("Ready")
    if condition is None or condition.status != "True" or not condition.last_transition_time:
        return None
    return parse_time(condition.last_transition_time)


def is_available(pod: Pod, min_ready_seconds: int, now: float) -> bool:
    """Ready for at least `min_ready_seconds`."""
    if not pod.ready:
        return False
    if min_ready_seconds == 0:
        return True
    since = ready_since(pod)
    return since is not None and since + min_ready_seconds <= now


def next_availability(pods: Iterable[Pod], min_ready_seconds: int, now: float) -> float | None:
    """Seconds until the first ready pod that is not yet available becomes so."""
    waits = [
        since + min_ready_seconds - now
        for pod in pods
        if (since := ready_since(pod)) is not None and since + min_ready_seconds > now
    ]
    return min(waits, default=None)
