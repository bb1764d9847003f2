"""Listeners that are told of pods on nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from wharfinger.framework.changes import Versions
from wharfinger.framework.shapes import Shape

if TYPE_CHECKING:
    from wharfinger.framework.tables import PodOnNode


class PodListener(Protocol):
    """Told of pods that come to known nodes and leave them."""

    def concerned(self, shape: Shape) -> bool:
        """Whether to be told of pods of this shape that have no annotations; pods with annotations are always reported.
        When the answer changes, call `Tables.changed(listeners=True)`."""
        ...

    def pod_added(self, pod: PodOnNode) -> None: ...
    def pod_removed(self, pod: PodOnNode) -> None: ...
    def pod_replaced(self, pod: PodOnNode) -> None: ...


class ForeignPodListener(Protocol):
    """Told of pods on nodes that are not ours."""

    def foreign_pod_added(self, pod: PodOnNode, labels: Mapping[str, str]) -> None:
        """`labels` are those of the node."""

    def foreign_pod_removed(self, pod: PodOnNode) -> None: ...


class PodListeners:
    """The listeners in the order in which they are told. Each shape caches which of them its pods concern."""

    __slots__ = ("_all", "_versions")

    def __init__(self, versions: Versions) -> None:
        self._all: list[PodListener] = []
        self._versions = versions

    def add(self, listener: PodListener, *, first: bool = False) -> None:
        self._all.insert(0 if first else len(self._all), listener)

    def concerned(self, pod: PodOnNode) -> list[PodListener]:
        if pod.pod.metadata.annotations:
            return self._all
        shape = pod.shape
        if shape.listeners_version != self._versions.listeners:
            shape.listeners = [each for each in self._all if each.concerned(shape)]
            shape.listeners_version = self._versions.listeners
        return shape.listeners
