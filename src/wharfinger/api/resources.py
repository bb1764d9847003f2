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
resources enabled. They differ between versions of Kubernetes for pods that are being resized. Malformed quantities raise
BadQuantity; validated pods have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal

from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.quantity import NANO, format_nano, parse_nano
from wharfinger.api.views.pods import (
    ActualResources,
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    Quantities,
    ResourceRequirements,
)

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


def requests(pod: Pod, kubernetes: KubernetesVersion = REFERENCE) -> Amounts:
    if _is_plain(pod):
        return dict(_plain_requests(tuple(pod.spec.containers[0].resources.requests.items())))
    return in_units(requests_nano(pod, kubernetes=kubernetes))


@lru_cache(1024)
def _plain_requests(quantities: tuple[tuple[str, str | int | float], ...]) -> Amounts:
    return in_units(nano(dict(quantities)))


def request_the_same(one: Pod, other: Pod) -> bool:
    """Whether two pods are known to request the same: a quick test, which fails where requests have to be summed up."""
    return one.spec.containers == other.spec.containers and _is_plain(one) and _is_plain(other)


def limits(pod: Pod) -> Amounts:
    return in_units(limits_nano(pod))


def nonzero_requests(pod: Pod, kubernetes: KubernetesVersion = REFERENCE) -> tuple[int, int]:
    """Thousandths of a core and bytes. An explicit request of zero stays zero."""
    plain = requests_nano(pod, kubernetes=kubernetes)
    if _pod_level(pod.spec.resources, "requests"):
        # Pod-level requests cover all containers: the defaults apply only to resources that they do not name.
        missing = {name: amount for name, amount in NONZERO.items() if name not in plain}
    else:
        missing = NONZERO
    units = in_units(requests_nano(pod, missing=missing, kubernetes=kubernetes) if missing else plain)
    return units.get(CPU, 0), units.get(MEMORY, 0)


def requests_nano(
    pod: Pod,
    *,
    missing: Mapping[str, int] | None = None,
    overhead: bool = True,
    kubernetes: KubernetesVersion = REFERENCE,
) -> Amounts:
    """`missing` has the request to assume for a resource that a container does not name."""
    if _is_plain(pod):
        plain = nano(pod.spec.containers[0].resources.requests)
        return {**missing, **plain} if missing else plain
    total = _total(pod, "requests", missing, kubernetes)
    if overhead:
        add_amounts(total, nano(pod.spec.overhead))
    return total


def _is_plain(pod: Pod) -> bool:
    """Whether the requests of the pod are those of its only container: the common case, computed faster."""
    spec, status = pod.spec, pod.status
    if len(spec.containers) != 1 or spec.init_containers or spec.resources is not None or spec.overhead:
        return False
    if status.resources is not None or status.init_container_statuses or _resize_infeasible(pod):
        return False
    wanted, name = spec.containers[0].resources.requests, spec.containers[0].name
    for each in status.container_statuses:
        if each.name == name:
            actual = None if each.resources is None else each.resources.requests
            allocated = each.allocated_resources
            if (actual is not None and actual != wanted) or (allocated is not None and allocated != wanted):
                return False
    return True


def in_resize(pod: Pod) -> bool:
    """Whether the requests depend on the status of the pod. If not, they are the same for all pods of its spec."""
    status = pod.status
    if status.resources is not None or (status.conditions and _resize_infeasible(pod)):
        return True
    if not status.container_statuses and not status.init_container_statuses:
        return False  # nearly all pods that are being scheduled; a generator would cost more than the rest
    return any(
        each.resources is not None or each.allocated_resources is not None
        for each in (*status.container_statuses, *status.init_container_statuses)
    )


def requests_by_status(pod: Pod) -> bool:
    """Whether what the pod requests differs from what its spec says alone. A running pod that is not being resized has in its
    status what its spec asks for."""
    return in_resize(pod) and not _is_plain(pod)


