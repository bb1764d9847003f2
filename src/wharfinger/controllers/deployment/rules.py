"""The decisions of the Deployment controller: sizes of replica sets, revisions and progress. Pure.

The rules are those of upstream's pkg/controller/deployment (rolling.go, sync.go, progress.go, util).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wharfinger.api.numbers import parse_int64
from wharfinger.api.object_meta import created_at
from wharfinger.api.registry import Document
from wharfinger.api.times import parse_time
from wharfinger.api.views.workloads import Deployment, ReplicaSet
from wharfinger.controllers.int_or_percent import scaled, surge_and_unavailable
from wharfinger.controllers.template_hashes import same_template

REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
NOT_COPIED = {
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
}
NO_LIMIT = (1 << 31) - 1
_MAX_HISTORY_LENGTH = 2000

Sizes = dict[str, int]
"""New sizes of replica sets, by uid."""


def is_rolling(deployment: Deployment) -> bool:
    return deployment.spec.strategy.type == "RollingUpdate"


def max_surge(deployment: Deployment) -> int:
    return _limits(deployment)[0] if is_rolling(deployment) else 0


def max_unavailable(deployment: Deployment) -> int:
    replicas = deployment.spec.replicas
    if not is_rolling(deployment) or replicas == 0:
        return 0
    return min(_limits(deployment)[1], replicas)


def _limits(deployment: Deployment) -> tuple[int, int]:
    rolling = deployment.spec.strategy.rolling_update
    surge = rolling.max_surge if rolling else None
    unavailable = rolling.max_unavailable if rolling else None
    return surge_and_unavailable(surge, unavailable, deployment.spec.replicas)


def total(sets: Iterable[ReplicaSet]) -> int:
    """The desired pods of all the sets."""
    return sum(each.spec.replicas for each in sets)


def by_age(sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    return sorted(sets, key=lambda each: (created_at(each.metadata), each.metadata.name))


def find_new(deployment: Deployment, sets: Sequence[ReplicaSet]) -> ReplicaSet | None:
    """The set of the present template; the oldest if there are several."""
    template = deployment.spec.template
    return next((each for each in by_age(sets) if same_template(each.spec.template, template)), None)


def new_size(deployment: Deployment, sets: Iterable[ReplicaSet], current: int) -> int:
    """How large the new set may be. `current` is its present size; `sets` are all sets including the new one."""
    replicas = deployment.spec.replicas
    if not is_rolling(deployment):
        return replicas
    rolling = deployment.spec.strategy.rolling_update
    surge = rolling.max_surge if rolling else 0
    room = replicas + scaled(surge, replicas, round_up=True) - total(sets)
    return current + min(room, replicas - current) if room > 0 else current


def old_sizes(deployment: Deployment, old: Sequence[ReplicaSet], new: ReplicaSet) -> Sizes:
    """The old sets to scale down in this step: unavailable pods first, then as many as availability allows."""
    least_available = deployment.spec.replicas - max_unavailable(deployment)
    new_unavailable = new.spec.replicas - new.status.available_replicas
    room = total(old) + new.spec.replicas - least_available - new_unavailable
    sizes = {each.metadata.uid: each.spec.replicas for each in old}
    if not any(sizes.values()) or room <= 0:
        return {}
    ordered = by_age(old)
    removed = 0
    for each in ordered:
        unhealthy = each.spec.replicas - each.status.available_replicas
        if removed < room and each.spec.replicas and unhealthy:
            step = min(room - removed, unhealthy)
            sizes[each.metadata.uid] -= step
            removed += step
    spare = sum(each.status.available_replicas for each in (*old, new)) - least_available
    for each in ordered:
        if spare <= 0:
            break
        step = min(sizes[each.metadata.uid], spare)
        sizes[each.metadata.uid] -= step
        spare -= step
    return {
        each.metadata.uid: sizes[each.metadata.uid] for each in old if sizes[each.metadata.uid] != each.spec.replicas
    }


def is_scaling(deployment: Deployment, sets: Iterable[ReplicaSet]) -> bool:
    """Whether the deployment was scaled since its size was last written to the active sets."""
    for each in sets:
        if each.spec.replicas > 0:
            desired = _count(each, DESIRED_REPLICAS)
            if desired is not None and desired != deployment.spec.replicas:
                return True
    return False


def scaled_sizes(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet]) -> tuple[Sizes, bool]:
    """Sizes after the deployment was scaled, in proportion to the present ones: scaling does not advance a rollout.

    The flag says whether the deployment's new size is written to sets of unchanged size as well.
    """
    replicas = deployment.spec.replicas
    sole = active_or_latest(new, old)
    if sole is not None:
        return ({} if sole.spec.replicas == replicas else {sole.metadata.uid: replicas}), False
    if new is not None and is_saturated(deployment, new):
        return {each.metadata.uid: 0 for each in old if each.spec.replicas > 0}, False
    if not is_rolling(deployment):
        return {}, False
    sets = [each for each in (*old, *([new] if new is not None else [])) if each.spec.replicas > 0]
    allowed = replicas + max_surge(deployment) if replicas > 0 else 0
    to_add = allowed - total(sets)
    newest_first = to_add > 0
    sets.sort(key=lambda each: each.metadata.name)
    sets.sort(key=lambda each: created_at(each.metadata), reverse=newest_first)
    sets.sort(key=lambda each: each.spec.replicas, reverse=True)
    sizes, added = {}, 0
    for each in sets:
        share = _share(deployment, each, to_add, added) if to_add else 0
        sizes[each.metadata.uid] = each.spec.replicas + share
        added += share
    if sets and to_add:
        largest = sets[0].metadata.uid
        sizes[largest] = max(0, sizes[largest] + to_add - added)
    return sizes, True


def active_or_latest(new: ReplicaSet | None, old: Sequence[ReplicaSet]) -> ReplicaSet | None:
    """The only set with pods; if none has any, the new or else the latest one. None if several have."""
    everyone = [*old, *([new] if new is not None else [])]
    having = [each for each in everyone if each.spec.replicas > 0]
    if len(having) == 1:
        return having[0]
    if having or not everyone:
        return None
    return new if new is not None else by_age(old)[-1]


def is_saturated(deployment: Deployment, new: ReplicaSet) -> bool:
    replicas = deployment.spec.replicas
    return (
        new.spec.replicas == replicas
        and _count(new, DESIRED_REPLICAS) == replicas
        and new.status.available_replicas == replicas
    )


def _share(deployment: Deployment, each: ReplicaSet, to_add: int, added: int) -> int:
    if each.spec.replicas == 0 or to_add == added:
        return 0
    fraction, allowed = _fraction(deployment, each), to_add - added
    return min(fraction, allowed) if to_add > 0 else max(fraction, allowed)


def _fraction(deployment: Deployment, each: ReplicaSet) -> int:
    size, replicas = each.spec.replicas, deployment.spec.replicas
    if replicas == 0:
        return -size
    before = _count(each, MAX_REPLICAS) or deployment.status.replicas
    if before == 0:
        return 0
    # Rounds half up; all numbers are positive.
    return (2 * size * (replicas + max_surge(deployment)) + before) // (2 * before) - size


def _count(each: ReplicaSet, annotation: str) -> int | None:
    text = each.metadata.annotations.get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) <= NO_LIMIT else None


def replicas_annotations(deployment: Deployment) -> dict[str, str]:
    replicas = deployment.spec.replicas
    return {DESIRED_REPLICAS: str(replicas), MAX_REPLICAS: str(replicas + max_surge(deployment))}


def revision(each: ReplicaSet) -> int | None:
    """The revision of the set; 0 without the annotation, None if it is not a number."""
    text = each.metadata.annotations.get(REVISION)
    return 0 if text is None else parse_int64(text)


def next_revision(old: Iterable[ReplicaSet]) -> int:
    return max((revision(each) or 0 for each in old), default=0) + 1


def new_set_annotations(deployment: Deployment, current: dict[str, str], number: int) -> dict[str, str]:
    """The annotations of the new set: those of the deployment, its revision, and the revisions that it had before."""
    wanted = dict(current)
    wanted.update((k, v) for k, v in deployment.metadata.annotations.items() if k not in NOT_COPIED)
    before = current.get(REVISION, "")
    previous = parse_int64(before) if before else 0
    if previous is None or previous >= number:
        return wanted
    wanted[REVISION] = str(number)
    if REVISION in current:
        history = [entry for entry in current.get(REVISION_HISTORY, "").split(",") if entry]
        while history and len(",".join([*history, before])) > _MAX_HISTORY_LENGTH:
            history.pop(0)
        wanted[REVISION_HISTORY] = ",".join([*history, before])
    return wanted


def superfluous(deployment: Deployment, old: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """Old sets beyond the history limit that have no pods."""
    limit = deployment.spec.revision_history_limit
    if limit == NO_LIMIT:
        return []
    alive = [each for each in by_age(old) if not each.metadata.deletion_timestamp]
    alive.sort(key=lambda each: revision(each) or 0)
    return [
        each
        for each in alive[: max(0, len(alive) - limit)]
        if each.status.replicas == 0
        and each.spec.replicas == 0
        and each.metadata.generation <= each.status.observed_generation
    ]


def has_deadline(deployment: Deployment) -> bool:
    return deployment.spec.progress_deadline_seconds != NO_LIMIT


def is_complete(deployment: Deployment, status: Document) -> bool:
    replicas = deployment.spec.replicas
    return (
        status.get("updatedReplicas", 0) == replicas
        and status.get("replicas", 0) == replicas
        and status.get("availableReplicas", 0) == replicas
        and int(status.get("observedGeneration", 0)) >= deployment.metadata.generation
    )


def is_progressing(old: Document, new: Document) -> bool:
    """Whether the new status shows progress over the old one."""

    def count(status: Document, name: str) -> int:
        return int(status.get(name) or 0)

    outdated = count(old, "replicas") - count(old, "updatedReplicas")
    return (
        count(new, "updatedReplicas") > count(old, "updatedReplicas")
        or count(new, "replicas") - count(new, "updatedReplicas") < outdated
        or count(new, "readyReplicas") > count(old, "readyReplicas")
        or count(new, "availableReplicas") > count(old, "availableReplicas")
    )


def has_timed_out(deployment: Deployment, progressing: Document | None, now: float) -> bool:
    """Whether the Progressing condition was not updated within the deadline."""
    if not has_deadline(deployment) or progressing is None or progressing.get("reason") == "NewReplicaSetAvailable":
        return False
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return True
    return parse_time(progressing["lastUpdateTime"]) + deployment.spec.progress_deadline_seconds < now


def replica_counts(deployment: Deployment, sets: Sequence[ReplicaSet], new: ReplicaSet | None) -> Document:
    """The counts of a deployment's status."""
    available = sum(each.status.available_replicas for each in sets)
    counts: Document = {
        "observedGeneration": deployment.metadata.generation,
        "replicas": sum(each.status.replicas for each in sets),
        "updatedReplicas": new.status.replicas if new is not None else 0,
        "readyReplicas": sum(each.status.ready_replicas for each in sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, total(sets) - available),
    }
    known = [each for each in sets if each.status.observed_generation or each.status.terminating_replicas is not None]
    if all(each.status.terminating_replicas is not None for each in known):
        counts["terminatingReplicas"] = sum(each.status.terminating_replicas or 0 for each in known)
    return counts


def availability(deployment: Deployment, available: int) -> tuple[str, str, str]:
    """Status, reason and message of the Available condition."""
    if available >= deployment.spec.replicas - max_unavailable(deployment):
        return "True", "MinimumReplicasAvailable", "Deployment has minimum availability."
    return "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
