"""Scores that depend only on the topology domain of a row."""

from __future__ import annotations

import numpy as np

from wharfinger.framework.columns import Ints


class DomainScores:
    """Maps scores of domains to a fixed list of rows, given the domain code of each row."""

    __slots__ = ("_by_row", "_scores", "codes", "index")

    def __init__(self, codes: Ints) -> None:
        present, self.index = np.unique(codes, return_inverse=True)
        self.codes: list[int] = present.tolist()  # the distinct domains; `ABSENT` for rows without one
        self._scores: list[int] = []  # [domain]
        self._by_row: Ints | None = None

    def by_row(self, scores: list[int]) -> Ints:
        """The score of each row, given those of `codes`. Returns the same array while the scores are the same."""
        if self._by_row is None or scores != self._scores:
            self._scores, self._by_row = scores, np.array(scores, dtype=np.int64).take(self.index)
        return self._by_row
