"""The heap of the best rows: after every change it finds the same row as a search over all values."""

from __future__ import annotations

import random

import pytest

from wharfinger.engine.front import Front
from wharfinger.framework.columns import IntColumn

WORST = -(1 << 63)


def best_of_all(values: IntColumn) -> int:
    row = int(values.view.argmax())
    return row if values.cells[row] != WORST else -1


@pytest.mark.parametrize(("rows", "distinct"), [(1, 3), (40, 5), (700, 4), (700, 10_000), (40_000, 10_000)])
def test_the_best_row_is_the_first_with_the_largest_value_after_every_change(rows: int, distinct: int) -> None:
    choice = random.Random(rows + distinct)
    values = IntColumn(rows, WORST)
    for row in range(rows):
        values.cells[row] = choice.randrange(distinct)
    front = Front(values, WORST)
    for _ in range(2_000):
        best = front.best()
        assert best == best_of_all(values)
        # As when pods are placed: mostly the value of the best row drops; sometimes another row changes or is refused.
        row = best if best >= 0 and choice.random() < 0.7 else choice.randrange(rows)
        lower = max(values.cells[row] - 1, WORST)
        values.cells[row] = choice.choice([WORST, lower, choice.randrange(distinct)])
        front.changed(row, values.cells[row])


def test_without_feasible_rows_there_is_no_best_row_until_one_recovers() -> None:
    values = IntColumn(3, WORST)
    front = Front(values, WORST)
    assert front.best() == -1
    values.cells[2] = -7
    front.changed(2, -7)
    assert front.best() == 2
