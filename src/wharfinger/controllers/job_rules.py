"""What a job does next: who counts as done, how many pods should run, and when the job has ended. Pure.

The rules are those of upstream's pkg/controller/job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from wharfinger.api.times import parse_time
from wharfinger.api.views import Job, Pod
from wharfinger.controllers.parts.pods import created_at

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
BACKOFF_BASE, BACKOFF_LIMIT = 10.0, 600.0

Ending = tuple[str, str, str]
"""How a job ends: the final condition (Complete or Failed), its reason and its message."""


def finished(job: Job) -> bool:
    return any(c.type in ("Complete", "Failed") and c.status == "True" for c in job.status.conditions)


def indexed(job: Job) -> bool:
    return job.spec.completion_mode == "Indexed"


def has_failed(job: Job, pod: Pod) -> bool:
    """A pod on its way out counts as failed, unless the job waits to see how it ends."""
    if pod.status.phase == "Failed":
        return True
    return pod.terminating and pod.status.phase != "Succeeded" and job.spec.pod_replacement_policy != "Failed"


def is_active(pod: Pod) -> bool:
    return not pod.terminal and not pod.terminating


# Indexes


def index_of(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() else None


def parse_indexes(text: str) -> set[int]:
    """`0,2-4` as a set; what makes no sense is left out."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not dash):
            found.update(range(int(first), int(last if dash else first) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """A set as `0,2-4`; two neighbours stay apart by a comma, as upstream writes them."""
    parts: list[list[int]] = []
    for index in sorted(set(indexes)):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    texts = []
    for first, last in parts:
        texts.append(str(first) if first == last else f"{first},{last}" if last == first + 1 else f"{first}-{last}")
    return ",".join(texts)


def missing_indexes(job: Job, completed: set[int], active: Iterable[Pod], count: int) -> list[int]:
    """The lowest indexes that are neither done nor being worked on."""
    taken = completed | {index for pod in active if (index := index_of(pod)) is not None}
    found: list[int] = []
    for index in range(job.spec.completions or 0):
        if len(found) == count:
            break
        if index not in taken:
            found.append(index)
    return found


def duplicates(job: Job, active: Sequence[Pod], completed: set[int]) -> list[Pod]:
    """Active pods whose index is out of range, done, or worked on by an older pod."""
    seen = set(completed)
    found = []
    for pod in sorted(active, key=lambda each: (created_at(each.metadata), each.metadata.name)):
        index = index_of(pod)
        if index is None or index >= (job.spec.completions or 0) or index in seen:
            found.append(pod)
        else:
            seen.add(index)
    return found


# How many, and when


def wanted_active(job: Job, succeeded: int, active: int) -> int:
    if job.spec.suspend:
        return 0
    if job.spec.completions is None:
        # A work queue: after the first success the others may finish, and no new ones are made.
        return active if succeeded > 0 else job.spec.parallelism
    return min(job.spec.parallelism, job.spec.completions - succeeded)


def is_complete(job: Job, succeeded: int, active: int) -> bool:
    if job.spec.completions is None:
        return succeeded > 0 and active == 0
    return succeeded >= job.spec.completions


def backoff_remaining(pods: Iterable[Pod], now: float) -> float:
    """Seconds before the next pod may be made: doubled for every failure since the last success."""
    ended = sorted((when, pod.status.phase) for pod in pods if (when := finish_time(pod)) is not None)
    failures, last = 0, 0.0
    for when, phase in ended:
        failures = 0 if phase == "Succeeded" else failures + 1
        last = when
    if not failures:
        return 0.0
    return max(0.0, last + min(BACKOFF_LIMIT, BACKOFF_BASE * 2.0 ** (failures - 1)) - now)


def finish_time(pod: Pod) -> float | None:
    """When a pod ended: its last container, else when it stopped being ready."""
    if not pod.terminal:
        return None
    moments = [
        parse_time(status.state.terminated.finished_at)
        for status in pod.status.container_statuses
        if status.state.terminated is not None and status.state.terminated.finished_at
    ]
    if moments:
        return max(moments)
    ready = pod.status.condition("Ready")
    if ready is not None and ready.last_transition_time:
        return parse_time(ready.last_transition_time)
    return created_at(pod.metadata)


def past_backoff_on_failure(job: Job, template_policy: str, pods: Iterable[Pod]) -> bool:
    """With restarts in place, it is restarts that count towards the limit."""
    if template_policy != "OnFailure":
        return False
    restarts = sum(
        status.restart_count
        for pod in pods
        if pod.status.phase in ("Pending", "Running")
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    )
    return restarts > 0 if job.spec.backoff_limit == 0 else restarts >= job.spec.backoff_limit


def deadline_left(job: Job, now: float) -> float | None:
    """Seconds until the job has been active for too long; None where there is no limit."""
    if job.spec.active_deadline_seconds is None or not job.status.start_time or job.spec.suspend:
        return None
    return parse_time(job.status.start_time) + job.spec.active_deadline_seconds - now


# The pod failure policy


def matched_rule(policy: dict[str, Any] | None, pod: Pod) -> tuple[str, str]:
    """The action of the first rule that a failed pod matches, and for FailJob the message. `Count` where none does."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        action = rule.get("action", "Count")
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if rule.get("onExitCodes"):
            status = _exit_code_match(rule["onExitCodes"], pod)
            if status is not None:
                container, code = status
                return action, (
                    f"Container {container} for pod {name} failed with exit code {code} matching {action} rule at "
                    f"index {number}"
                )
        elif rule.get("onPodConditions"):
            for condition in pod.status.conditions:
                for pattern in rule["onPodConditions"]:
                    if pattern.get("type") == condition.type and pattern.get("status", "True") == condition.status:
                        return (
                            action,
                            f"Pod {name} has condition {condition.type} matching {action} rule at index {number}",
                        )
    return "Count", ""


def _exit_code_match(wanted: dict[str, Any], pod: Pod) -> tuple[str, int] | None:
    values = wanted.get("values") or ()
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        ended = status.state.terminated
        if ended is None or ended.exit_code == 0:
            continue
        if wanted.get("containerName") not in (None, "", status.name):
            continue
        if (ended.exit_code in values) is (wanted.get("operator") == "In"):
            return status.name, ended.exit_code
    return None
