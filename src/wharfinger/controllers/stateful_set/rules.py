"""The decisions of the StatefulSet controller: which ordinals to create, which pods to delete, in which order. Pure.

The rules are those of upstream's stateful_set_control.go. Those of MaxUnavailableStatefulSet hold since 1.37; before, only
for sets that state more than the one pod that newer versions write as the default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeGuard

import msgspec

from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.pod_state import is_available
from wharfinger.api.registry import Document
from wharfinger.api.views import Pod, StatefulSet
from wharfinger.controllers.int_or_percent import scaled
from wharfinger.controllers.template_hashes import REVISION_HASH


class StatefulPlan(msgspec.Struct):
    create: list[int] = msgspec.field(default_factory=list)  # ordinals
    delete: list[Pod] = msgspec.field(default_factory=list)
    keep: list[Pod] = msgspec.field(default_factory=list)  # within the size
    condemned: list[Pod] = msgspec.field(default_factory=list)  # beyond the size, highest ordinal first


def ordinal(name: str, pod_name: str) -> int | None:
    """The ordinal of a pod of the set `name`; None if the pod's name has none."""
    match = re.fullmatch(r"(.*)-([0-9]+)", pod_name)
    return int(match[2]) if match is not None and match[1] == name else None


def start_of(spec: StatefulSet) -> int:
    return spec.spec.ordinals.start


def needs_current(spec: StatefulSet, number: int) -> bool:
    """Whether a new pod of that ordinal gets the current revision instead of the update revision."""
    strategy = spec.spec.update_strategy
    if strategy.type != "RollingUpdate":
        return False
    if strategy.rolling_update is None:
        return number < start_of(spec) + spec.status.current_replicas
    return number < start_of(spec) + strategy.rolling_update.partition


def plan(
    spec: StatefulSet,
    pods: Sequence[Pod],
    update_revision: str,
    now: float,
    kubernetes: KubernetesVersion = REFERENCE,
) -> StatefulPlan:
    """`update_revision` is the value of the revision label of updated pods."""
    start, size = start_of(spec), spec.spec.replicas
    seconds = spec.spec.min_ready_seconds
    ordered = spec.spec.pod_management_policy != "Parallel"
    replicas: list[Pod | None] = [None] * size
    beyond: list[tuple[int, Pod]] = []
    for pod in pods:
        number = ordinal(spec.metadata.name, pod.metadata.name)
        if number is None:
            continue
        if start <= number < start + size:
            replicas[number - start] = pod
        else:
            beyond.append((number, pod))
    condemned = [pod for _, pod in sorted(beyond, key=lambda each: -each[0])]
    result = StatefulPlan()

    def healthy(pod: Pod | None) -> bool:
        return (
            pod is not None
            and pod.status.phase == "Running"
            and not pod.terminating
            and is_available(pod, seconds, now)
        )

    first_unhealthy = next((pod for pod in reversed(condemned) if not healthy(pod)), None)
    if spec.metadata.deletion_timestamp:
        return result
    for index, replica in enumerate(replicas):
        if replica is None:
            result.create.append(start + index)
        elif replica.terminal:
            if not replica.terminating:
                result.delete.append(replica)
        else:
            result.keep.append(replica)
            if healthy(replica) or not ordered:
                continue
        if ordered:
            return result
    result.condemned = condemned
    for pod in condemned:
        if pod.terminating:
            if ordered:
                return result
            continue
        # All replicas are healthy here. Of unhealthy condemned pods, only the lowest may be deleted.
        if ordered and not healthy(pod) and pod is not first_unhealthy:
            return result
        result.delete.append(pod)
        if ordered:
            return result
    result.delete += _outdated(spec, replicas, update_revision, healthy, kubernetes)
    return result


def _outdated(
    spec: StatefulSet,
    replicas: Sequence[Pod | None],
    update_revision: str,
    healthy: Callable[[Pod | None], bool],
    kubernetes: KubernetesVersion,
) -> list[Pod]:
    """The pods that a rolling update replaces now, highest ordinal first."""
    strategy = spec.spec.update_strategy
    if strategy.type != "RollingUpdate":
        return []
    rolling = strategy.rolling_update
    candidates = reversed(replicas[rolling.partition if rolling is not None else 0 :])

    def outdated(pod: Pod | None) -> TypeGuard[Pod]:
        return (
            pod is not None
            and not pod.terminating
            and not pod.terminal
            and pod.metadata.labels.get(REVISION_HASH) != update_revision
        )

    stated = rolling.max_unavailable if rolling is not None else None
    if kubernetes >= KubernetesVersion.V1_37 or stated not in (None, 1):
        most = max(1, scaled(1 if stated is None else stated, spec.spec.replicas, round_up=False))
        room = max(0, most - sum(not healthy(pod) for pod in replicas))
        found = [pod for pod in candidates if outdated(pod)]
        if spec.spec.pod_management_policy != "Parallel":
            return found[:room]
        # Pods that are not available anyway do not count, and go first, or an update that mends them would never begin.
        return [*(pod for pod in found if not healthy(pod)), *[pod for pod in found if healthy(pod)][:room]]
    # As upstream without MaxUnavailableStatefulSet: pods below the first outdated one need not be available.
    for pod in candidates:
        if outdated(pod):
            return [pod]
        if not healthy(pod):
            return []
    return []


def status(spec: StatefulSet, pods: Sequence[Pod], current: str, update: str, now: float) -> Document:
    """The counts; `current` and `update` are names of revisions, which pods have in their revision label."""
    running = [pod for pod in pods if pod.status.phase == "Running" and pod.ready]
    alive = [pod for pod in pods if not pod.terminating]
    labels = [pod.metadata.labels.get(REVISION_HASH) for pod in alive]
    seconds = spec.spec.min_ready_seconds
    counts: Document = {
        "observedGeneration": spec.metadata.generation,
        "replicas": len(pods),
        "readyReplicas": len(running),
        "availableReplicas": sum(is_available(pod, seconds, now) for pod in running),
        "currentReplicas": labels.count(current),
        "updatedReplicas": labels.count(update),
        "currentRevision": current,
        "updateRevision": update,
    }
    size = spec.spec.replicas
    if (
        spec.spec.update_strategy.type == "RollingUpdate"
        and counts["updatedReplicas"] == size
        and counts["readyReplicas"] == size
        and counts["replicas"] == size
    ):
        counts |= {"currentReplicas": counts["updatedReplicas"], "currentRevision": update}
    return counts
