"""Validation of leases."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.fields import (
    FieldError,
    forbidden,
    invalid,
)
from wharfinger.api.registry import Document


def lease_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        yield invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
    if spec.get("preferredHolder") and not spec.get("strategy"):
        yield forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined")
