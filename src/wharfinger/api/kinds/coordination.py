"""Leases."""

from __future__ import annotations

from wharfinger.api.columns import others as columns
from wharfinger.api.defaults.walk import typed
from wharfinger.api.registry import Kind
from wharfinger.api.validation import others as rules
from wharfinger.api.validation.common import checked

LEASES = Kind(
    "coordination.k8s.io",
    "Lease",
    "leases",
    generation=False,
    default=typed(),
    validate=checked("coordination.k8s.io/v1", "Lease", rules.lease_faults),
    columns=columns.LEASE_COLUMNS,
)

KINDS = (LEASES,)
