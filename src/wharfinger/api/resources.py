"""What a pod asks for: the one place that adds up containers, init containers, sidecars, overhead and resizes.

Everything that counts resources uses these, so that scheduler, quota and nodes agree. All are exact integers.

    requests(pod)            scheduler units: cpu in thousandths, everything else whole
    limits(pod)              the same for limits
    nonzero_requests(pod)    (milli cpu, memory bytes) with stand-ins for what containers leave out, for scoring
    requests_nano(pod)       nano-units, as `api.quantity` holds them, for comparing with quota exactly
    limits_nano(pod)
    qos_class(pod)           Guaranteed, Burstable or BestEffort
    in_units(nano)           nano-units to scheduler units

The rules are those of component-helpers' resource/helpers.go with in-place resize of containers and of pod-level
resources enabled, as in Kubernetes 1.36. Quantities that cannot be parsed raise BadQuantity: validated pods have none.
"""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.api.quantity import NANO, parse_nano
from wharfinger.api.views.pods import Container, ContainerStatus, Pod, Quantities, Resources

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"

Amounts = dict[str, int]

_MILLI = NANO // 1000
MOST = 1 << 53
"""Amounts of more than this many units (8 Pi; cpu in thousandths) count as this many, so that what a node's pods take
adds up within 64 bits. Upstream lets such sums overflow."""

NONZERO: Amounts = {CPU: 100 * _MILLI, MEMORY: 200 * 1024 * 1024 * NANO}
"""What scoring assumes of a container that says nothing (a tenth of a core, 200 MiB); for `missing=`."""


def requests(pod: Pod) -> Amounts:
    return in_units(requests_nano(pod))


def limits(pod: Pod) -> Amounts:
    return in_units(limits_nano(pod))


def nonzero_requests(pod: Pod) -> tuple[int, int]:
    """Thousandths of a core and bytes. A request of zero that is written out stays zero."""
    plain = requests_nano(pod)
    if _pod_level(pod.spec.resources, "requests"):
        # Pod-level requests cover all containers, so only what they leave out is assumed.
        missing = {name: amount for name, amount in NONZERO.items() if name not in plain}
    else:
        missing = NONZERO
    units = in_units(requests_nano(pod, missing=missing) if missing else plain)
    return units.get(CPU, 0), units.get(MEMORY, 0)


def requests_nano(pod: Pod, *, missing: Mapping[str, int] | None = None, overhead: bool = True) -> Amounts:
    """`missing` gives what a container is taken to request of a resource it does not name."""
    if _is_plain(pod):
        plain = nano(pod.spec.containers[0].resources.requests)
        return {**missing, **plain} if missing else plain
    infeasible = _resize_infeasible(pod)
    statuses = _statuses(pod)

    def of(container: Container, *, resizable: bool) -> Amounts:
        spec = nano(container.resources.requests)
        status = statuses.get(container.name) if resizable else None
        if status is not None and status.resources is not None:
            spec = _effective(
                spec, nano(status.resources.requests), nano(status.allocated_resources or {}), infeasible=infeasible
            )
        if missing:
            spec = {**missing, **spec}
        return spec

    total = _aggregate(
        [of(container, resizable=True) for container in pod.spec.containers],
        [
            (of(c, resizable=c.restart_policy == "Always"), c.restart_policy == "Always")
            for c in pod.spec.init_containers
        ],
    )
    level = pod.spec.resources
    if level is not None and _pod_level(level, "requests"):
        stated = nano(level.requests)
        effective = stated
        if pod.status.resources is not None:
            actuated, allocated = nano(pod.status.resources.requests), nano(pod.status.allocated_resources or {})
            effective = _effective(stated, actuated, allocated, infeasible=infeasible)
        total.update({name: effective.get(name, 0) for name in stated if is_pod_level(name)})
    if overhead:
        _add(total, nano(pod.spec.overhead))
    return total


def _is_plain(pod: Pod) -> bool:
    """Whether one container has all that counts, and runs with what it asks for: true of most pods, and quickly told."""
    spec, status = pod.spec, pod.status
    if len(spec.containers) != 1 or spec.init_containers or spec.resources is not None or spec.overhead:
        return False
    if status.init_container_statuses:
        return False
    wanted, name = spec.containers[0].resources.requests, spec.containers[0].name
    for each in status.container_statuses:
        if each.name == name and each.resources is not None:
            if each.resources.requests != wanted or (each.allocated_resources or wanted) != wanted:
                return False
    return True


