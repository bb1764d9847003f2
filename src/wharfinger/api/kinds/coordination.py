"""Leases."""

from __future__ import annotations

from wharfinger.api.columns.cells import AGE
from wharfinger.api.defaults.walk import typed
from wharfinger.api.registry import Column, Kind
from wharfinger.api.validation.common import checked
from wharfinger.api.validation.coordination import lease_faults

LEASE = Kind(
    "coordination.k8s.io", "Lease", "leases", generation=False, default=typed(),
    validate=checked("coordination.k8s.io/v1", "Lease", lease_faults),
    columns=(Column("Holder", "spec.holderIdentity"), AGE), create_on_update=True, unconditional_update=False,
    in_snapshots=False,
)  # fmt: skip

KINDS = (LEASE,)
