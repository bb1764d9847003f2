"""Validation of roles and role bindings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wharfinger.api.fields import (
    FieldError,
    invalid,
    not_supported,
    required,
)
from wharfinger.api.names import dns_subdomain, path_segment
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import name_faults
from wharfinger.api.validation.selectors import each, label_selector_faults

RBAC = "rbac.authorization.k8s.io"


def role_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from _rules_faults(document, namespaced=True)


def cluster_role_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from _rules_faults(document, namespaced=False)
    aggregation = document.get("aggregationRule")
    if aggregation is not None:
        path = "aggregationRule.clusterRoleSelectors"
        if not aggregation.get("clusterRoleSelectors"):
            yield required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
        for index, selector in each(aggregation, "clusterRoleSelectors"):
            yield from label_selector_faults(selector, f"{path}[{index}]")


def _rules_faults(document: Document, *, namespaced: bool) -> Iterator[FieldError]:
    for index, rule in each(document, "rules"):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            yield required(f"{path}.verbs", "verbs must contain at least one value")
        urls = rule.get("nonResourceURLs")
        if urls:
            if namespaced:
                detail = "namespaced rules cannot apply to non-resource URLs"
                yield invalid(f"{path}.nonResourceURLs", urls, detail)
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                yield invalid(f"{path}.nonResourceURLs", urls, detail)
            continue
        if not rule.get("apiGroups"):
            yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{path}.resources", "resource rules must supply at least one resource")


def role_binding_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from _binding_faults(document, old, ("Role", "ClusterRole"), namespaced=True)


def cluster_role_binding_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from _binding_faults(document, old, ("ClusterRole",), namespaced=False)


def _binding_faults(
    document: Document, old: Document | None, kinds: Sequence[str], *, namespaced: bool
) -> Iterator[FieldError]:
    reference = document.get("roleRef") or {}
    if reference.get("apiGroup") != RBAC:
        yield not_supported("roleRef.apiGroup", reference.get("apiGroup") or "", (RBAC,))
    if reference.get("kind") not in kinds:
        yield not_supported("roleRef.kind", reference.get("kind") or "", kinds)
    if not reference.get("name"):
        yield required("roleRef.name")
    else:
        yield from name_faults(path_segment, reference["name"], "roleRef.name")
    for index, subject in each(document, "subjects"):
        yield from _subject_faults(subject, f"subjects[{index}]", namespaced=namespaced)
    if old is not None and reference != (old.get("roleRef") or {}):
        yield invalid("roleRef", reference, "cannot change roleRef")


def _subject_faults(subject: Mapping[str, Any], path: str, *, namespaced: bool) -> Iterator[FieldError]:
    name, group = subject.get("name") or "", subject.get("apiGroup") or ""
    if not name:
        yield required(f"{path}.name")
    kind = subject.get("kind") or ""
    if kind == "ServiceAccount":
        if name:
            yield from name_faults(dns_subdomain, name, f"{path}.name")
        if group:
            yield not_supported(f"{path}.apiGroup", group, ("",))
        if not namespaced and not subject.get("namespace"):
            yield required(f"{path}.namespace")
    elif kind in ("User", "Group"):
        if group != RBAC:
            yield not_supported(f"{path}.apiGroup", group, (RBAC,))
    else:
        yield not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group"))
