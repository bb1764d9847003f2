"""The view of a Lease."""

from __future__ import annotations

from msgspec import field

from wharfinger.api.views.base import View
from wharfinger.api.views.meta import ObjectMeta


class LeaseSpec(View, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(View, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: LeaseSpec = field(default_factory=LeaseSpec)
