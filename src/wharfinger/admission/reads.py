"""Synchronous reads for reviewers in process: the store's `peek` and `scan`, and caches over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from wharfinger.api.registry import Document, Resource
from wharfinger.api.views import decode

T = TypeVar("T")


class ObjectVersion(Protocol):
    """An object at one version. Immutable: a new version is a new value."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    def document(self) -> Document: ...


class Reads(Protocol):
    def peek(self, resource: Resource, name: str, namespace: str = "") -> ObjectVersion | None: ...

    def scan(self, resource: Resource, namespace: str = "") -> Iterable[ObjectVersion]: ...


class Derived(Generic[T]):
    """A value computed from all objects of a kind, and computed again only if one of them changed."""

    def __init__(self, reads: Reads, resource: Resource, make: Callable[[Sequence[ObjectVersion]], T]) -> None:
        self._reads = reads
        self._resource = resource
        self._make = make
        self._seen: list[ObjectVersion] | None = None
        self._revision: Callable[[], int] | None = None
        self._held = -1  # the revision for which the value was computed
        self._value: T

    def get(self) -> T:
        if self._revision is None:
            self._revision = _revisions(self._reads, self._resource)
        revision = self._revision()
        if revision >= 0 and revision == self._held:
            return self._value
        # Stored objects are immutable, so comparing the lists by identity is exact and fast.
        current = list(self._reads.scan(self._resource))
        if self._seen is None or current != self._seen:
            self._value = self._make(current)
            self._seen = current
        self._held = revision
        return self._value


def _revisions(reads: Reads, resource: Resource) -> Callable[[], int]:
    """A function that returns the revision of a kind; -1 if `reads` has no revisions, which disables caching by it."""
    revisions: Callable[[Resource], Callable[[], int]] | None = getattr(reads, "revisions", None)
    return (lambda: -1) if revisions is None else revisions(resource)


class Views(Generic[T]):
    """Views of a kind's objects by namespace, decoded again only if an object of the kind changed."""

    _MOST = 4096  # namespaces

    def __init__(self, reads: Reads, resource: Resource, as_type: type[T]) -> None:
        self._reads = reads
        self._resource = resource
        self._type = as_type
        self._revision: Callable[[], int] | None = None
        self._known: dict[str, tuple[int, Sequence[T]]] = {}

    def get(self, namespace: str) -> Sequence[T]:
        if self._revision is None:
            self._revision = _revisions(self._reads, self._resource)
        revision = self._revision()
        known = self._known.get(namespace)
        if known is not None and known[0] == revision >= 0:
            return known[1]
        found = [decode(stored.data, self._type) for stored in self._reads.scan(self._resource, namespace)]
        if len(self._known) >= self._MOST:
            self._known.clear()
        self._known[namespace] = (revision, found)
        return found


class Changes:
    """The objects of a kind that changed since the last call."""

    def __init__(self, reads: Reads, resource: Resource) -> None:
        self._reads = reads
        self._resource = resource
        self._seen: list[ObjectVersion] = []

    def take(self) -> tuple[list[ObjectVersion], list[ObjectVersion]]:
        """Objects that are new or changed, and objects that were deleted."""
        current = list(self._reads.scan(self._resource))
        if current == self._seen:
            return [], []
        before = {(stored.namespace, stored.name): stored for stored in self._seen}
        changed = [stored for stored in current if before.pop((stored.namespace, stored.name), None) is not stored]
        self._seen = current
        return changed, list(before.values())
