"""What objects are charged to a ResourceQuota: usage by kind, scopes, and sums. Pure; admission and the controller share it.

Amounts are nano-units by quota name (`requests.cpu`, `pods`, `count/deployments.apps`). The rules are those of
upstream's pkg/quota/v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from wharfinger.api.device_quota import DEVICE_CLASS_PREFIX
from wharfinger.api.quantity import NANO, format_nano, parse_nano, value
from wharfinger.api.registry import Document, Resource
from wharfinger.api.resource_names import PLAIN, ResourceNames
from wharfinger.api.resources import CPU, EPHEMERAL_STORAGE, MEMORY, Amounts, limits_nano, qos_class, requests_nano
from wharfinger.api.times import parse_time
from wharfinger.api.validation.resources import is_device
from wharfinger.api.views import Pod, ResourceQuota, view
from wharfinger.api.views.core import ScopeExpression
from wharfinger.api.views.pods import Container, PodAffinityTerm

_COMPUTE = (CPU, MEMORY, EPHEMERAL_STORAGE)
_MUST_BE_STATED = {
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
}
_OBJECTS = {"configmaps", "secrets", "replicationcontrollers", "resourcequotas", "services", "persistentvolumeclaims"}
"""Core kinds that may also be counted by their plain name."""


def usage(resource: Resource, document: Document, now: float, names: ResourceNames = PLAIN) -> Amounts:
    """What the object costs, by every name a quota may use for it."""
    if resource.group == "" and resource.plural == "pods":
        return pod_usage(view(document, Pod), now, names)
    amounts: Amounts = {count_name(resource): NANO}
    if resource.group == "" and resource.plural in _OBJECTS:
        amounts[resource.plural] = NANO
        if resource.plural == "services":
            amounts |= _service_usage(document)
        elif resource.plural == "persistentvolumeclaims":
            amounts |= _claim_usage(document)
    return amounts


def count_name(resource: Resource) -> str:
    return f"count/{resource.group_plural}"


def pod_usage(pod: Pod, now: float, names: ResourceNames = PLAIN) -> Amounts:
    """A finished pod, or one stuck in deletion beyond its grace period, only counts as an object.

    Devices count under each of their names, plain or with `requests.`.
    """
    amounts: Amounts = {"count/pods": NANO}
    if not charged(pod, now):
        return amounts
    amounts["pods"] = NANO
    requests, limits = requests_nano(_canonical(pod, names)), limits_nano(pod)
    for name in _COMPUTE:
        if name in requests:
            amounts[name] = amounts[f"requests.{name}"] = requests[name]
        if name in limits:
            amounts[f"limits.{name}"] = limits[name]
    for name, amount in requests.items():
        if name.startswith("hugepages-") or is_device(name):
            for each in (name, *names.others(name)):
                amounts[each] = amounts[f"requests.{each}"] = amount
        elif name.startswith(DEVICE_CLASS_PREFIX) or (
            "/" in name and not name.rpartition("/")[0].endswith("kubernetes.io")
        ):
            amounts[f"requests.{name}"] = amount
    return amounts


def _canonical(pod: Pod, names: ResourceNames) -> Pod:
    """The pod with canonical names, so that what containers ask for under several names of one resource adds up."""
    if names is PLAIN:
        return pod
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    asked = {name for each in containers for name in each.resources.requests if name not in _COMPUTE}
    if not any(names.canonical(name) != name for name in asked):
        return pod

    def renamed(container: Container) -> Container:
        requests: dict[str, str | int | float] = {}
        for name, quantity in container.resources.requests.items():
            own = names.canonical(name)
            requests[own] = value(requests[own]) + value(quantity) if own in requests else quantity
        return replace(container, resources=replace(container.resources, requests=requests))

    spec = replace(
        pod.spec,
        containers=tuple(map(renamed, pod.spec.containers)),
        init_containers=tuple(map(renamed, pod.spec.init_containers)),
    )
    return replace(pod, spec=spec)


def charged(pod: Pod, now: float) -> bool:
    if pod.terminal:
        return False
    grace = pod.metadata.deletion_grace_period_seconds
    if not pod.metadata.deletion_timestamp or grace is None:
        return True
    return now <= parse_time(pod.metadata.deletion_timestamp) + grace


def _service_usage(document: Document) -> Amounts:
    spec = document.get("spec") or {}
    ports = spec.get("ports") or ()
    kind = spec.get("type") or "ClusterIP"
    if kind == "NodePort":
        return {"services.nodeports": len(ports) * NANO}
    if kind == "LoadBalancer":
        if spec.get("allocateLoadBalancerNodePorts") is False:
            ports = [port for port in ports if port.get("nodePort")]
        return {"services.nodeports": len(ports) * NANO, "services.loadbalancers": NANO}
    return {}


def _claim_usage(document: Document) -> Amounts:
    spec = document.get("spec") or {}
    amounts: Amounts = {}
    requests = (spec.get("resources") or {}).get("requests") or {}
    storage = parse_nano(requests["storage"]) if "storage" in requests else None
    if storage is not None:
        allocated = ((document.get("status") or {}).get("allocatedResources") or {}).get("storage")
        storage = max(storage, parse_nano(allocated)) if allocated is not None else storage
        amounts["requests.storage"] = storage
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    name = annotations.get("volume.beta.kubernetes.io/storage-class") or spec.get("storageClassName")
    if name:
        amounts[f"{name}.storageclass.storage.k8s.io/persistentvolumeclaims"] = NANO
        if storage is not None:
            amounts[f"{name}.storageclass.storage.k8s.io/requests.storage"] = storage
    return amounts


# Scopes


class Traits(NamedTuple):
    """What scopes ask about an object; None stands for what is no pod."""

    terminating: bool
    best_effort: bool
    priority_class: str
    crosses_namespaces: bool


def traits(resource: Resource, document: Document) -> Traits | None:
    if resource.group != "" or resource.plural != "pods":
        return None
    return pod_traits(view(document, Pod))


def pod_traits(pod: Pod) -> Traits:
    deadline = pod.spec.active_deadline_seconds
    return Traits(
        terminating=deadline is not None and deadline >= 0,
        best_effort=qos_class(pod) == "BestEffort",
        priority_class=pod.spec.priority_class_name,
        crosses_namespaces=_crosses_namespaces(pod),
    )


def in_scopes(quota: ResourceQuota, found: Traits | None) -> bool:
    """Whether an object lies in all of the quota's scopes; a quota without scopes takes every object."""
    wanted = _scopes(quota)
    return all(found is not None and _in_scope(found, each) for each in wanted)


