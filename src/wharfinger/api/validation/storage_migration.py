"""Validation of StorageVersionMigrations."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wharfinger.api.conditions import is_true
from wharfinger.api.fields import FieldError, immutable, invalid, required
from wharfinger.api.names import dns_1035_label, dns_subdomain
from wharfinger.api.registry import Document
from wharfinger.api.validation.devices.conditions import conditions_faults

OUTCOMES = ("Succeeded", "Failed")
_RESOURCE_VERSION = re.compile(r"[1-9][0-9]*", re.ASCII)


def migration_rules(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    resource = spec.get("resource") or {}
    plural, group = resource.get("resource") or "", resource.get("group") or ""
    if not plural:
        yield required("spec.resource.resource", "resource is required to be set")
    elif faults := dns_1035_label(plural):
        yield invalid("spec.resource.resource", plural, ",".join(faults))
    if group and (faults := dns_subdomain(group)):
        yield invalid("spec.resource.group", group, ",".join(faults))
    if old is not None and spec != (old.get("spec") or {}):
        yield immutable("spec", spec)


def migration_status_rules(document: Document, old: Document | None) -> Iterator[FieldError]:
    status, before = document.get("status") or {}, (old or {}).get("status") or {}
    version, past = status.get("resourceVersion") or "", before.get("resourceVersion") or ""
    if version and not _RESOURCE_VERSION.fullmatch(version):
        yield invalid("status.resourceVersion", version, f"resource version is not well formed: {version}")
    conditions = status.get("conditions") or []
    yield from conditions_faults(conditions, "status.conditions")
    if past and past != version:
        yield invalid("status.resourceVersion", version, "field is immutable")
    outcomes = [type for type in OUTCOMES if is_true(conditions, type)]
    if len(outcomes) > 1:
        detail = "Both success and failed conditions cannot be true at the same time"
        yield invalid("status.conditions", conditions, detail)
    for type, word in zip(OUTCOMES, ("Success", "Failed")):
        if is_true(before.get("conditions") or (), type) and type not in outcomes:
            yield invalid("status.conditions", conditions, f"{word} condition cannot be set to false once it is true")
