"""What must happen before a pod is bound, as data: a plugin says what to write and how to tell that it took effect; the
scheduler's binder writes and waits."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from typing import Any, Literal

import msgspec

from wharfinger.framework.status import Status, error

Watched = tuple[str, str, str]
"""Kind, namespace and name of an object."""


Verb = Literal["create", "patch", "get", "delete"]


class Write(msgspec.Struct, frozen=True):
    """A merge patch of an object, or of one of its subresources. If it contains a resource version, it fails when the
    object has changed since. With another verb: the object to create, or its latest version, or its deletion."""

    kind: str
    namespace: str
    name: str
    patch: Mapping[str, Any] = msgspec.field(default_factory=dict)
    subresource: str = ""
    verb: Verb = "patch"


Steps = Generator[Write, Mapping[str, Any], None]
"""Writes one after the other. Each gets the object that the server returns, or the exception that the client raises."""


class StepFailed(Exception):
    """A step cannot be carried out: the pod is not bound."""


class Preparation:
    """Work to be done before the bind. First come the steps, in order; the first failure ends the bind. Then `check` is
    called, and again whenever one of the `watched` objects changes, until it returns a status or `timeout` seconds passed.
    """

    writes: tuple[Write, ...] = ()
    timeout: float = 600.0

    def steps(self) -> Steps:
        """What to write, in order."""
        for write in self.writes:  # noqa: UP028 - a tuple does not take what is sent back
            yield write

    def undo(self) -> Steps:
        """What to write after all if the pod is not bound."""
        yield from ()

    def waiting_for(self) -> tuple[str, str] | None:
        """The reason and message of an event on the pod, once the steps are done and there is something to wait for."""
        return None

    def check(self) -> Status | None:
        """Success, an error that ends the bind, or None to keep waiting."""
        raise NotImplementedError

    def expired(self) -> Status:
        """The error after the timeout."""
        return error("context deadline exceeded")

    def watched(self) -> Collection[Watched]:
        """The objects whose changes can change the result of `check`; called after every check."""
        return ()
