"""Everything the engine keeps for one shape."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.engine.caches import CandidateCache, VerdictCache
from wharfinger.engine.cohort import Cohorts
from wharfinger.engine.favoured import FavouredRows, favouring
from wharfinger.engine.preparation import Points, PreparedShape
from wharfinger.engine.values import RowValues
from wharfinger.framework.shapes import Shape
from wharfinger.framework.tables import Tables


class Answers:
    """What the plugins of a profile prepared for a shape, and what was computed from that so far."""

    BASE = 1 << 15  # bytes without anything for rows

    __slots__ = ("candidates", "counted", "favoured", "prepared", "shape", "values", "verdicts")

    def __init__(
        self, tables: Tables, shape: Shape, points: Points, weights: Mapping[str, int], cohorts: Cohorts
    ) -> None:
        self.shape = shape
        self.prepared = PreparedShape(shape, points, weights)
        self.values = RowValues(tables, self.prepared, cohorts)
        plugin = favouring(self.prepared) if self.prepared.overlays else None
        self.favoured = None if plugin is None else FavouredRows(tables, self.prepared, plugin)
        self.verdicts = VerdictCache()  # rows with overlays or nominated pods
        self.candidates: dict[int, CandidateCache] = {}  # by the priority of the preemptor
        self.counted = 0  # written by the profile: the last `size`

    def size(self) -> int:
        """The bytes that the answers take, approximately."""
        favoured = 0 if self.favoured is None else self.favoured.size()
        return self.BASE + self.values.size() + favoured + sum(each.size() for each in self.candidates.values())

    def close(self) -> None:
        """The answers are dropped."""
        self.values.close()
        self.prepared.close()
