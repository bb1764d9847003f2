"""The work queue: deduplication, exclusive processing, delayed additions and back-off."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.virtual import run_virtual

from wharfinger.client.memory import gc_paused
from wharfinger.client.timers import in_background
from wharfinger.client.workqueue import QueueClosed, WorkQueue, _DueKeys


def test_a_key_added_twice_is_handed_out_once() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        queue.add("b")
        queue.add("a")
        assert [await queue.get(), await queue.get()] == ["a", "b"]
        assert len(queue) == 0

    run_virtual(main())


def test_a_key_added_while_being_processed_is_queued_again_when_done() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        assert await queue.get() == "a"
        queue.add("a")
        queue.add("b")
        assert list(queue._ready) == ["b"]
        queue.done("a")
        assert [await queue.get(), await queue.get()] == ["b", "a"]

    run_virtual(main())


def test_retries_back_off_until_the_key_is_forgotten() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(base=1.0, limit=5.0)
        loop = asyncio.get_running_loop()
        waits = []
        for _ in range(5):
            before = loop.time()
            queue.retry("a")
            queue.done(await queue.get())
            waits.append(round(loop.time() - before, 3))
        assert waits == [1, 2, 4, 5, 5]
        queue.forget("a")
        assert queue.retry("a") == 1.0

    run_virtual(main())


def test_the_earliest_delayed_add_wins() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for delay in (5, 2, 9):
            queue.add_after("a", delay)
        queue.done(await queue.get())
        assert asyncio.get_running_loop().time() == 2
        await asyncio.sleep(10)
        assert not len(queue)

    run_virtual(main())


@pytest.mark.parametrize("background", [False, True])
def test_only_a_delayed_add_in_the_background_uses_a_background_timer(background: bool) -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 5, background=background)
        (due,) = queue._due.values()
        assert due.timer is not None
        assert due.timer._context.run(in_background) is background

    run_virtual(main())


def test_keys_that_are_due_together_share_a_timer_and_keep_their_order() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for key in ("c", "a", "b", "d"):
            queue.add_after(key, 5)
        queue.add_after("d", 2)
        queue.add_after("a", 7)
        queue.add_after("e", 2, background=True)
        assert sorted(len(due.keys) for due in queue._due.values()) == [1, 1, 3]
        found = []
        for _ in range(5):
            found.append((await queue.get(), asyncio.get_running_loop().time()))
            queue.done(found[-1][0])
        assert found == [("d", 2), ("e", 2), ("c", 5), ("a", 5), ("b", 5)]
        assert not queue._later and not queue._due

    run_virtual(main())


def test_a_timer_ends_with_the_last_key_that_is_due_then() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 5)
        queue.add_after("b", 5)
        queue.add_after("a", 1)
        (later,) = [due for due in queue._due.values() if due.when == 5]
        assert later.timer is not None and not later.timer.cancelled()
        queue.add_after("b", 1)
        assert later.timer.cancelled()
        assert [due.when for due in queue._due.values()] == [1]

    run_virtual(main())


def test_the_memory_of_a_timer_that_fired_is_free_without_a_collection_of_cycles() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 0.001)
        assert await queue.get() == "a"
        await asyncio.sleep(0.001)

    with gc_paused():
        before = _due_keys()
        asyncio.run(main())
        assert _due_keys() == before


def _due_keys() -> int:
    return sum(isinstance(each, _DueKeys) for each in gc.get_objects())


def test_a_key_at_the_retry_limit_does_not_keep_a_simulation_busy() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(base=1.0, limit=2.0)
        queue.retry("a")
        assert [slot[1] for slot in queue._later] == [False]
        queue.done(await queue.get())
        queue.retry("a")
        assert [slot[1] for slot in queue._later] == [True]

    run_virtual(main())


def test_shut_down_lets_workers_drain_the_queue() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        idle = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.shut_down()
        with pytest.raises(QueueClosed):
            await idle
        queue.add("late")
        with pytest.raises(QueueClosed):
            await queue.get()

    run_virtual(main())


def test_a_cancelled_worker_leaves_its_key_to_another() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
        first.cancel()
        assert await second == "a"

    run_virtual(main())


@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 3)), min_size=1, max_size=40),
    workers=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_no_change_is_lost_and_no_key_is_processed_twice_at_a_time(
    steps: list[tuple[str, float]], workers: int
) -> None:
    """Whatever the timing, the last processing of a key starts at or after its last addition."""

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        loop = asyncio.get_running_loop()
        busy: Counter[str] = Counter()
        started: dict[str, float] = {}
        added: dict[str, float] = {}

        async def work() -> None:
            while True:
                key = await queue.get()
                busy[key] += 1
                assert busy[key] == 1
                started[key] = loop.time()
                await asyncio.sleep(1.5)
                busy[key] -= 1
                queue.done(key)

        tasks = [asyncio.create_task(work()) for _ in range(workers)]
        for key, pause in steps:
            queue.add(key)
            added[key] = loop.time()
            await asyncio.sleep(pause)
        await asyncio.sleep(1000)
        assert all(started[key] >= added[key] for key in added)
        assert not len(queue) and not queue.in_process
        for task in tasks:
            assert not task.done(), task
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(main())


def test_a_retry_that_has_reached_its_longest_delay_does_not_keep_a_simulation_busy() -> None:
    async def main() -> None:
        for limit in (1.0, None):
            queue: WorkQueue[str] = WorkQueue(base=0.25, limit=4.0)
            seen = []
            queue.add("a")
            for _ in range(6):
                key = await queue.get()
                delay = queue.retry(key, limit=limit)
                seen.append((delay, [background for _, background, _ in queue._later]))
                queue.done(key)
            top = limit or 4.0
            assert seen == [(delay, [delay >= top]) for delay in (min(top, 0.25 * 2**n) for n in range(6))]

    run_virtual(main())


def test_keys_at_the_limit_of_their_back_off_can_be_tried_at_once() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(base=1.0, limit=4.0)
        for _ in range(3):
            queue.retry("often")
        queue.retry("once")
        queue.add_after("expiry", 60.0, background=True)
        assert queue.retry_now() == 1
        assert [await queue.get(), len(queue)] == ["often", 0]
        assert queue.retry_now() == 0

    run_virtual(main())
