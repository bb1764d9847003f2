"""Waiting until an informer shows what the controller itself has written."""

from __future__ import annotations

from collections.abc import Hashable

from wharfinger.api.registry import Document
from wharfinger.client.informer import Informer


class WrittenVersions:
    """The last versions that a controller wrote, by key. Acting on an older state would create the same object twice."""

    def __init__(self, informer: Informer[Document]) -> None:
        self._informer = informer
        self._versions: dict[Hashable, int] = {}

    def wrote(self, key: Hashable, document: Document) -> None:
        version = document["metadata"].get("resourceVersion") or ""
        if version.isdigit():
            self._versions[key] = max(int(version), self._versions.get(key, 0))

    def seen(self, key: Hashable) -> bool:
        """Whether the informer has caught up with our last write for a key."""
        wrote = self._versions.get(key)
        if wrote is None:
            return True
        if self._informer.version < wrote:
            return False
        del self._versions[key]
        return True
