"""The order in which pods are deleted on scale-in: upstream's ActivePodsWithRanks (controller_utils.go). Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cmp_to_key

from wharfinger.api.pod_state import is_active, ready_since
from wharfinger.api.times import parse_time
from wharfinger.api.views import Pod

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_INT32 = range(-(1 << 31), 1 << 31)


def deletion_cost(annotations: Mapping[str, str]) -> int:
    """The pod deletion cost; 0 if the annotation is absent or not an int32."""
    text = annotations.get(DELETION_COST)
    # No plus sign and no leading zeros: the API server rejects those too (pkg/apis/core/helper).
    if text is None or not re.fullmatch(r"0|[1-9][0-9]*|-[0-9]+", text):
        return 0
    cost = int(text)
    return cost if cost in _INT32 else 0


def pods_to_delete(pods: Sequence[Pod], related: Iterable[Pod], count: int, now: float) -> list[Pod]:
    """The `count` pods to delete first. `related` are all pods of the same owner; nodes with many of them come first."""
    if count >= len(pods):
        return list(pods)
    crowding = Counter(pod.spec.node_name for pod in related if is_active(pod))
    return in_deletion_order(pods, {pod.metadata.uid: crowding[pod.spec.node_name] for pod in pods}, now)[:count]


def in_deletion_order(pods: Sequence[Pod], ranks: Mapping[str, int], now: float) -> list[Pod]:
    """The pods in order of deletion. `ranks` has, by uid, the number of related pods on the pod's node."""
    traits = [_Traits(pod, ranks[pod.metadata.uid], now) for pod in pods]
    return [each.pod for each in sorted(traits, key=cmp_to_key(_compare))]


class _Traits:
    """What the comparison needs of a pod, computed once."""

    __slots__ = ("created", "first", "pod", "ready", "restarts", "uid")

    def __init__(self, pod: Pod, rank: int, now: float) -> None:
        self.pod = pod
        self.uid = pod.metadata.uid
        # Criteria 1 to 5; the pod with the smaller value is deleted first.
        self.first = (
            bool(pod.spec.node_name),
            _PHASES.get(pod.status.phase, 0),
            pod.ready,
            deletion_cost(pod.metadata.annotations),
            -rank,
        )
        self.ready = _Age(ready_since(pod), now) if pod.ready else None
        self.restarts = _restarts(pod)
        created = pod.metadata.creation_timestamp
        self.created = _Age(parse_time(created) if created else None, now)


class _Age:
    """A time with its age on the logarithmic scale."""

    __slots__ = ("moment", "scale")

    def __init__(self, moment: float | None, now: float) -> None:
        self.moment = moment
        self.scale = _logarithm(now - moment) if moment is not None else 0


def _compare(ours: _Traits, theirs: _Traits) -> int:
    if ours.first != theirs.first:
        return -1 if ours.first < theirs.first else 1
    if ours.ready is not None and theirs.ready is not None:
        order = _compare_ages(ours.ready, theirs.ready, ours, theirs)
        if order:
            return order
    if ours.restarts != theirs.restarts:
        return -1 if ours.restarts > theirs.restarts else 1
    return _compare_ages(ours.created, theirs.created, ours, theirs)


def _compare_ages(first: _Age, second: _Age, ours: _Traits, theirs: _Traits) -> int:
    """The younger first. Ages are compared on a logarithmic scale, and by uid if they are equal there, so that pods of
    about the same age are deleted in no particular order.

    0 if both times are the same: the next criterion decides. An unknown time is the youngest.
    """
    if first.moment == second.moment:
        return 0
    if first.moment is None or second.moment is None:
        return -1 if first.moment is None else 1
    if first.scale != second.scale:
        return -1 if first.scale < second.scale else 1
    return -1 if ours.uid < theirs.uid else 1


def _logarithm(seconds: float) -> int:
    nanoseconds = round(seconds * 1e9)
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def _restarts(pod: Pod) -> tuple[int, int]:
    """The largest number of restarts of a container, and of a sidecar."""
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
    return (
        max((status.restart_count for status in pod.status.container_statuses), default=0),
        max((s.restart_count for s in pod.status.init_container_statuses if s.name in sidecars), default=0),
    )
