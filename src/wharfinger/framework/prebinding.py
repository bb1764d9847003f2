"""What must be so before a pod is bound, described: the plugin says what to write and when that has taken effect, the
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
    """A merge patch of an object; with a resource version in it, it fails when the object changed meanwhile."""

    kind: str
    namespace: str
    name: str
    patch: Mapping[str, Any]


class Preparation:
    """The writes come first, in order, one failure ending it. Then `check` is asked, again whenever one of the objects
    in `watched` changed, until it has an answer or `timeout` seconds passed."""

    writes: tuple[Write, ...] = ()
    timeout: float = 600.0

    def check(self) -> Status | None:
        """Success, an error that ends the binding, or None to go on waiting."""
        raise NotImplementedError

    def expired(self) -> Status:
        """What is said when the time is over."""
        return error("context deadline exceeded")

    def watched(self) -> Collection[Watched]:
        """The objects whose changes can change the answer; asked for after every check."""
        return ()
