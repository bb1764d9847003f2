"""What a job does next: who counts as done, how many pods should run, and when the job has ended. Pure.

The rules are those of upstream's pkg/controller/job. Indexes, policies and waits stand in files of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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
MOST_UNCOUNTED = 500
"""Finished pods noted in the status at one time, so that it stays small and other jobs get their turn."""

COMPLETE, FAILED = "Complete", "Failed"
INTERIM = {COMPLETE: "SuccessCriteriaMet", FAILED: "FailureTarget"}
"""The condition that holds from the decision on until the last pod is gone and counted."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends: the final condition (Complete or Failed), its reason and its message."""

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
    """A pod on its way out counts as failed, unless the job waits to see how it ends."""
    if pod.status.phase == "Failed":
        return True
    return pod.terminating and pod.status.phase != "Succeeded" and not replaces_failed_only(job)


def is_counted(job: Job, pod: Pod) -> bool:
    """Whether a failed pod counts towards the limits."""
    return failure_action(job.spec.pod_failure_policy, pod)[0] != "Ignore"


# Indexes


def index_of(pod: Pod) -> int | None:
    return _number(pod, INDEX)


def _number(pod: Pod, annotation: str) -> int | None:
    text = pod.metadata.annotations.get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() else None


def has_place(job: Job, pod: Pod) -> bool:
    """Whether the pod works on an index of the job; always, where there are none."""
    if not indexed(job):
        return True
    index = index_of(pod)
    return index is not None and index < (job.spec.completions or 0)


def indexes_of(pods: Iterable[Pod]) -> Indexes:
    return Indexes.of(index for pod in pods if (index := index_of(pod)) is not None)


def failure_annotations(job: Job, replaced: Pod | None) -> dict[str, str]:
    """What a new pod of an index carries of the failures before it."""
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
    """Seconds before an index may be tried again."""
    return wait_after(_all_failures(replaced) + 1, finish_time(replaced), now) if replaced is not None else 0.0


# One look at a job and its pods


@dataclass(slots=True)
class Look:
    """What is known of a job at one moment, before anything is done about it."""

    job: Job
    pods: Sequence[Pod]
    held: set[str]  # uids of pods that keep their finalizer: not counted yet
    active: list[Pod]
    terminating: int
    new_succeeded: list[Pod]  # finished, and noted nowhere yet
    new_failed: list[Pod]
    succeeded: int
    failed: int
    before: Indexes = field(default_factory=Indexes)  # indexes done, as the status has it
    done: Indexes = field(default_factory=Indexes)
    given_up: Indexes | None = None  # indexes that have failed for good; None without a limit for each
    replaceable: dict[int, Pod] = field(default_factory=dict)
    """The failed pod of an index that waits for its next try: it stays until its successor carries its count."""

    @property
    def ready(self) -> int:
        return sum(pod.ready for pod in self.active)


def look_at(job: Job, pods: Sequence[Pod], held: set[str]) -> Look:
    noted = job.status.uncounted_terminated_pods
    noted_succeeded, noted_failed = (set(noted.succeeded), set(noted.failed)) if noted is not None else (set(), set())
    fresh = [pod for pod in pods if pod.metadata.uid in held and has_place(job, pod)]
    succeeded = [p for p in fresh if p.status.phase == "Succeeded" and p.metadata.uid not in noted_succeeded]
    failed = [p for p in fresh if has_failed(job, p) and p.metadata.uid not in noted_failed]
    look = Look(
        job,
        pods,
        held,
        active=[pod for pod in pods if is_active(pod)],
        terminating=sum(pod.terminating and not pod.terminal for pod in pods),
        new_succeeded=succeeded,
        new_failed=failed,
        succeeded=job.status.succeeded + len(noted_succeeded) + len(succeeded),
        failed=job.status.failed + len(noted_failed) + sum(is_counted(job, pod) for pod in failed),
    )
    if indexed(job):
        _look_at_indexes(look, fresh)
    return look


def _look_at_indexes(look: Look, fresh: Sequence[Pod]) -> None:
    job, completions = look.job, look.job.spec.completions or 0
    look.before = Indexes.parse(job.status.completed_indexes, completions)
    look.done = look.before | indexes_of(pod for pod in fresh if pod.status.phase == "Succeeded")
    look.succeeded = len(look.done)
    if not limited_per_index(job):
        return
    given_up = indexes_of(pod for pod in fresh if _gives_up(job, pod))
    look.given_up = Indexes.parse(job.status.failed_indexes or "", completions) | given_up
    busy = look.done | look.given_up | indexes_of(look.active)
    for pod in fresh:
        index = index_of(pod)
        if index is None or index in busy or not has_failed(job, pod):
            continue
        last = look.replaceable.get(index)
        if last is None or (_all_failures(last) <= _all_failures(pod) and finish_time(pod) >= finish_time(last)):
            look.replaceable[index] = pod


def _gives_up(job: Job, pod: Pod) -> bool:
    """Whether a pod is the last try of its index."""
    if not has_failed(job, pod):
        return False
    action, _ = failure_action(job.spec.pod_failure_policy, pod)
    limit = job.spec.backoff_limit_per_index
    return action == "FailIndex" or (
        action != "Ignore" and limit is not None and (_number(pod, FAILURES) or 0) >= limit
    )


# When it ends


