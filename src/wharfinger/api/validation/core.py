"""Validation of nodes, namespaces, quotas, limits, volumes, claims and events."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from wharfinger.api.fields import FieldError, duplicate, forbidden, immutable, invalid, not_supported, required
from wharfinger.api.names import dns_subdomain, qualified_name
from wharfinger.api.quantity import NANO, canonical, parse_nano
from wharfinger.api.registry import Document, ValidateFn
from wharfinger.api.validation.common import (
    checked,
    name_faults,
    one_of,
    quantity_faults,
)
from wharfinger.api.validation.resources import (
    INTEGER,
    AllowName,
    allow_unqualified,
    is_extended,
    node_resources_faults,
    quota_name_faults,
)
from wharfinger.api.validation.scheduling import taints_faults
from wharfinger.api.validation.selectors import each, label_selector_faults, node_selector_faults

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")


def node_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    # Upstream names this path metadata.taints.
    yield from taints_faults(spec.get("taints") or (), "metadata.taints")
    yield from node_resources_faults(status.get("capacity") or {}, "status.capacity")
    yield from node_resources_faults(status.get("allocatable") or {}, "status.allocatable")
    if old is not None:
        before = old.get("spec") or {}
        for name, word in (("podCIDRs", "podCIDR"), ("providerID", "providerID")):
            if before.get(name) and before[name] != spec.get(name):
                yield forbidden(f"spec.{name}", f'node updates may not change {word} except from "" to valid')


def namespace_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    for finalizer in (document.get("spec") or {}).get("finalizers") or ():
        yield from name_faults(qualified_name, finalizer, "spec.finalizers")


SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity", "VolumeAttributesClass")  # fmt: skip
_EXISTS_ONLY = {"Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity"}
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


def quota_validator(unqualified: AllowName = allow_unqualified) -> ValidateFn:
    """Validation of quotas; `unqualified` as for pods, because quota counts device classes by the same names."""

    def rules(document: Document, old: Document | None) -> Iterator[FieldError]:
        spec = document.get("spec") or {}
        for name, quantity in (spec.get("hard") or {}).items():
            path = f"spec.hard[{name}]"
            yield from quota_name_faults(name, path, unqualified)
            if quantity is not None:
                yield from quantity_faults(quantity, path, whole=name in INTEGER or is_extended(name))
        yield from _scope_faults(spec)
        if old is not None:
            before = (old.get("spec") or {}).get("scopes") or ()
            if set(spec.get("scopes") or ()) != set(before):
                yield immutable("spec.scopes", spec.get("scopes") or [])

    return checked("v1", "ResourceQuota", rules)


_POD_QUOTA = frozenset(["pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"])
_STANDARD_QUOTA = _POD_QUOTA | {
    "ephemeral-storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
    "requests.storage",
    "resourcequotas",
    "services",
    "services.nodeports",
    "services.loadbalancers",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
}


def _applies(scope: str, name: str) -> bool:
    """Whether a scope applies to the resource of this name."""
    if scope == "VolumeAttributesClass":
        return name in ("persistentvolumeclaims", "requests.storage")
    return name == "pods" if scope == "BestEffort" else name in _POD_QUOTA


def _scope_faults(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    scopes = spec.get("scopes") or []
    for scope in scopes:
        if scope not in SCOPES:
            yield invalid("spec.scopes", scopes, "unsupported scope")
        elif not all(_applies(scope, name) for name in spec.get("hard") or {} if name in _STANDARD_QUOTA):
            yield invalid("spec.scopes", scopes, "unsupported scope applied to resource")
    if any(pair <= set(scopes) for pair in _CONFLICTS):
        yield invalid("spec.scopes", scopes, "conflicting scopes")
    path = "spec.scopeSelector.matchExpressions"
    selected = set()
    for _, expression in each(spec.get("scopeSelector") or {}, "matchExpressions"):
        scope, operator = expression.get("scopeName"), expression.get("operator")
        values = expression.get("values") or []
        selected.add(scope)
        if scope not in SCOPES:
            yield invalid(f"{path}.scopeName", scope, "unsupported scope")
        if scope in _EXISTS_ONLY and operator != "Exists":
            detail = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
                "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            yield invalid(f"{path}.operator", operator, detail)
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                yield required(f"{path}.values", detail)
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                yield invalid(f"{path}.values", values, detail)
        else:
            yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    if any(pair <= selected for pair in _CONFLICTS):
        yield invalid(path, scopes, "conflicting scopes")


def limit_range_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    kinds: set[str] = set()
    for index, item in each(document.get("spec") or {}, "limits"):
        path = f"spec.limits[{index}]"
        kind = item.get("type") or ""
        if kind not in ("Pod", "Container", "PersistentVolumeClaim") and (not kind or qualified_name(kind)):
            yield invalid(f"{path}.type", kind, "must be a standard limit type or fully qualified")
        if kind in kinds:
            yield duplicate(f"{path}.type", kind)
        kinds.add(kind)
        if kind == "Pod":
            for name in ("default", "defaultRequest"):
                if item.get(name):
                    yield forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'")
        yield from _limit_order_faults(item, path)


def _limit_order_faults(item: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """The minimum must not exceed the defaults, nor these the maximum."""
    order = (
        ("min", "max", "min", "min value {} is greater than max value {}"),
        ("min", "defaultRequest", "defaultRequest", "min value {} is greater than default request value {}"),
        ("defaultRequest", "max", "defaultRequest", "default request value {} is greater than max value {}"),
        (
            "defaultRequest",
            "default",
            "defaultRequest",
            "default request value {} is greater than default limit value {}",
        ),
        ("min", "default", "default", "min value {} is greater than default value {}"),
        ("default", "max", "default", "default value {} is greater than max value {}"),
    )
    for low, high, blamed, text in order:
        lows, highs = item.get(low) or {}, item.get(high) or {}
        for name, quantity in lows.items():
            bound = highs.get(name)
            if quantity is not None and bound is not None and parse_nano(quantity) > parse_nano(bound):
                shown = canonical((item.get(blamed) or {})[name])
                yield invalid(f"{path}.{blamed}[{name}]", shown, text.format(canonical(quantity), canonical(bound)))
    for name, ratio in (item.get("maxLimitRequestRatio") or {}).items():
        if ratio is not None and parse_nano(ratio) < NANO:
            detail = f"ratio {canonical(ratio)} is less than 1"
            yield invalid(f"{path}.maxLimitRequestRatio[{name}]", canonical(ratio), detail)


def _access_mode_faults(modes: Any, path: str) -> Iterator[FieldError]:
    if not modes:
        yield required(path, "at least 1 access mode is required")
    for mode in modes or ():
        if mode not in ACCESS_MODES:
            yield not_supported(path, mode, ACCESS_MODES)
    if modes and "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


def claim_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    yield from claim_spec_faults(spec, "spec")
    if old is not None:
        yield from _claim_update_faults(spec, old.get("spec") or {})


def claim_spec_faults(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from _access_mode_faults(spec.get("accessModes"), f"{path}.accessModes")
    yield from label_selector_faults(spec.get("selector"), f"{path}.selector")
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        yield required(f"{path}.resources[storage]")
    elif parse_nano(storage) <= 0:
        yield invalid(f"{path}.resources[storage]", canonical(storage), "must be greater than zero")
    if spec.get("storageClassName"):
        yield from name_faults(dns_subdomain, spec["storageClassName"], f"{path}.storageClassName")
    yield from one_of(spec.get("volumeMode"), VOLUME_MODES, f"{path}.volumeMode", empty=True)


def _claim_update_faults(spec: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    """After creation only the storage request may grow, and an absent volume name or class may be set."""

    def fixed(of: Mapping[str, Any]) -> dict[str, Any]:
        kept = {k: v for k, v in of.items() if k not in ("resources", "volumeAttributesClassName") and v is not None}
        if not before.get("volumeName"):
            kept.pop("volumeName", None)
        if before.get("storageClassName") is None:
            kept.pop("storageClassName", None)
        return kept

    if fixed(spec) != fixed(before):
        detail = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        yield forbidden("spec", detail)
    now = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    past = ((before.get("resources") or {}).get("requests") or {}).get("storage")
    if now is not None and past is not None and parse_nano(now) < parse_nano(past):
        yield forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")


_VOLUME_FIELDS = frozenset(
    {
        "capacity",
        "accessModes",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "mountOptions",
        "volumeMode",
        "nodeAffinity",
        "volumeAttributesClassName",
    }
)


def volume_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    yield from _access_mode_faults(spec.get("accessModes"), "spec.accessModes")
    capacity = spec.get("capacity") or {}
    if "storage" not in capacity or len(capacity) > 1:
        yield not_supported("spec.capacity", capacity, ("storage",))
    elif capacity["storage"] is not None and parse_nano(capacity["storage"]) <= 0:
        yield invalid("spec.capacity[storage]", canonical(capacity["storage"]), "must be greater than zero")
    policy = spec.get("persistentVolumeReclaimPolicy")
    yield from one_of(policy, ("Delete", "Recycle", "Retain"), "spec.persistentVolumeReclaimPolicy", empty=True)
    sources = [name for name, value in spec.items() if name not in _VOLUME_FIELDS and value is not None]
    if not sources:
        yield required("spec", "must specify a volume type")
    for name in sources[1:]:
        yield forbidden(f"spec.{name}", "may not specify more than 1 volume type")
    yield from one_of(spec.get("volumeMode"), VOLUME_MODES, "spec.volumeMode", empty=True)
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        if affinity.get("required") is None:
            yield required("spec.nodeAffinity.required", "must specify required node constraints")
        else:
            yield from node_selector_faults(affinity["required"], "spec.nodeAffinity.required")
    if "local" in sources and affinity is None:
        yield required("spec.nodeAffinity", "Local volume requires node affinity")
    if old is not None:
        before = old.get("spec") or {}
        for name in sources:
            if spec.get(name) != before.get(name):
                yield forbidden(
                    "spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation"
                )
                break


def event_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    namespace = (document.get("metadata") or {}).get("namespace") or ""
    involved = (document.get("involvedObject") or {}).get("namespace") or ""
    mismatch = invalid("involvedObject.namespace", involved, "does not match event.namespace")
    if not document.get("eventTime"):
        if (involved and namespace != involved) or (not involved and namespace not in ("", "default")):
            yield mismatch
        return
    if not involved and namespace not in ("default", "kube-system"):
        yield mismatch
    reporter = document.get("reportingComponent") or ""
    if not reporter:
        yield required("reportingComponent")
    yield from name_faults(qualified_name, reporter, "reportingComponent")
    for name, limit in (("reportingInstance", 128), ("action", 128), ("reason", 128)):
        text = document.get(name) or ""
        if not text:
            yield required(name)
        elif len(text) > limit:
            yield invalid(name, "", f"can have at most {limit} characters")
    if len((document.get("message") or "").encode()) > 1024:
        yield invalid("message", "", "can have at most 1024 characters")


_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
"""The required keys of secrets by type."""


def secret_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from _data_faults(document, old, ("data", "stringData"))
    kind, keys = document.get("type"), {**(document.get("data") or {}), **(document.get("stringData") or {})}
    for key in _SECRET_KEYS.get(kind or "", ()):
        if key not in keys:
            yield required(f"data[{key}]")
    if kind == "kubernetes.io/basic-auth" and "username" not in keys and "password" not in keys:
        yield required("data[username]")
        yield required("data[password]")
    if kind == "kubernetes.io/service-account-token":
        annotations = (document.get("metadata") or {}).get("annotations") or {}
        if not annotations.get("kubernetes.io/service-account.name"):
            yield required("metadata.annotations[kubernetes.io/service-account.name]")
    if old is not None and kind != old.get("type"):
        yield immutable("type", kind)


def config_map_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from _data_faults(document, old, ("data", "binaryData"))
    for key in document.get("data") or {}:
        if key in (document.get("binaryData") or {}):
            yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")


_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")


def _data_faults(document: Document, old: Document | None, parts: tuple[str, ...]) -> Iterator[FieldError]:
    size = 0
    for part in parts:
        for key, value in (document.get(part) or {}).items():
            if not key or len(key) > 253 or key in (".", "..") or not _DATA_KEY.fullmatch(key):
                detail = (
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
                    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                )
                yield invalid(f"{part}[{key}]", key, detail)
            size += len((value or "").encode())
    if size > 1024 * 1024:
        yield FieldError("", "FieldValueTooLong", "Too long: may not be more than 1048576 bytes")
    if old is not None and old.get("immutable"):
        if not document.get("immutable"):
            yield forbidden("immutable", "field is immutable when `immutable` is set")
        for part in parts:
            if (document.get(part) or {}) != (old.get(part) or {}):
                yield forbidden(part, "field is immutable when `immutable` is set")
