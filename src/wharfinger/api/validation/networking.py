"""Validation of ingresses and network policies."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.fields import (
    FieldError,
    invalid,
)
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import one_of
from wharfinger.api.validation.selectors import each, label_selector_faults


def network_policy_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    yield from label_selector_faults(spec.get("podSelector"), "spec.podSelector")
    for index, kind in each(spec, "policyTypes"):
        yield from one_of(kind, ("Ingress", "Egress"), f"spec.policyTypes[{index}]")


def ingress_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        yield invalid("spec", spec, "either `defaultBackend` or `rules` must be specified")
