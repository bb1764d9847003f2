"""What is asked of an API server, and what a reviewer answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from wharfinger.api.errors import ApiError
from wharfinger.api.registry import Document, Resource


@dataclass(frozen=True, slots=True)
class User:
    """Who makes a request, as authentication found out."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict)


SYSTEM = User("system:admin", ("system:masters", "system:authenticated"))
"""Who the product's own parts are in process, and the admin of the embedded server."""


def service_account(namespace: str, name: str) -> User:
    """The user that a service account is, with its three groups."""
    return User(
        f"system:serviceaccount:{namespace}:{name}",
        ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"),
    )


@dataclass(slots=True)
class Request:
    """One write on its way in. `object` may be changed by mutating reviewers; `old` never is."""

    operation: str  # CREATE, UPDATE, DELETE, CONNECT
    resource: Resource
    namespace: str
    name: str
    user: User
    object: Document | None = None
    old: Document | None = None
    subresource: str = ""
    dry_run: bool = False
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Review:
    """A reviewer's answer: a refusal, or a pass with warnings; what it changed, it changed in `request.object`."""

    denied: ApiError | None = None
    warnings: Sequence[str] = ()
    audit: dict[str, str] = field(default_factory=dict)


PASS = Review()


class Reviewer(Protocol):
    """One concern of admission that decides in process. Mutating ones run before all validating ones.

    A reviewer may have a method `concerns(group, plural, subresource)` that says, once and for all, which writes it has
    anything to say about; it is asked for no others then.
    """

    def review(self, request: Request) -> Review: ...