def limits_nano(pod: Pod, *, overhead: bool = True) -> Amounts:
    infeasible = _resize_infeasible(pod)
    statuses = _statuses(pod)

    def of(container: Container, *, resizable: bool) -> Amounts:
        spec = nano(container.resources.limits)
        status = statuses.get(container.name) if resizable else None
        if status is not None and status.resources is not None:
            spec = _effective(spec, nano(status.resources.limits), {}, infeasible=infeasible)
        return spec

    total = _aggregate(
        [of(container, resizable=True) for container in pod.spec.containers],
        [
            (of(c, resizable=c.restart_policy == "Always"), c.restart_policy == "Always")
            for c in pod.spec.init_containers
        ],
    )
    level = pod.spec.resources
    if level is not None and (_pod_level(level, "requests") or _pod_level(level, "limits")):
        stated = nano(level.limits)
        effective = stated
        if pod.status.resources is not None:
            effective = _effective(stated, nano(pod.status.resources.limits), {}, infeasible=infeasible)
        total.update({name: effective.get(name, 0) for name in stated if is_pod_level(name)})
    if overhead:
        # Overhead raises limits that exist; it makes none.
        for name, amount in nano(pod.spec.overhead).items():
            if total.get(name):
                total[name] += amount
    return total


def qos_class(pod: Pod) -> str:
    """As pkg/apis/core/v1/helper/qos computes it; pod-level resources decide alone where they are given."""
    level = pod.spec.resources
    parts = [level] if level is not None else [c.resources for c in (*pod.spec.containers, *pod.spec.init_containers)]
    asked: Amounts = {}
    bounded: Amounts = {}
    guaranteed = True
    for part in parts:
        _add(asked, _compute(part.requests))
        bound = _compute(part.limits)
        _add(bounded, bound)
        if len(bound) < 2 and (level is None or level.limits):
            guaranteed = False
    if not asked and not bounded:
        return "BestEffort"
    return "Guaranteed" if guaranteed and asked == bounded else "Burstable"


def in_units(amounts: Mapping[str, int]) -> Amounts:
    """Nano-units to what decisions compare: thousandths of cpu, whole units of the rest, rounded up."""
    return {name: min(-(-amount // (_MILLI if name == CPU else NANO)), MOST) for name, amount in amounts.items()}


def nano(quantities: Quantities) -> Amounts:
    return {name: parse_nano(quantity) for name, quantity in quantities.items()}


def is_pod_level(name: str) -> bool:
    """Whether pod-level resources may name it."""
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def _pod_level(resources: Resources | None, part: str) -> bool:
    return resources is not None and any(is_pod_level(name) for name in getattr(resources, part))


def _compute(quantities: Quantities) -> Amounts:
    amounts = {name: parse_nano(quantities[name]) for name in (CPU, MEMORY) if name in quantities}
    return {name: amount for name, amount in amounts.items() if amount > 0}


def _aggregate(containers: list[Amounts], inits: list[tuple[Amounts, bool]]) -> Amounts:
    """Sum of containers and sidecars, or the most that any init step needs beside the sidecars started before it."""
    total: Amounts = {}
    for amounts in containers:
        _add(total, amounts)
    sidecars: Amounts = {}
    peak: Amounts = {}
    for amounts, sidecar in inits:
        if sidecar:
            _add(total, amounts)
            _add(sidecars, amounts)
            _raise(peak, sidecars)
        else:
            step = dict(amounts)
            _add(step, sidecars)
            _raise(peak, step)
    _raise(total, peak)
    return total


def _effective(spec: Amounts, actuated: Amounts, allocated: Amounts, *, infeasible: bool) -> Amounts:
    """During a resize the largest of wanted, promised and in use counts; an infeasible wish does not."""
    result = {} if infeasible else dict(spec)
    _raise(result, actuated)
    _raise(result, allocated)
    return result


def _resize_infeasible(pod: Pod) -> bool:
    condition = pod.status.condition("PodResizePending")
    return condition is not None and condition.reason == "Infeasible"


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    return {status.name: status for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)}


def _add(total: Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        if name not in total or amount > total[name]:
            total[name] = amount
