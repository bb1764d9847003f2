"""How many replicas a metric asks for: upstream's replica_calculator.go. Pure.

Amounts are thousandths, as upstream's MilliValue. Pods without metrics count for as much as makes the change smaller, and
pods that are not ready yet do not count when they would make it larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from wharfinger.api.quantity import milli_value
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, parse_duration, parse_time
from wharfinger.api.views import Pod

CPU_INITIALIZATION = 300.0  # seconds after its start in which the CPU usage of a pod may not count
INITIAL_READINESS_DELAY = 30.0  # seconds within which an unready pod has never been ready
DEFAULT_TOLERANCE = 0.1
MAX_INT32 = 2147483647


class CannotCompute(Exception):
    """No number of replicas follows from the metrics; the message is upstream's."""


class Tolerances(msgspec.Struct, frozen=True):
    down: float = DEFAULT_TOLERANCE
    up: float = DEFAULT_TOLERANCE

    def within(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class PodMetric(msgspec.Struct, frozen=True):
    value: int
    timestamp: float = 0.0
    window: float = 0.0


Metrics = dict[str, PodMetric]  # by pod


class Proposal(msgspec.Struct, frozen=True):
    """`value` is the average per pod; `utilization` its percentage of the request, where the target is one."""

    replicas: int
    value: int
    utilization: int | None = None


class PodGroups(msgspec.Struct, frozen=True):
    ready: int
    unready: frozenset[str]
    missing: frozenset[str]
    ignored: frozenset[str]


def resource_metrics(found: Sequence[Document], resource: str, container: str) -> Metrics:
    """The usage of a resource by pod, from PodMetrics; of one container, or of all together."""
    made: Metrics = {}
    for document in found:
        usages = {each.get("name"): each.get("usage") or {} for each in document.get("containers") or ()}
        chosen = [usages[container]] if container in usages else [] if container else list(usages.values())
        if chosen and all(resource in usage for usage in chosen):
            total = sum(milli_value(usage[resource]) for usage in chosen)
            made[document["metadata"]["name"]] = PodMetric(
                total, _time(document.get("timestamp")), _seconds(document.get("window"))
            )
    return made


def _time(text: str | None) -> float:
    try:
        return parse_time(text or "")
    except BadTime:
        return 0.0


def _seconds(text: str | None) -> float:
    try:
        return parse_duration(text or "")
    except BadTime:
        return 0.0


def utilization_replicas(
    current: int,
    target: int,
    resource: str,
    container: str,
    pods: Sequence[Pod],
    metrics: Metrics,
    tolerances: Tolerances,
    now: float,
) -> Proposal:
    """For a target in per cent of what the pods request."""
    groups = _check(pods, metrics, resource, now)
    requests = {pod.metadata.name: _request(pod, container, resource) for pod in pods}
    return _proposal(
        current,
        groups,
        metrics,
        lambda counted: _utilization(counted, requests, target),
        lambda name: requests[name] * max(100, target) // 100,
        tolerances,
    )


def value_replicas(
    current: int,
    target: int,
    resource: str,
    pods: Sequence[Pod],
    metrics: Metrics,
    tolerances: Tolerances,
    now: float,
) -> Proposal:
    """For a target amount per pod. `resource` is empty for metrics that are not of a resource."""
    return _proposal(
        current,
        _check(pods, metrics, resource, now),
        metrics,
        lambda counted: _usage(counted, target),
        lambda name: target,
        tolerances,
    )


def _proposal(
    current: int,
    groups: PodGroups,
    metrics: Metrics,
    measure: Callable[[Metrics], tuple[float, int | None, int]],
    guess: Callable[[str], int],
    tolerances: Tolerances,
) -> Proposal:
    """`measure` returns the ratio to the target, the utilization and the average; `guess` what a pod without metrics is
    taken to use when the others use less than the target."""
    counted = _counted(metrics, groups)
    ratio, utilization, value = measure(counted)
    as_is = Proposal(current, value, utilization)
    scale_up_with_unready = bool(groups.unready) and ratio > 1.0
    if not scale_up_with_unready and not groups.missing:
        return as_is if tolerances.within(ratio) else Proposal(_ceil(ratio * groups.ready), value, utilization)
    if ratio < 1.0:
        counted |= {name: PodMetric(guess(name)) for name in groups.missing}
    elif ratio > 1.0:
        counted |= {name: PodMetric(0) for name in groups.missing}
    if scale_up_with_unready:
        counted |= {name: PodMetric(0) for name in groups.unready}
    return _careful(as_is, ratio, measure(counted)[0], len(counted), tolerances)


def _check(pods: Sequence[Pod], metrics: Metrics, resource: str, now: float) -> PodGroups:
    if not pods:
        raise CannotCompute("no pods returned by selector while calculating replica count")
    groups = group_pods(pods, metrics, resource, now)
    if not _counted(metrics, groups):
        raise CannotCompute("did not receive metrics for targeted pods (pods might be unready)")
    return groups


def _counted(metrics: Metrics, groups: PodGroups) -> Metrics:
    return {
        name: metric for name, metric in metrics.items() if name not in groups.ignored and name not in groups.unready
    }


def _careful(as_is: Proposal, ratio: float, new_ratio: float, count: int, tolerances: Tolerances) -> Proposal:
    """The proposal when pods were guessed at: never in the other direction than the pods that are known say."""
    if tolerances.within(new_ratio) or (ratio < 1.0 < new_ratio) or (ratio > 1.0 > new_ratio):
        return as_is
    replicas = _ceil(new_ratio * count)
    if (new_ratio < 1.0 and replicas > as_is.replicas) or (new_ratio > 1.0 and replicas < as_is.replicas):
        return as_is
    return Proposal(replicas, as_is.value, as_is.utilization)


def group_pods(pods: Iterable[Pod], metrics: Mapping[str, PodMetric], resource: str, now: float) -> PodGroups:
    ready = 0
    unready, missing, ignored = set(), set(), set()
    for pod in pods:
        name = pod.metadata.name
        metric = metrics.get(name)
        if pod.terminating or pod.status.phase == "Failed":
            ignored.add(name)
        elif pod.status.phase == "Pending":
            unready.add(name)
        elif metric is None:
            missing.add(name)
        elif resource == "cpu" and _is_starting(pod, metric, now):
            unready.add(name)
        else:
            ready += 1
    return PodGroups(ready, frozenset(unready), frozenset(missing), frozenset(ignored))


def _is_starting(pod: Pod, metric: PodMetric, now: float) -> bool:
    """Whether the CPU usage of a pod says nothing yet, since starting takes more of it than working."""
    ready = pod.status.condition("Ready")
    if ready is None or not pod.status.start_time:
        return True
    started, changed = parse_time(pod.status.start_time), _time(ready.last_transition_time)
    if started + CPU_INITIALIZATION > now:
        return ready.status == "False" or metric.timestamp < changed + metric.window
    return ready.status == "False" and started + INITIAL_READINESS_DELAY > changed


def _request(pod: Pod, container: str, resource: str) -> int:
    """What a pod, or one of its containers, requests."""
    of_pod = pod.spec.resources
    if not container and of_pod is not None and of_pod.requests:
        if resource not in of_pod.requests:
            raise CannotCompute(f"missing pod-level request for {resource} in Pod {pod.metadata.name}")
        return milli_value(of_pod.requests[resource])
    sidecars = (each for each in pod.spec.init_containers if each.restart_policy == "Always")
    total = 0
    for each in (*pod.spec.containers, *sidecars):
        if container not in ("", each.name):
            continue
        if resource not in each.resources.requests:
            raise CannotCompute(f"missing request for {resource} in container {each.name} of Pod {pod.metadata.name}")
        total += milli_value(each.resources.requests[resource])
        if container:
            return total
    if container:
        raise CannotCompute(f"container {container} not found in Pod {pod.metadata.name}")
    return total


def _utilization(metrics: Metrics, requests: Mapping[str, int], target: int) -> tuple[float, int, int]:
    """The ratio to the target, the utilization in per cent, and the average usage."""
    known = [name for name in metrics if name in requests]
    used, requested = sum(metrics[name].value for name in known), sum(requests[name] for name in known)
    if not requested:
        raise CannotCompute("no metrics returned matched known pods")
    utilization = used * 100 // requested
    return utilization / target, utilization, used // len(known)


def _usage(metrics: Metrics, target: int) -> tuple[float, None, int]:
    """The same, without a utilization."""
    average = sum(metric.value for metric in metrics.values()) // len(metrics)
    return average / target, None, average


def _ceil(number: float) -> int:
    return min(MAX_INT32, math.ceil(number))