def ending(look: Look, now: float) -> Ending | None:
    """How the job ends, if that is decided before any more pods are made; failures before successes, as upstream."""
    job = look.job
    for final in (COMPLETE, FAILED):
        for condition in job.status.conditions:
            if condition.type == INTERIM[final] and condition.status == "True":
                return Ending(final, condition.reason, condition.message)
    for pod in look.pods:
        if has_failed(job, pod):
            action, message = failure_action(job.spec.pod_failure_policy, pod)
            if action == "FailJob":
                return Ending(FAILED, "PodFailurePolicy", message)
    if look.failed > job.spec.backoff_limit or _past_limit_by_restarts(job, look.pods):
        return Ending(FAILED, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = deadline_left(job, now)
    if left is not None and left <= 0:
        return Ending(FAILED, "DeadlineExceeded", "Job was active longer than specified deadline")
    return _index_ending(look) if indexed(job) else None


def _index_ending(look: Look) -> Ending | None:
    spec, given_up = look.job.spec, look.given_up
    completions = spec.completions or 0
    if given_up is not None:
        if spec.max_failed_indexes is not None and len(given_up) > spec.max_failed_indexes:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return Ending(FAILED, "MaxFailedIndexesExceeded", message)
        if given_up and len(given_up) + len(look.done) >= completions:
            return Ending(FAILED, "FailedIndexes", "Job has failed indexes")
    message = success_rule(spec.success_policy, look.done, completions) or ""
    return Ending(COMPLETE, "SuccessPolicy", message) if message else None


def completion(look: Look, still_active: int) -> Ending | None:
    """How the job ends because enough pods have succeeded and none is left."""
    completions = look.job.spec.completions
    enough = look.succeeded > 0 if completions is None else look.succeeded >= completions
    if not enough or still_active:
        return None
    return Ending(COMPLETE, "CompletionsReached", "Reached expected number of succeeded pods")


def _past_limit_by_restarts(job: Job, pods: Iterable[Pod]) -> bool:
    """With restarts in place, it is restarts that count towards the limit."""
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
    """Seconds until the job has been active for too long; None where there is no limit."""
    if job.spec.active_deadline_seconds is None or not job.status.start_time or job.spec.suspend:
        return None
    return parse_time(job.status.start_time) + job.spec.active_deadline_seconds - now


# How many pods


def wanted_active(look: Look) -> int:
    spec = look.job.spec
    if spec.suspend:
        return 0
    if spec.completions is None:
        # A work queue: after the first success the others may finish, and no new ones are made.
        return len(look.active) if look.succeeded > 0 else spec.parallelism
    return max(0, min(spec.parallelism, spec.completions - look.succeeded))


def surplus(look: Look, wanted: int, now: float) -> list[Pod]:
    """Active pods that should go: those without an index of their own first, then by the order of scale-in."""
    pods = look.active
    leaving: list[Pod] = []
    if indexed(look.job):
        by_index: dict[int, list[Pod]] = {}
        for pod in pods:
            index = index_of(pod)
            if index is None or not has_place(look.job, pod):
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


def next_indexes(look: Look, count: int) -> list[int]:
    """The lowest indexes that are neither done, nor given up, nor being worked on."""
    taken = look.done | indexes_of(look.active) | (look.given_up or Indexes())
    if replaces_failed_only(look.job):
        taken |= indexes_of(pod for pod in look.pods if pod.terminating and not pod.terminal)
    found: list[int] = []
    for index in taken.missing(look.job.spec.completions or 0):
        if len(found) == count:
            break
        found.append(index)
    return found


# Counting


@dataclass(slots=True)
class Account:
    """What the status says of finished pods, and which pods may then lose their finalizer."""

    succeeded: int
    failed: int
    noted_succeeded: list[str]
    noted_failed: list[str]
    release: list[Pod]

    @property
    def settled(self) -> bool:
        return not (self.release or self.noted_succeeded or self.noted_failed)


def account(look: Look, end: Ending | None) -> Account:
    """Notes finished pods; moves into the counters what was noted before and has lost its finalizer since."""
    job = look.job
    noted = job.status.uncounted_terminated_pods
    succeeded, failed = (list(noted.succeeded), list(noted.failed)) if noted is not None else ([], [])
    book = Account(
        succeeded=job.status.succeeded + sum(uid not in look.held for uid in succeeded),
        failed=job.status.failed + sum(uid not in look.held for uid in failed),
        noted_succeeded=[uid for uid in succeeded if uid in look.held],
        noted_failed=[uid for uid in failed if uid in look.held],
        release=[],
    )
    known, known_failed = {*succeeded, *failed}, set(failed)
    new_indexes = 0
    for pod in look.pods:
        uid = pod.metadata.uid
        if uid not in look.held or not _may_release(look, pod, end):
            continue
        book.release.append(pod)
        if pod.status.phase == "Succeeded" and uid not in known_failed:
            if indexed(job):
                new_indexes += has_place(job, pod) and (index_of(pod) or 0) not in look.before
            elif uid not in known:
                book.noted_succeeded.append(uid)
        elif has_failed(job, pod) or (end is not None and end.type == FAILED):
            # Once a job has failed, every pod that has not ended counts as failed.
            if uid not in known and has_place(job, pod) and is_counted(job, pod):
                book.noted_failed.append(uid)
        if new_indexes + len(book.noted_succeeded) + len(book.noted_failed) >= MOST_UNCOUNTED:
            break
    if indexed(job):
        book.succeeded = len(look.done)
    return book


def _may_release(look: Look, pod: Pod, end: Ending | None) -> bool:
    if look.job.metadata.deletion_timestamp or end is not None or pod.status.phase == "Succeeded":
        return True
    if not has_failed(look.job, pod):
        return False
    index = index_of(pod)
    waiting = look.replaceable.get(index) if index is not None else None
    return waiting is None or waiting.metadata.uid != pod.metadata.uid
