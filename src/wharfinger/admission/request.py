"""The request that admission reviews, and the review."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from wharfinger.api.errors import ApiError, forbidden
from wharfinger.api.fields import FieldError
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document, Resource


class User(msgspec.Struct, frozen=True):
    """The authenticated user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    def info(self) -> Document:
        """The `UserInfo` of the authentication API, without empty fields."""
        info: Document = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            info["uid"] = self.uid
        if self.extra:
            info["extra"] = {key: list(values) for key, values in self.extra.items()}
        return info


SYSTEM = User("system:admin", ("system:masters", "system:authenticated"))
"""The user of our own components in process, and the administrator of the embedded server."""


def service_account(namespace: str, name: str) -> User:
    """The user of a service account, with its three groups."""
    return User(
        f"system:serviceaccount:{namespace}:{name}",
        ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"),
    )


class Request(msgspec.Struct):
    """A write. Mutating reviewers may change `object`, but never `old`."""

    operation: str  # CREATE, UPDATE, DELETE, CONNECT
    resource: Resource
    namespace: str
    name: str
    user: User
    object: Document | None = None
    old: Document | None = None
    subresource: str = ""
    dry_run: bool = False
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    audit: dict[str, str] | None = None  # the audit annotations of the request, if it is recorded
    verb: str = "update"  # of an UPDATE: update or patch

    def targets(self, resource: Resource) -> bool:
        """Whether this is a write of an object of that kind, and not of a subresource."""
        mine = self.resource
        return mine.plural == resource.plural and mine.group == resource.group and not self.subresource

    def refused(self, why: str) -> Review:
        return Review(forbidden(self.resource.group, self.resource.plural, self.name, why))


class Review(msgspec.Struct, frozen=True):
    """The result of a review: an error, or a pass with warnings. Changes are made to `request.object` itself."""

    denied: ApiError | None = None
    warnings: Sequence[str] = ()
    audit: dict[str, str] = msgspec.field(default_factory=dict)


PASS = Review()


class Reviewer(Protocol):
    """An admission plugin in process. All mutating reviewers run before the validating ones.

    A reviewer may have a method `concerns(group, plural, subresource)`; it is then called only for writes for which that
    returns True. The result is cached.

    A reviewer may have a method `repeats(request)`, which is asked after a pass: whether an equal request for an object of
    another name passes in the same way as long as no setting changes, that is, no object of a kind other than those that
    change all the time (`store.ledger.BUSY` and `Kind.churns`). Such requests need not be reviewed again.
    """

    def review(self, request: Request) -> Review: ...


class Checker(Protocol):
    """Finds faults of objects that need more than the object: other objects, the user, compiled expressions.

    They are reported together with those of the kind's own validation.
    """

    def concerns(self, group: str, plural: str, subresource: str) -> bool: ...

    def faults(self, request: Request) -> Iterable[FieldError]: ...


class PodReviewer:
    """Base of reviewers that concern pods only."""

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return plural == PODS.plural and not group and not subresource


class RepeatingPodReviewer(PodReviewer):
    """Base of reviewers that look at nothing but the pod and settings, and have no other effect."""

    def repeats(self, request: Request) -> bool:
        return True
