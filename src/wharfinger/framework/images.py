"""Which nodes have which container images."""

from __future__ import annotations

from wharfinger.api.views import Node


class ImageIndex:
    """Written by the node table. `version` moves when scores that follow from it may change."""

    def __init__(self) -> None:
        self._images: dict[str, tuple[int, set[int]]] = {}
        self.version = 0

    def get(self, name: str) -> tuple[int, set[int]] | None:
        """The size of an image and the rows that have it."""
        return self._images.get(name)

    def add(self, row: int, node: Node) -> None:
        for image in node.status.images:
            for name in image.names:
                size, rows = self._images.get(name, (image.size_bytes, set()))
                rows.add(row)
                self._images[name] = (size, rows)
        if node.status.images:
            self.version += 1

    def remove(self, row: int, node: Node) -> None:
        for image in node.status.images:
            for name in image.names:
                _, rows = self._images.get(name, (0, set()))
                rows.discard(row)
                if not rows:
                    self._images.pop(name, None)
        if node.status.images:
            self.version += 1

    def node_count_changed(self) -> None:
        self.version += 1
