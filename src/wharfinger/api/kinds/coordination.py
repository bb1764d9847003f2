"""Leases."""

from __future__ import annotations

from wharfinger.api.registry import Kind

LEASES = Kind("coordination.k8s.io", "Lease", "leases", generation=False)

KINDS = (LEASES,)
