"""Which pods leave first when there are too many: upstream's ActivePodsWithRanks (controller_utils.go). Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cmp_to_key

from wharfinger.api.times import parse_time
from wharfinger.api.views import Pod
from wharfinger.controllers.parts.pods import active, ready_since

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_INT32 = range(-(1 << 31), 1 << 31)


def deletion_cost(annotations: Mapping[str, str]) -> int:
    """The cost the annotation gives; 0 where it is absent or not an int32 in upstream's canonical writing."""
    text = annotations.get(DELETION_COST)
    # No plus sign and no leading zeros: the API server refuses those too (pkg/apis/core/helper).
    if text is None or not re.fullmatch(r"0|[1-9][0-9]*|-[0-9]+", text):
        return 0
    cost = int(text)
    return cost if cost in _INT32 else 0


def pods_to_delete(pods: Sequence[Pod], related: Iterable[Pod], count: int, now: float) -> list[Pod]:
    """The `count` of `pods` that should go; `related` are all pods of the same owner, to find crowded nodes."""
    if count >= len(pods):
        return list(pods)
    crowding = Counter(pod.spec.node_name for pod in related if active(pod))
    return in_deletion_order(pods, {pod.metadata.uid: crowding[pod.spec.node_name] for pod in pods}, now)[:count]


def in_deletion_order(pods: Sequence[Pod], ranks: Mapping[str, int], now: float) -> list[Pod]:
    """All pods, the first to be deleted first. `ranks` gives by uid how many related pods share the pod's node."""

    def compare(first: Pod, second: Pod) -> int:
        return _compare(first, second, ranks, now)

    return sorted(pods, key=cmp_to_key(compare))


def _compare(first: Pod, second: Pod, ranks: Mapping[str, int], now: float) -> int:
    # Each pair of plain values sorts the smaller first; times and uids come after, in upstream's order.
    for ours, theirs in zip(_before_times(first, ranks), _before_times(second, ranks)):
        if ours != theirs:
            return -1 if ours < theirs else 1
    if first.ready and second.ready:
        order = _compare_times(ready_since(first), ready_since(second), first, second, now)
        if order is not None:
            return order
    for more, fewer in zip(_restarts(first), _restarts(second)):
        if more != fewer:
            return -1 if more > fewer else 1
    return _compare_times(_created(first), _created(second), first, second, now) or 0


def _before_times(pod: Pod, ranks: Mapping[str, int]) -> tuple[bool, int, bool, int, int]:
    return (
        bool(pod.spec.node_name),
        _PHASES.get(pod.status.phase, 0),
        pod.ready,
        deletion_cost(pod.metadata.annotations),
        -ranks[pod.metadata.uid],
    )


def _compare_times(ours: float | None, theirs: float | None, first: Pod, second: Pod, now: float) -> int | None:
    """The younger first on a logarithmic scale, equals by uid, so that equivalent pods go in no particular order.

    None means that the times are the same and the next rule decides. An unknown time counts as the youngest.
    """
    if ours == theirs:
        return None
    if ours is None or theirs is None:
        return -1 if ours is None else 1
    difference = _logarithm(now - ours) - _logarithm(now - theirs)
    if difference:
        return -1 if difference < 0 else 1
    return -1 if first.metadata.uid < second.metadata.uid else 1


def _logarithm(seconds: float) -> int:
    nanoseconds = round(seconds * 1e9)
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def _restarts(pod: Pod) -> tuple[int, int]:
    """The most restarts of a container, and of a sidecar."""
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
    return (
        max((status.restart_count for status in pod.status.container_statuses), default=0),
        max((s.restart_count for s in pod.status.init_container_statuses if s.name in sidecars), default=0),
    )


def _created(pod: Pod) -> float | None:
    return parse_time(pod.metadata.creation_timestamp) if pod.metadata.creation_timestamp else None
