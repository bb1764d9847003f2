"""ImageLocality: prefers nodes that already have the pod's images."""

from __future__ import annotations

import numpy as np

from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.plugin import MAX_SCORE, Plugin, Prepared, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status
from wharfinger.framework.tables import Tables

_MIB = 1024 * 1024
_SMALLEST = 23 * _MIB  # smaller sums score 0
_LARGEST = 1000 * _MIB  # for each container, since 1.37 also for each image volume


class ImageLocality(Plugin):
    name = "ImageLocality"
    points = frozenset({"score"})
    position = 170

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        spec = shape.pod.spec
        containers = (*spec.init_containers, *spec.containers)
        references = [volume.image.reference for volume in spec.volumes if volume.image is not None]
        names = [normalized(name) for name in (*(container.image for container in containers), *references)]
        counted = names if self.tables.kubernetes >= KubernetesVersion.V1_37 else containers
        return _Images(self.tables, names, len(counted))


class _Images(Prepared):
    scope = Scope.CLUSTER
    scores = bounded = True

    def __init__(self, tables: Tables, names: list[str], counted: int) -> None:
        super().__init__()
        self._tables = tables
        self._names = names
        self._counted = counted
        self._scores: Ints | None = None  # [row]; None: all are 0
        self._version = -1

    @property
    def version(self) -> int:
        return self._tables.images.version

    def score(self, rows: Rows) -> Ints:
        self._refresh()
        return np.zeros(len(rows), dtype=np.int64) if self._scores is None else self._scores[rows]

    def score_row(self, row: int) -> int:
        self._refresh()
        return 0 if self._scores is None else int(self._scores[row])

    def _refresh(self) -> None:
        tables = self._tables
        if self._version == tables.images.version and (self._scores is None or len(self._scores) == tables.capacity):
            return
        self._version = tables.images.version
        known = [found for name in self._names if (found := tables.images.get(name)) is not None]
        if not known:
            self._scores = None
            return
        sizes: Ints = np.zeros(tables.capacity, dtype=np.int64)
        for size, holders in known:
            # Images that many nodes have count more, so that pods do not pile up on the few nodes that have a rare image.
            sizes[list(holders)] += int(float(size) * (len(holders) / tables.node_count))
        largest = _LARGEST * self._counted
        # Clamped as upstream, the lower bound first.
        clamped = np.where(sizes < _SMALLEST, _SMALLEST, np.minimum(sizes, largest))
        self._scores = MAX_SCORE * (clamped - _SMALLEST) // (largest - _SMALLEST)


def normalized(name: str) -> str:
    """The image name with a tag, as nodes report it."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


plugins = (ImageLocality,)
