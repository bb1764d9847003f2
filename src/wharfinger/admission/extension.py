"""How a system takes part in admission in process: what it is given, and what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from wharfinger.admission.quota import QuotaExtension, StoredObjects
from wharfinger.admission.rbac import Attributes, RbacIndex
from wharfinger.admission.request import Reviewer
from wharfinger.api.configuration import Configuration
from wharfinger.api.registry import Document

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from wharfinger.client.interface import Client


class AdmissionContext(msgspec.Struct, frozen=True):
    """What reviewers in process may read."""

    objects: StoredObjects
    now: Callable[[], float]
    configuration: Configuration
    rbac: Callable[[], RbacIndex]  # the roles and bindings as they are now
    metrics: CollectorRegistry | None = None  # of a running server

    def authorize(self, asked: Attributes) -> bool:
        return self.rbac().allowed(asked).allowed


class BindCompletion(msgspec.Struct, frozen=True):
    """Completes a pod in the write that binds it. Pods whose JSON has none of the names need no completion."""

    complete: Callable[[Document], None]
    names: tuple[bytes, ...]


class SystemReviewers(msgspec.Struct, frozen=True):
    """The reviewers of one system, by phase. Each sequence is in the order in which they run."""

    before_stock: Sequence[Reviewer] = ()  # mutating, before the stock reviewers
    mutating: Sequence[Reviewer] = ()  # after them
    validating: Sequence[Reviewer] = ()
    final: Sequence[Reviewer] = ()  # in the same step as the write, before quota is counted
    quota: QuotaExtension | None = None
    on_bind: BindCompletion | None = None
    upkeep: Callable[[Client], Awaitable[None]] | None = None  # called now and then by a running server