def pod_matches(quota: ResourceQuota, pod: Pod) -> bool:
    return not is_scoped(quota) or in_scopes(quota, pod_traits(pod))


def is_scoped(quota: ResourceQuota) -> bool:
    return bool(_scopes(quota))


def _scopes(quota: ResourceQuota) -> list[ScopeExpression]:
    plain = [ScopeExpression(name, "Exists") for name in quota.spec.scopes]
    selector = quota.spec.scope_selector
    return plain + (list(selector.match_expressions) if selector is not None else [])


def _in_scope(found: Traits, scope: ScopeExpression) -> bool:
    match scope.scope_name:
        case "Terminating":
            return found.terminating
        case "NotTerminating":
            return not found.terminating
        case "BestEffort":
            return found.best_effort
        case "NotBestEffort":
            return not found.best_effort
        case "PriorityClass":
            return _matches_priority(found.priority_class, scope)
        case "CrossNamespacePodAffinity":
            return found.crosses_namespaces
    return False


def _matches_priority(name: str, scope: ScopeExpression) -> bool:
    match scope.operator:
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
        case "In":
            return bool(name) and name in scope.values
        case "NotIn":
            return not name or name not in scope.values
    return False


def _crosses_namespaces(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    if affinity is None:
        return False
    terms: list[PodAffinityTerm] = []
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if part is not None:
            terms += [*part.required, *(preferred.pod_affinity_term for preferred in part.preferred)]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)


# What a quota demands of pods, and sums


def missing_amounts(names: Iterable[str], pod: Pod) -> str:
    """Why a pod cannot be charged: containers that leave out an amount the quota limits. Empty when none does."""
    if pod.spec.resources is not None and (pod.spec.resources.requests or pod.spec.resources.limits):
        return ""
    wanted = _MUST_BE_STATED.intersection(names)
    missing: dict[str, set[str]] = {}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        stated = _stated(container)
        for name in wanted:
            if name not in stated:
                missing.setdefault(name, set()).add(container.name)
    if not missing:
        return ""
    parts = [f"{name} for: {','.join(sorted(containers))}" for name, containers in sorted(missing.items())]
    return f"must specify {'; '.join(parts)}"


def _stated(container: Container) -> set[str]:
    requests, limits = container.resources.requests, container.resources.limits
    return {
        *(name for name in requests),
        *(f"requests.{name}" for name in requests),
        *(f"limits.{name}" for name in limits),
    }


def add(total: Amounts, amounts: Mapping[str, int], sign: int = 1) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + sign * amount


def hard(quota: ResourceQuota) -> Amounts:
    return {name: parse_nano(quantity) for name, quantity in quota.spec.hard.items()}


def shown(name: str, nano: int) -> str:
    """An amount as quota statuses and messages write it."""
    base = name.rpartition(".")[2]
    binary = base in ("memory", "storage", "ephemeral-storage") or "hugepages-" in name
    return format_nano(nano, "binary" if binary else "decimal")


def as_written(hard_quantities: Mapping[str, Any], amounts: Mapping[str, int]) -> dict[str, str]:
    """Used amounts for exactly the names that the quota limits."""
    return {name: shown(name, amounts.get(name, 0)) for name in sorted(hard_quantities)}
