"""Answers of one plugin for many shapes at once, as arrays over rows and shapes.

Where pods of many shapes come in turn, every row that changes has to be evaluated for each of them. Answers that agree in
what they read (`Prepared.joint_key`) do that together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from wharfinger.framework.columns import Bools, Ints


class JointAnswers(ABC):
    """Exactly what the answers say one by one. Used only until a column grows, so it may hold on to the cells of columns."""

    @abstractmethod
    def possible(self) -> bool:
        """Whether the nodes are such that the answers can be computed together; asked again when nodes changed."""

    def accepts(self, rows: Sequence[int]) -> Bools | None:
        """Which rows pass, [row, shape]; None if all rows pass for all shapes."""
        return None

    @abstractmethod
    def scores(self, rows: Sequence[int]) -> Ints:
        """Raw scores, [row, shape], in an array that the caller may overwrite."""
