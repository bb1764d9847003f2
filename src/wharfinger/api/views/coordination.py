"""The view of a Lease."""

from __future__ import annotations

from msgspec import field

from wharfinger.api.views.base import View
from wharfinger.api.views.meta import ObjectView


class LeaseSpec(View, frozen=True):
    lease_duration_seconds: int | None = None
    renew_time: str = ""


class Lease(ObjectView, frozen=True):
    spec: LeaseSpec = field(default_factory=LeaseSpec)
