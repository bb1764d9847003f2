"""What a pod requests: the sum over containers, init containers, sidecars and overhead, during resizes too.

Scheduler, quota and nodes all count with these functions. All amounts are exact integers.

    requests(pod)            scheduler units: cpu in thousandths, everything else whole
    limits(pod)              the same for limits
    nonzero_requests(pod)    (milli cpu, memory bytes) with defaults for containers without requests, for scoring
    requests_nano(pod)       nano-units, as in `api.quantity`, for exact comparison with quota
    limits_nano(pod)
    sum_containers(spec, of) the sum of any amounts by container
    qos_class(pod)           Guaranteed, Burstable or BestEffort
    in_units(nano)           nano-units to scheduler units
    amount_text(name, n)     scheduler units for people
    quantity_of(name, n)     scheduler units as an exact quantity

The rules are those of component-helpers' resource/helpers.go with in-place resize of containers and of pod-level
resources enabled, as in Kubernetes 1.36. Malformed quantities raise BadQuantity; validated pods have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from wharfinger.api.quantity import NANO, format_nano, parse_nano
from wharfinger.api.views.pods import Container, ContainerStatus, Pod, PodSpec, Quantities, ResourceRequirements

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"

Amounts = dict[str, int]

_MILLI = NANO // 1000
MOST = 1 << 53
"""Larger amounts (8 Pi; cpu in thousandths) are clipped to this, so that the sum over a node's pods fits into 64 bits.
Upstream lets such sums overflow."""

NONZERO: Amounts = {CPU: 100 * _MILLI, MEMORY: 200 * 1024 * 1024 * NANO}
"""What scoring assumes for a container without requests: a tenth of a core and 200 MiB."""


def requests(pod: Pod) -> Amounts:
    return in_units(requests_nano(pod))


def limits(pod: Pod) -> Amounts:
    return in_units(limits_nano(pod))


def nonzero_requests(pod: Pod) -> tuple[int, int]:
    """Thousandths of a core and bytes. An explicit request of zero stays zero."""
    plain = requests_nano(pod)
    if _pod_level(pod.spec.resources, "requests"):
        # Pod-level requests cover all containers: the defaults apply only to resources that they do not name.
        missing = {name: amount for name, amount in NONZERO.items() if name not in plain}
    else:
        missing = NONZERO
    units = in_units(requests_nano(pod, missing=missing) if missing else plain)
    return units.get(CPU, 0), units.get(MEMORY, 0)


def requests_nano(pod: Pod, *, missing: Mapping[str, int] | None = None, overhead: bool = True) -> Amounts:
    """`missing` has the request to assume for a resource that a container does not name."""
    if _is_plain(pod):
        plain = nano(pod.spec.containers[0].resources.requests)
        return {**missing, **plain} if missing else plain
    total = _total(pod, "requests", missing)
    if overhead:
        add_amounts(total, nano(pod.spec.overhead))
    return total


def _is_plain(pod: Pod) -> bool:
    """Whether the requests of the pod are those of its only container: the common case, computed faster."""
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
    total = _total(pod, "limits")
    if overhead:
        # Overhead is added to existing limits only.
        for name, amount in nano(pod.spec.overhead).items():
            if total.get(name):
                total[name] += amount
    return total


def _total(pod: Pod, part: Literal["requests", "limits"], missing: Mapping[str, int] | None = None) -> Amounts:
    """The sum over containers, replaced by the pod-level amount for resources that have one; without overhead."""
    infeasible = _resize_infeasible(pod)
    statuses = _resizable_statuses(pod)

    def effective(
        desired: ResourceRequirements, actual: ResourceRequirements | None, allocated: Quantities | None
    ) -> Amounts:
        """During a resize: the largest of desired, allocated and actual. An infeasible desired amount does not count."""
        stated = nano(getattr(desired, part))
        if actual is None:
            return stated
        result = {} if infeasible else stated
        _raise(result, nano(getattr(actual, part)))
        if part == "requests":
            _raise(result, nano(allocated or {}))
        return result

    def of(container: Container) -> Amounts:
        status = statuses.get(container.name)
        amounts = (
            nano(getattr(container.resources, part))
            if status is None
            else effective(container.resources, status.resources, status.allocated_resources)
        )
        return {**missing, **amounts} if missing else amounts

    total = sum_containers(pod.spec, of)
    level = pod.spec.resources
    if level is not None:
        amounts = effective(level, pod.status.resources, pod.status.allocated_resources)
        total.update({name: amounts.get(name, 0) for name in getattr(level, part) if is_pod_level(name)})
    return total


def qos_class(pod: Pod) -> str:
    """As in pkg/apis/core/v1/helper/qos; pod-level resources take precedence over those of containers."""
    level = pod.spec.resources
    parts = [level] if level is not None else [c.resources for c in (*pod.spec.containers, *pod.spec.init_containers)]
    asked: Amounts = {}
    bounded: Amounts = {}
    guaranteed = True
    for part in parts:
        add_amounts(asked, _compute(part.requests))
        bound = _compute(part.limits)
        add_amounts(bounded, bound)
        if len(bound) < 2 and (level is None or level.limits):
            guaranteed = False
    if not asked and not bounded:
        return "BestEffort"
    return "Guaranteed" if guaranteed and asked == bounded else "Burstable"


def in_units(amounts: Mapping[str, int]) -> Amounts:
    """Nano-units to scheduler units: thousandths of cpu, whole units of the rest, rounded up."""
    return {name: min(-(-amount // (_MILLI if name == CPU else NANO)), MOST) for name, amount in amounts.items()}


def amount_text(resource: str, amount: int) -> str:
    """An amount in scheduler units for people: cores of cpu, bytes with a binary suffix. Rounded to a tenth of the suffix."""
    if resource == CPU:
        return f"{amount / 1000:g}"
    for suffix, size in (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20)):
        if abs(amount) >= size:
            return f"{round(amount / size, 1):g}{suffix}"
    return str(amount)


def quantity_of(resource: str, amount: int) -> str:
    """An amount in scheduler units as an exact quantity."""
    if resource == CPU:
        return format_nano(amount * _MILLI)
    return format_nano(amount * NANO, "binary" if resource in (MEMORY, EPHEMERAL_STORAGE) else "decimal")


def nano(quantities: Quantities) -> Amounts:
    return {name: parse_nano(quantity) for name, quantity in quantities.items()}


def is_pod_level(name: str) -> bool:
    """Whether the resource may be set at pod level."""
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def _pod_level(resources: ResourceRequirements | None, part: str) -> bool:
    return resources is not None and any(is_pod_level(name) for name in getattr(resources, part))


def _compute(quantities: Quantities) -> Amounts:
    amounts = {name: parse_nano(quantities[name]) for name in (CPU, MEMORY) if name in quantities}
    return {name: amount for name, amount in amounts.items() if amount > 0}


def sum_containers(spec: PodSpec, of: Callable[[Container], Mapping[str, int]]) -> Amounts:
    """What the pod needs at once, given the amounts `of` each container: the sum of containers and sidecars, or, if that is
    more, what an init container needs together with the sidecars started before it."""
    total: Amounts = {}
    for container in spec.containers:
        add_amounts(total, of(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        amounts = of(container)
        if container.restart_policy == "Always":
            add_amounts(total, amounts)
            add_amounts(sidecars, amounts)
            _raise(peak, sidecars)
        else:
            step = dict(amounts)
            add_amounts(step, sidecars)
            _raise(peak, step)
    _raise(total, peak)
    return total


def _resize_infeasible(pod: Pod) -> bool:
    condition = pod.status.condition("PodResizePending")
    return condition is not None and condition.reason == "Infeasible"


def _resizable_statuses(pod: Pod) -> dict[str, ContainerStatus]:
    """By container name; init containers other than sidecars cannot be resized."""
    found = {status.name: status for status in pod.status.container_statuses}
    if pod.spec.init_containers:
        sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
        found.update((status.name, status) for status in pod.status.init_container_statuses if status.name in sidecars)
    return found


def add_amounts(total: Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        if name not in total or amount > total[name]:
            total[name] = amount
