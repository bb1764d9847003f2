"""No pod that fits waits longer than its back-off, whatever happened before."""

import pytest
from tests.scheduler.histories import History


@pytest.mark.parametrize("batch", range(10))
def test_when_things_are_quiet_nothing_waits_that_fits(batch: int) -> None:
    for seed in range(batch * 20, batch * 20 + 20):
        History(seed).play(rounds=4, steps=8)
