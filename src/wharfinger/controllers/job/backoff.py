"""The back-off of a job after failed pods, as in upstream's backoff_utils.go. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from wharfinger.api.object_meta import created_at
from wharfinger.api.times import parse_time
from wharfinger.api.views import Pod

BASE, LIMIT = 10.0, 600.0


class JobBackoff(msgspec.Struct, frozen=True):
    """The number of failures since the last success, and the time of the last one."""

    failures: int = 0
    last: float = 0.0

    def after(self, succeeded: Iterable[Pod], failed: Iterable[Pod]) -> JobBackoff:
        """The back-off including pods that have finished since."""
        failures = sorted(map(finish_time, failed))
        successes = [finish_time(pod) for pod in succeeded]
        if not successes:
            return JobBackoff(self.failures + len(failures), failures[-1]) if failures else self
        later = [moment for moment in failures if moment > max(successes)]
        return JobBackoff(len(later), later[-1]) if later else JobBackoff()

    def remaining(self, now: float) -> float:
        return wait_after(self.failures, self.last, now)


def wait_after(failures: int, last: float, now: float) -> float:
    """Remaining seconds: ten after the first failure, doubled for each further one, at most ten minutes."""
    if not failures:
        return 0.0
    return max(0.0, last + min(LIMIT, BASE * 2.0 ** min(failures - 1, 10)) - now)


def finish_time(pod: Pod) -> float:
    """When a pod finished: when its last container did, or else when it became unready, or else when it was deleted."""
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
    statuses = [
        *pod.status.container_statuses,
        *(status for status in pod.status.init_container_statuses if status.name in sidecars),
    ]
    ends = [status.state.terminated.finished_at if status.state.terminated else "" for status in statuses]
    if ends and all(ends):
        return max(map(parse_time, ends))
    ready = pod.status.condition("Ready")
    if ready is not None and ready.status == "False" and ready.last_transition_time:
        return parse_time(ready.last_transition_time)
    if pod.metadata.deletion_timestamp:
        return parse_time(pod.metadata.deletion_timestamp) - (pod.metadata.deletion_grace_period_seconds or 0)
    return created_at(pod.metadata)
