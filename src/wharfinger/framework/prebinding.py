"""What must happen before a pod is bound, as data: a plugin says what to write and how to tell that it took effect; the
scheduler's binder writes and waits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from wharfinger.framework.status import Status, error

Watched = tuple[str, str, str]
"""Kind, namespace and name of an object."""


@dataclass(frozen=True, slots=True)
class Write:
    """A merge patch of an object. If it contains a resource version, it fails when the object has changed since."""

    kind: str
    namespace: str
    name: str
    patch: Mapping[str, Any]


class Preparation:
    """Work to be done before the bind. First come the writes, in order; the first failure ends the bind. Then `check` is
    called, and again whenever one of the `watched` objects changes, until it returns a status or `timeout` seconds passed.
    """

    writes: tuple[Write, ...] = ()
    timeout: float = 600.0

    def check(self) -> Status | None:
        """Success, an error that ends the bind, or None to keep waiting."""
        raise NotImplementedError

    def expired(self) -> Status:
        """The error after the timeout."""
        return error("context deadline exceeded")

    def watched(self) -> Collection[Watched]:
        """The objects whose changes can change the result of `check`; called after every check."""
        return ()
