"""The virtual loop: time jumps, idleness is seen, background timers do not hold it up."""

import asyncio
import time

import pytest

from wharfinger.client.activity import ACTIVITY
from wharfinger.client.controller import Controller
from wharfinger.client.timers import background_sleep
from wharfinger.simulate.loop import TURNS, TURNS_PER_OBJECT, Deadlock, NoProgress, VirtualLoop


def test_thirty_days_of_sleeping_take_no_time() -> None:
    loop = VirtualLoop()
    woken = []

    async def sleeper() -> None:
        for day in range(30):
            await asyncio.sleep(24 * 3600)
            woken.append((day, loop.time()))

    started = time.monotonic()
    loop.create_task(sleeper())
    loop.run_until_idle()
    loop.shut_down()
    assert woken[-1] == (29, 30 * 24 * 3600.0)
    assert time.monotonic() - started < 60


def test_idle_means_only_background_timers_are_left() -> None:
    loop = VirtualLoop()
    seen = []

    async def renewing() -> None:
        while True:
            await background_sleep(10)
            seen.append(("renewed", loop.time()))

    async def working() -> None:
        await asyncio.sleep(25)
        seen.append(("worked", loop.time()))

    loop.create_task(renewing())
    loop.create_task(working())
    loop.run_until_idle()
    assert seen == [("renewed", 10.0), ("renewed", 20.0), ("worked", 25.0)]
    assert loop.time() == 25.0
    loop.run_until_idle()
    assert loop.time() == 25.0
    loop.run_to(40)
    assert seen[-2:] == [("renewed", 30.0), ("renewed", 40.0)]
    assert loop.time() == 40.0
    loop.shut_down()


def test_cancelled_timers_do_not_keep_it_busy() -> None:
    loop = VirtualLoop()
    handle = loop.call_later(100, print)
    loop.call_later(1, handle.cancel)
    loop.run_until_idle()
    assert loop.time() == 1.0
    loop.shut_down()


def test_running_to_a_moment_with_nothing_to_do_still_gets_there() -> None:
    loop = VirtualLoop()
    loop.run_to(77)
    assert loop.time() == 77.0
    loop.run_to(5)
    assert loop.time() == 77.0
    loop.shut_down()


def test_until_limits_an_idle_run() -> None:
    loop = VirtualLoop()

    async def ticking() -> None:
        while True:
            await asyncio.sleep(3)

    loop.create_task(ticking())
    loop.run_until_idle(until=10)
    assert loop.time() == 10.0
    loop.shut_down()


def test_waiting_for_what_never_comes_is_said() -> None:
    loop = VirtualLoop()
    with pytest.raises(Deadlock):
        loop.complete(asyncio.Event().wait())
    loop.shut_down()


def test_a_task_on_the_loop_can_wait_for_stillness_idleness_and_the_next_moment() -> None:
    loop = VirtualLoop()
    seen: list[float] = []

    async def working() -> None:
        for _ in range(3):
            await asyncio.sleep(2)
            seen.append(loop.time())

    async def driver() -> list[tuple[float, int]]:
        notes = []
        await loop.still()
        notes.append((loop.time(), len(seen)))
        await loop.next_moment(until=100)
        notes.append((loop.time(), len(seen)))
        await loop.idle()
        notes.append((loop.time(), len(seen)))
        await loop.moment(50)
        notes.append((loop.time(), len(seen)))
        await loop.next_moment(until=60)
        notes.append((loop.time(), len(seen)))
        return notes

    loop.create_task(working())
    assert loop.complete(driver()) == [(0, 0), (2, 1), (6, 3), (50, 3), (60, 3)]
    loop.shut_down()


class Restless(Controller[str]):
    """Queues its key again whenever it has processed it."""

    name = "restless"

    async def reconcile(self, key: str) -> None:
        self.queue.add(key)


@pytest.mark.parametrize("way", ["idle", "still", "moment", "next_moment", "run_until_idle", "run_to"])
def test_work_without_end_at_one_instant_is_an_error_that_names_the_loop(way: str) -> None:
    loop = VirtualLoop()
    controller = Restless()

    async def begin() -> None:
        controller.queue.add("default/web")
        loop.create_task(controller.run())

    loop.complete(begin())
    with pytest.raises(NoProgress, match=r"restless: default/web \(\d+ times\)"):
        if way == "run_until_idle":
            loop.run_until_idle()
        elif way == "run_to":
            loop.run_to(10)
        else:
            waits = {"idle": loop.idle, "still": loop.still}
            moments = {"moment": loop.moment, "next_moment": loop.next_moment}
            loop.complete(waits[way]() if way in waits else moments[way](10.0))
    assert ACTIVITY.counted is None, "nothing is recorded any more"
    loop.shut_down()


def test_much_work_at_one_instant_is_no_error_in_a_large_cluster() -> None:
    size = 100
    loop = VirtualLoop(lambda: size)
    turns = TURNS + TURNS_PER_OBJECT * size

    async def working() -> None:
        for _ in range(turns - 10):
            await asyncio.sleep(0)

    loop.create_task(working())
    loop.run_until_idle()
    loop.create_task(working())
    loop.run_until_idle()
    loop.shut_down()


def test_whoever_acts_from_outside_may_take_any_number_of_steps() -> None:
    loop = VirtualLoop()

    async def applying() -> str:
        for _ in range(2 * TURNS):
            await asyncio.sleep(0)
        return "done"

    assert loop.complete(applying()) == "done"
    loop.shut_down()
