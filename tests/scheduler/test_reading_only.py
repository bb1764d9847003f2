"""A scheduler that only answers questions writes nothing, whatever it finds to do."""

from __future__ import annotations

import pytest
from tests.dashboard.test_following import reservation
from tests.scheduler.test_live import Stage, node, pod

from wharfinger.client.fence import FencedClient
from wharfinger.scheduler import profiles
from wharfinger.scheduler.scheduler import Scheduler, SchedulerOptions


@pytest.mark.parametrize("writes", [False, True])
def test_what_another_scheduler_left_undone(writes: bool) -> None:
    stage = Stage()
    written: list[int] = []
    try:
        stage.apply(node("n1"), reservation("kept", "1"), pod("a"))
        world = stage.world
        world._running.pop("scheduler").cancel()
        stage.apply(reservation("kept", "2"))
        settings = profiles.load({}, settings=world.configuration)
        client = FencedClient(stage.client, lambda: written.append(1))
        asked = Scheduler(client, world.clock, settings, world.registry, SchedulerOptions(writes=writes))
        stage.do(asked.load)
        stage.apply(reservation("kept", "3"))  # only a scheduler makes it larger
        world.loop.complete(asked.stop())
    finally:
        stage.world.close()
    assert bool(written) is writes
