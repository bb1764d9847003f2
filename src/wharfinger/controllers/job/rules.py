"""The decisions of the Job controller: which pods count as finished, how many should run, and when the job ends. Pure.

The rules are those of upstream's pkg/controller/job; `indexes`, `policies` and `backoff` have their own files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from wharfinger.api.pod_state import is_active
from wharfinger.api.times import parse_time
from wharfinger.api.views import Job, Pod
from wharfinger.controllers.job.backoff import finish_time, wait_after
from wharfinger.controllers.job.indexes import Indexes
from wharfinger.controllers.job.policies import failure_action, success_rule
from wharfinger.controllers.scale_in import in_deletion_order

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
MAX_UNCOUNTED = 500
"""The largest number of finished pods listed in the status, so that it stays small."""

COMPLETE, FAILED = "Complete", "Failed"
INTERIM = {COMPLETE: "SuccessCriteriaMet", FAILED: "FailureTarget"}
"""The condition that is set until all pods are deleted and counted, and the final one can be set."""


class JobEnding(msgspec.Struct, frozen=True):
    """How a job ends: type, reason and message of its final condition (Complete or Failed)."""

    type: str
    reason: str
    message: str


def finished(job: Job) -> bool:
    return any(c.type in (COMPLETE, FAILED) and c.status == "True" for c in job.status.conditions)


def indexed(job: Job) -> bool:
    return job.spec.completion_mode == "Indexed"


def limited_per_index(job: Job) -> bool:
    return indexed(job) and job.spec.backoff_limit_per_index is not None


def replaces_failed_only(job: Job) -> bool:
    return job.spec.pod_replacement_policy == "Failed"


def has_failed(job: Job, pod: Pod) -> bool:
    """A pod that is being deleted counts as failed, unless the job waits until it has finished."""
    if pod.status.phase == "Failed":
        return True
    return pod.terminating and pod.status.phase != "Succeeded" and not replaces_failed_only(job)


def is_counted(job: Job, pod: Pod) -> bool:
    """Whether a failed pod counts towards the back-off limits."""
    return failure_action(job.spec.pod_failure_policy, pod)[0] != "Ignore"


# Indexes


def index_of(pod: Pod) -> int | None:
    return _number(pod, INDEX)


def _number(pod: Pod, annotation: str) -> int | None:
    text = pod.metadata.annotations.get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() else None


def has_valid_index(job: Job, pod: Pod) -> bool:
    """Whether the pod has a valid index; always true without completion indexes."""
    if not indexed(job):
        return True
    index = index_of(pod)
    return index is not None and index < (job.spec.completions or 0)


def indexes_of(pods: Iterable[Pod]) -> Indexes:
    return Indexes.of(index for pod in pods if (index := index_of(pod)) is not None)


def failure_annotations(job: Job, replaced: Pod | None) -> dict[str, str]:
    """The failure counts in the annotations of a new pod, given the pod that it replaces."""
    failures = ignored = 0
    if replaced is not None:
        failures, ignored = _number(replaced, FAILURES) or 0, _number(replaced, IGNORED_FAILURES) or 0
        if is_counted(job, replaced):
            failures += 1
        else:
            ignored += 1
    return {FAILURES: str(failures)} | ({IGNORED_FAILURES: str(ignored)} if ignored else {})


def _all_failures(pod: Pod) -> int:
    return (_number(pod, FAILURES) or 0) + (_number(pod, IGNORED_FAILURES) or 0)


def index_wait(replaced: Pod | None, now: float) -> float:
    """Seconds until an index may be retried."""
    return wait_after(_all_failures(replaced) + 1, finish_time(replaced), now) if replaced is not None else 0.0


# The state of a job


class JobState(msgspec.Struct):
    """A job and its pods at the start of a reconciliation."""

    job: Job
    pods: Sequence[Pod]
    held: set[str]  # uids of pods with their finalizer: not counted yet
    active: list[Pod]
    terminating: int
    new_succeeded: list[Pod]  # finished, and not in the status yet
    new_failed: list[Pod]
    succeeded: int
    failed: int
    before: Indexes = msgspec.field(default_factory=Indexes)  # completed indexes according to the status
    completed: Indexes = msgspec.field(default_factory=Indexes)
    failed_indexes: Indexes | None = None  # failed indexes; None without backoffLimitPerIndex
    replaceable: dict[int, Pod] = msgspec.field(default_factory=dict)
    """By index, the failed pod that will be replaced. It is kept until its successor has its failure count."""

    @property
    def ready(self) -> int:
        return sum(pod.ready for pod in self.active)


def observe(job: Job, pods: Sequence[Pod], held: set[str]) -> JobState:
    listed = job.status.uncounted_terminated_pods
    uncounted_succeeded, uncounted_failed = (
        (set(listed.succeeded), set(listed.failed)) if listed is not None else (set(), set())
    )
    fresh = [pod for pod in pods if pod.metadata.uid in held and has_valid_index(job, pod)]
    succeeded = [p for p in fresh if p.status.phase == "Succeeded" and p.metadata.uid not in uncounted_succeeded]
    failed = [p for p in fresh if has_failed(job, p) and p.metadata.uid not in uncounted_failed]
    state = JobState(
        job,
        pods,
        held,
        active=[pod for pod in pods if is_active(pod)],
        terminating=sum(pod.terminating and not pod.terminal for pod in pods),
        new_succeeded=succeeded,
        new_failed=failed,
        succeeded=job.status.succeeded + len(uncounted_succeeded) + len(succeeded),
        failed=job.status.failed + len(uncounted_failed) + sum(is_counted(job, pod) for pod in failed),
    )
    if indexed(job):
        _observe_indexes(state, fresh)
    return state


def _observe_indexes(state: JobState, fresh: Sequence[Pod]) -> None:
    job, completions = state.job, state.job.spec.completions or 0
    state.before = Indexes.parse(job.status.completed_indexes, completions)
    state.completed = state.before | indexes_of(pod for pod in fresh if pod.status.phase == "Succeeded")
    state.succeeded = len(state.completed)
    if not limited_per_index(job):
        return
    failed_indexes = indexes_of(pod for pod in fresh if _fails_index(job, pod))
    state.failed_indexes = Indexes.parse(job.status.failed_indexes or "", completions) | failed_indexes
    busy = state.completed | state.failed_indexes | indexes_of(state.active)
    for pod in fresh:
        index = index_of(pod)
        if index is None or index in busy or not has_failed(job, pod):
            continue
        last = state.replaceable.get(index)
        if last is None or (_all_failures(last) <= _all_failures(pod) and finish_time(pod) >= finish_time(last)):
            state.replaceable[index] = pod


def _fails_index(job: Job, pod: Pod) -> bool:
    """Whether the index of a failed pod has failed with it."""
    if not has_failed(job, pod):
        return False
    action, _ = failure_action(job.spec.pod_failure_policy, pod)
    limit = job.spec.backoff_limit_per_index
    return action == "FailIndex" or (
        action != "Ignore" and limit is not None and (_number(pod, FAILURES) or 0) >= limit
    )


# The end


def ending(state: JobState, now: float) -> JobEnding | None:
    """How the job ends, if that is decided without creating more pods. Failures take precedence, as upstream."""
    job = state.job
    for final in (COMPLETE, FAILED):
        for condition in job.status.conditions:
            if condition.type == INTERIM[final] and condition.status == "True":
                return JobEnding(final, condition.reason, condition.message)
    for pod in state.pods:
        if has_failed(job, pod):
            action, message = failure_action(job.spec.pod_failure_policy, pod)
            if action == "FailJob":
                return JobEnding(FAILED, "PodFailurePolicy", message)
    if state.failed > job.spec.backoff_limit or _restarts_exceed_limit(job, state.pods):
        return JobEnding(FAILED, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = deadline_left(job, now)
    if left is not None and left <= 0:
        return JobEnding(FAILED, "DeadlineExceeded", "Job was active longer than specified deadline")
    return _index_ending(state) if indexed(job) else None


def _index_ending(state: JobState) -> JobEnding | None:
    spec, failed_indexes = state.job.spec, state.failed_indexes
    completions = spec.completions or 0
    if failed_indexes is not None:
        if spec.max_failed_indexes is not None and len(failed_indexes) > spec.max_failed_indexes:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return JobEnding(FAILED, "MaxFailedIndexesExceeded", message)
        if failed_indexes and len(failed_indexes) + len(state.completed) >= completions:
            return JobEnding(FAILED, "FailedIndexes", "Job has failed indexes")
    message = success_rule(spec.success_policy, state.completed, completions) or ""
    return JobEnding(COMPLETE, "SuccessPolicy", message) if message else None


def completion(state: JobState, still_active: int) -> JobEnding | None:
    """How the job ends if enough pods have succeeded and none is active."""
    completions = state.job.spec.completions
    enough = state.succeeded > 0 if completions is None else state.succeeded >= completions
    if not enough or still_active:
        return None
    return JobEnding(COMPLETE, "CompletionsReached", "Reached expected number of succeeded pods")


def _restarts_exceed_limit(job: Job, pods: Iterable[Pod]) -> bool:
    """With restartPolicy OnFailure, container restarts count towards the limit."""
    if (job.spec.template.get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(
        status.restart_count
        for pod in pods
        if pod.status.phase in ("Pending", "Running")
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    )
    return restarts > 0 if job.spec.backoff_limit == 0 else restarts >= job.spec.backoff_limit


def deadline_left(job: Job, now: float) -> float | None:
    """Seconds until activeDeadlineSeconds; None without it."""
    if job.spec.active_deadline_seconds is None or not job.status.start_time or job.spec.suspend:
        return None
    return parse_time(job.status.start_time) + job.spec.active_deadline_seconds - now


# The number of pods


def wanted_active(state: JobState) -> int:
    spec = state.job.spec
    if spec.suspend:
        return 0
    if spec.completions is None:
        # A work queue: after the first success no new pods are created.
        return len(state.active) if state.succeeded > 0 else spec.parallelism
    return max(0, min(spec.parallelism, spec.completions - state.succeeded))


def surplus(state: JobState, wanted: int, now: float) -> list[Pod]:
    """Active pods to delete: first those with an invalid or duplicate index, then in the order of scale-in."""
    pods = state.active
    leaving: list[Pod] = []
    if indexed(state.job):
        by_index: dict[int, list[Pod]] = {}
        for pod in pods:
            index = index_of(pod)
            if index is None or not has_valid_index(state.job, pod):
                leaving.append(pod)
            else:
                by_index.setdefault(index, []).append(pod)
        for _, sharing in sorted(by_index.items()):
            leaving += _in_order(sharing, now)[:-1]
    short = len(pods) - wanted - len(leaving)
    if short > 0:
        gone = {pod.metadata.uid for pod in leaving}
        leaving += _in_order([pod for pod in pods if pod.metadata.uid not in gone], now)[:short]
    return leaving


def _in_order(pods: Sequence[Pod], now: float) -> list[Pod]:
    return in_deletion_order(pods, dict.fromkeys((pod.metadata.uid for pod in pods), 0), now)


def next_indexes(state: JobState, count: int) -> list[int]:
    """The lowest indexes that are neither completed nor failed nor active."""
    taken = state.completed | indexes_of(state.active) | (state.failed_indexes or Indexes())
    if replaces_failed_only(state.job):
        taken |= indexes_of(pod for pod in state.pods if pod.terminating and not pod.terminal)
    found: list[int] = []
    for index in taken.missing(state.job.spec.completions or 0):
        if len(found) == count:
            break
        found.append(index)
    return found


# Counting


class FinishedPods(msgspec.Struct):
    """The counts of finished pods for the status, and the pods whose finalizer may be removed once it is written."""

    succeeded: int
    failed: int
    uncounted_succeeded: list[str]
    uncounted_failed: list[str]
    release: list[Pod]

    @property
    def settled(self) -> bool:
        return not (self.release or self.uncounted_succeeded or self.uncounted_failed)


def count_finished(state: JobState, end: JobEnding | None) -> FinishedPods:
    """Lists newly finished pods as uncounted; those listed before whose finalizer is gone move into the counters."""
    job = state.job
    listed = job.status.uncounted_terminated_pods
    succeeded, failed = (list(listed.succeeded), list(listed.failed)) if listed is not None else ([], [])
    counted = FinishedPods(
        succeeded=job.status.succeeded + sum(uid not in state.held for uid in succeeded),
        failed=job.status.failed + sum(uid not in state.held for uid in failed),
        uncounted_succeeded=[uid for uid in succeeded if uid in state.held],
        uncounted_failed=[uid for uid in failed if uid in state.held],
        release=[],
    )
    known, known_failed = {*succeeded, *failed}, set(failed)
    new_indexes = 0
    for pod in state.pods:
        uid = pod.metadata.uid
        if uid not in state.held or not _may_release(state, pod, end):
            continue
        counted.release.append(pod)
        if pod.status.phase == "Succeeded" and uid not in known_failed:
            if indexed(job):
                new_indexes += has_valid_index(job, pod) and (index_of(pod) or 0) not in state.before
            elif uid not in known:
                counted.uncounted_succeeded.append(uid)
        elif has_failed(job, pod) or (end is not None and end.type == FAILED):
            # Once a job has failed, every unfinished pod counts as failed.
            if uid not in known and has_valid_index(job, pod) and is_counted(job, pod):
                counted.uncounted_failed.append(uid)
        if new_indexes + len(counted.uncounted_succeeded) + len(counted.uncounted_failed) >= MAX_UNCOUNTED:
            break
    if indexed(job):
        counted.succeeded = len(state.completed)
    return counted


def _may_release(state: JobState, pod: Pod, end: JobEnding | None) -> bool:
    if state.job.metadata.deletion_timestamp or end is not None or pod.status.phase == "Succeeded":
        return True
    if not has_failed(state.job, pod):
        return False
    index = index_of(pod)
    waiting = state.replaceable.get(index) if index is not None else None
    return waiting is None or waiting.metadata.uid != pod.metadata.uid
