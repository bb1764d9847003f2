"""Validation of resource names and amounts: in containers, in quotas, on nodes.

`unqualified` decides about resource names without a slash that are not built in: a real API server refuses them; the
embedded one accepts what may be the name of a device class (`nvidia.high.mem`) and treats it as an extended resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from wharfinger.api.fields import FieldError, forbidden, invalid, not_supported, required
from wharfinger.api.names import qualified_name
from wharfinger.api.quantity import canonical, parse_nano
from wharfinger.api.validation.common import quantity_faults

AllowName = Callable[[str], bool]

_LONGEST_NAME = 317  # characters of a qualified name; clients may send longer ones

STANDARD_CONTAINER = frozenset({"cpu", "memory", "ephemeral-storage"})
INTEGER = frozenset(
    {
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
STANDARD_QUOTA = (
    STANDARD_CONTAINER
    | INTEGER
    | {f"{part}.{name}" for part in ("requests", "limits") for name in ("cpu", "memory", "ephemeral-storage")}
    | {"requests.storage"}
)
STANDARD = STANDARD_QUOTA | {"storage"}


def refuse_unqualified(name: str) -> bool:
    """`unqualified` of a real API server."""
    return False


def allow_unqualified(name: str) -> bool:
    """`unqualified` of the embedded server: any possible name of a device class."""
    return not qualified_name(name)


def is_hugepages(name: str) -> bool:
    return name.startswith("hugepages-")


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    return not is_native(name) and not name.startswith("requests.") and not qualified_name(f"requests.{name}")


def may_overcommit(name: str) -> bool:
    return is_native(name) and not is_hugepages(name)


def container_resource_name_faults(
    name: str, path: str, unqualified: AllowName = refuse_unqualified
) -> Iterator[FieldError]:
    """The name of a resource that a container may have."""
    yield from _resource_name_faults(name, path, unqualified)
    if unqualified(name):
        return
    if "/" not in name:
        if name not in STANDARD_CONTAINER and not is_hugepages(name):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def container_resources_faults(
    resources: Mapping[str, Any], path: str, unqualified: AllowName = refuse_unqualified
) -> Iterator[FieldError]:
    """Names, amounts and the relation of requests to limits."""

    def name_faults(name: str, here: str) -> Iterator[FieldError]:
        yield from container_resource_name_faults(name, here, unqualified)

    def device(name: str) -> bool:
        """Whether the resource can only be requested in whole units and without overcommit."""
        if "/" in name:
            return is_extended(name)
        return name not in STANDARD and not is_hugepages(name) and unqualified(name)

    yield from _requirements_faults(resources, path, name_faults, device)


def pod_resources_faults(resources: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Pod-level resources, which may only be cpu, memory and huge pages."""

    def name_faults(name: str, here: str) -> Iterator[FieldError]:
        faults = list(_resource_name_faults(name, here, refuse_unqualified))
        yield from faults
        if not faults and name not in ("cpu", "memory") and not is_hugepages(name):
            yield not_supported(here, name, ("cpu", "hugepages-", "memory"))

    if resources.get("claims") is not None:
        yield forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    yield from _requirements_faults(resources, path, name_faults, lambda name: False)


NameFaults = Callable[[str, str], Iterator[FieldError]]


def _requirements_faults(
    resources: Mapping[str, Any], path: str, name_faults: NameFaults, device: AllowName
) -> Iterator[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, quantity in amounts.items():
            here = f"{path}.{part}[{name}]"
            yield from name_faults(name, here)
            if quantity is not None:
                yield from quantity_faults(quantity, here, whole=device(name) or name in INTEGER)
    for name, quantity in requests.items():
        limit = limits.get(name)
        shared = may_overcommit(name) and not device(name)
        if limit is None:
            if not shared:
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif quantity is not None:
            asked, bound = parse_nano(quantity), parse_nano(limit)
            if asked != bound and not shared:
                detail = f"must be equal to {name} limit of {canonical(limit)}"
                yield invalid(f"{path}.requests", canonical(quantity), detail)
            elif asked > bound:
                detail = f"must be less than or equal to {name} limit of {canonical(limit)}"
                yield invalid(f"{path}.requests", canonical(quantity), detail)
    names = {*limits, *requests}
    if any(map(is_hugepages, names)) and not names & {"cpu", "memory"}:
        yield forbidden(path, "HugePages require cpu or memory")


def _resource_name_faults(name: str, path: str, unqualified: AllowName) -> Iterator[FieldError]:
    faults = qualified_name(name)
    for fault in faults:
        yield invalid(path, name, fault)
    if not faults and "/" not in name and name not in STANDARD and not is_hugepages(name) and not unqualified(name):
        yield invalid(path, name, "must be a standard resource type or fully qualified")


def quota_name_faults(name: str, path: str, unqualified: AllowName) -> Iterator[FieldError]:
    faults = qualified_name(name)
    for fault in faults:
        yield invalid(path, name, fault)
    if faults or "/" in name or unqualified(name):
        return
    if name not in STANDARD_QUOTA and not is_hugepages(name.removeprefix("requests.").removeprefix("limits.")):
        yield invalid(path, name, "must be a standard resource for quota")


def node_resources_faults(amounts: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for name, quantity in amounts.items():
        here = f"{path}.{name}"  # upstream reports these as fields, not as keys
        for fault in qualified_name(name):
            yield invalid(here, name, fault)
        if quantity is not None:
            yield from quantity_faults(quantity, here, whole=is_extended(name) or name in INTEGER)


def is_device(name: str) -> bool:
    """Whether a resource name may mean devices: an extended resource, or an unqualified name."""
    return len(name) <= _LONGEST_NAME and _is_device(name)


def is_unqualified(name: str) -> bool:
    """An unqualified name that has no meaning in Kubernetes itself."""
    return len(name) <= _LONGEST_NAME and _is_unqualified(name)


@lru_cache(maxsize=8192)
def _is_device(name: str) -> bool:
    return is_extended(name) if "/" in name else _is_unqualified(name)


@lru_cache(maxsize=8192)
def _is_unqualified(name: str) -> bool:
    if "/" in name or name in STANDARD or is_hugepages(name) or name.startswith("attachable-volumes-"):
        return False
    return not name.startswith(("requests.", "limits.")) and not qualified_name(name)
