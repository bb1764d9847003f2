"""Validation of APIServices, which say who serves a version of an API group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wharfinger.api.fields import FieldError, invalid, not_supported, required
from wharfinger.api.names import dns_1035_label, dns_subdomain
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import name_faults, port_faults
from wharfinger.api.validation.selectors import each

_STATUSES = ("False", "True", "Unknown")


def api_service_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec, name = document.get("spec") or {}, (document.get("metadata") or {}).get("name") or ""
    group, version = spec.get("group") or "", spec.get("version") or ""
    wanted = f"{version}.{group}"
    if name != wanted:
        yield invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{wanted}"')
    if not group and version != "v1":
        yield required("spec.group", "only v1 may have an empty group and it better be legacy kube")
    if group:
        yield from name_faults(dns_subdomain, group, "spec.group")
    yield from name_faults(dns_1035_label, version, "spec.version")
    for part, most in (("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)):
        priority = spec.get(part) or 0
        if not 0 < priority <= most:
            yield invalid(f"spec.{part}", priority, f"must be positive and less than {most}")
    yield from _server_faults(spec)


def _server_faults(spec: dict[str, Any]) -> Iterator[FieldError]:
    bundle, insecure, service = spec.get("caBundle"), spec.get("insecureSkipTLSVerify"), spec.get("service")
    if service is None:
        if bundle:
            yield invalid("spec.caBundle", f"{len(bundle)} bytes", "local APIServices may not have a caBundle")
        if insecure:
            why = "local APIServices may not have insecureSkipTLSVerify"
            yield invalid("spec.insecureSkipTLSVerify", insecure, why)
        return
    for part in ("namespace", "name"):
        if not service.get(part):
            yield required(f"spec.service.{part}")
    yield from port_faults(service.get("port") or 0, "spec.service.port")
    if insecure and bundle:
        yield invalid("spec.insecureSkipTLSVerify", insecure, "may not be true if caBundle is present")


def api_service_status_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    for index, condition in each(document.get("status") or {}, "conditions"):
        status = condition.get("status")
        if status not in _STATUSES:
            yield not_supported(f"status.conditions[{index}].status", status or "", _STATUSES)