def limits_nano(pod: Pod, *, overhead: bool = True, kubernetes: KubernetesVersion = REFERENCE) -> Amounts:
    total = _total(pod, "limits", None, kubernetes)
    if overhead:
        # Overhead is added to existing limits only.
        for name, amount in nano(pod.spec.overhead).items():
            if total.get(name):
                total[name] += amount
    return total


Part = Literal["requests", "limits"]


def _total(pod: Pod, part: Part, missing: Mapping[str, int] | None, kubernetes: KubernetesVersion) -> Amounts:
    """The sum over containers, replaced by the pod-level amount for resources that have one; without overhead."""
    if kubernetes < KubernetesVersion.V1_37:
        return _total_before_1_37(pod, part, missing)
    total = _of_containers(pod, part, missing)
    level, status = pod.spec.resources, pod.status
    if level is not None and (_pod_level(level, part) or (part == "limits" and _pod_level(level, "requests"))):
        amounts = nano(getattr(level, part))
        if status.resources is not None:
            if _resize_infeasible(pod):
                amounts = {}
            _raise(amounts, nano(getattr(status.resources, part) or {}))
            if part == "requests":
                _raise(amounts, nano(status.allocated_resources or {}))
        total.update({name: amount for name, amount in amounts.items() if is_pod_level(name)})
    return total


def _of_containers(pod: Pod, part: Part, missing: Mapping[str, int] | None) -> Amounts:
    """The largest of what the containers want, were allocated and have, each summed up over all containers. An infeasible
    resize does not count. Once the status has the sums for the whole pod, they stand for those of its containers."""
    infeasible, status = _resize_infeasible(pod), pod.status

    def total(amounts_of: Callable[[Container], Quantities]) -> Amounts:
        if missing:
            return sum_containers(pod.spec, lambda container: {**missing, **nano(amounts_of(container))})
        return sum_containers(pod.spec, lambda container: nano(amounts_of(container)))

    def desired(container: Container) -> Quantities:
        quantities: Quantities = getattr(container.resources, part)
        return quantities

    if not in_resize(pod):
        return total(desired)
    statuses = {each.name: each for each in (*status.init_container_statuses, *status.container_statuses)}

    def allocated(container: Container) -> Quantities:
        known = statuses.get(container.name)
        if known is not None and known.allocated_resources is not None:
            return known.allocated_resources
        return {} if infeasible else desired(container)

    def actual(container: Container) -> Quantities:
        known = statuses.get(container.name)
        stated = None if known is None else _stated(known.resources, part)
        if stated is not None:
            return stated
        if part == "requests":
            return allocated(container)
        return {} if infeasible else desired(container)

    sums = [] if infeasible else [total(desired)]
    stated = _stated(status.resources, part)
    if part == "limits":
        sums.append(total(actual) if stated is None else nano(stated))
    elif stated is not None and status.allocated_resources is not None:
        sums += (nano(stated), nano(status.allocated_resources))
    else:
        sums += (total(actual), total(allocated))
    largest: Amounts = {}
    for amounts in sums:
        _raise(largest, amounts)
    return largest


def _stated(resources: ActualResources | None, part: Part) -> Quantities | None:
    if resources is None:
        return None
    return resources.requests if part == "requests" else resources.limits


def _total_before_1_37(pod: Pod, part: Part, missing: Mapping[str, int] | None) -> Amounts:
    """The same in 1.36: the largest amount for each container, then the sum."""
    infeasible = _resize_infeasible(pod)
    statuses = _resizable_statuses(pod)

    def effective(
        desired: ResourceRequirements, actual: ActualResources | None, allocated: Quantities | None
    ) -> Amounts:
        """During a resize: the largest of desired, allocated and actual. An infeasible desired amount does not count."""
        stated = nano(getattr(desired, part))
        if actual is None:
            return stated
        result = {} if infeasible else stated
        _raise(result, nano(_stated(actual, part) or {}))
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
