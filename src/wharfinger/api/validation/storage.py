"""Validation of the storage kinds."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.fields import (
    FieldError,
    duplicate,
    immutable,
    invalid,
    required,
)
from wharfinger.api.names import dns_subdomain, qualified_name
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import name_faults, one_of
from wharfinger.api.validation.selectors import each, label_selector_faults


def storage_class_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    provisioner = document.get("provisioner") or ""
    if not provisioner:
        yield required("provisioner")
    else:
        yield from name_faults(qualified_name, provisioner.lower(), "provisioner")
    yield from one_of(document.get("reclaimPolicy"), ("Delete", "Retain"), "reclaimPolicy", empty=True)
    modes = ("Immediate", "WaitForFirstConsumer")
    yield from one_of(document.get("volumeBindingMode"), modes, "volumeBindingMode")
    for index, term in each(document, "allowedTopologies"):
        for position, expression in each(term, "matchLabelExpressions"):
            path = f"allowedTopologies[{index}].matchLabelExpressions[{position}]"
            if not expression.get("values"):
                yield required(f"{path}.values")
            yield from name_faults(qualified_name, expression.get("key") or "", f"{path}.key")
    if old is not None:
        for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
            if (document.get(name) or None) != (old.get(name) or None):
                yield immutable(name, document.get(name))


def csi_node_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, driver in each(document.get("spec") or {}, "drivers"):
        path = f"spec.drivers[{index}]"
        name = driver.get("name") or ""
        if not name:
            yield required(f"{path}.name")
        if name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
        if not driver.get("nodeID"):
            yield required(f"{path}.nodeID")
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            yield invalid(f"{path}.allocatable.count", count, "must be greater than or equal to 0")


def storage_capacity_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    name = document.get("storageClassName") or ""
    yield from name_faults(dns_subdomain, name, "storageClassName")
    yield from label_selector_faults(document.get("nodeTopology"), "nodeTopology")
    if old is not None:
        for field in ("nodeTopology", "storageClassName"):
            if document.get(field) != old.get(field):
                yield immutable(field, document.get(field))


def volume_attachment_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    for name in ("attacher", "nodeName"):
        if not spec.get(name):
            yield required(f"spec.{name}")
    if old is not None and spec != (old.get("spec") or {}):
        yield invalid("spec", spec, "field is immutable")
