"""A scheduler and controllers that wait for their turn: they know the cluster by then, and write nothing before."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.client.scripted import MemoryClient
from tests.client.virtual import run_virtual
from tests.scheduler.test_live import Stage, node, pod

from wharfinger.api.views import view
from wharfinger.client.controller import Controller, run_controllers
from wharfinger.client.events import EventRecorder
from wharfinger.client.fence import FencedClient
from wharfinger.client.informer import InformerSet
from wharfinger.client.leases import Leader, stand_by_and_lead
from wharfinger.client.timers import SystemClock
from wharfinger.scheduler import profiles
from wharfinger.scheduler.schedulable import SchedulerContext
from wharfinger.scheduler.scheduler import Scheduler
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.scheduling.items import ReservationItems


@pytest.fixture
def stage() -> Any:
    made = Stage()
    yield made
    made.world.close()


def test_a_scheduler_that_waits_follows_everything_and_acts_at_its_turn_alone(stage: Stage) -> None:
    world, writes, turn = stage.world, [], asyncio.Event()
    stage.apply(node("n1"), pod("a"), pod("large", "9"))
    assert world.scheduler is not None
    writer = FencedClient(stage.client, lambda: writes.append("one"))
    configuration = profiles.load({}, settings=world.configuration)
    waiting = Scheduler(
        writer, world.clock, configuration, world.registry, recorder=EventRecorder(writer, "second", world.clock)
    )
    task = world.loop.create_task(waiting.run(turn.wait))
    stage.apply(node("n2"), pod("b"), pod("c"))
    stage.delete("a")
    assert waiting.ready and writes == []
    assert waiting.pods_known == 3 and waiting.pod("default", "b") is not None
    world._running.pop("scheduler").cancel()  # the leader is gone, and others are not told
    stage.apply(pod("d", "3"), pod("e", "4"))
    assert stage.nodes_of("d", "e") == ["", ""] and writes == []
    loads = [informer.lists for informer in waiting._informers]

    async def begin() -> None:
        turn.set()

    stage.do(begin)
    assert all(stage.nodes_of("d")) and writes
    taken = dict.fromkeys(("n1", "n2"), 0.0)
    for name, cpu in (("b", 1), ("c", 1), ("d", 3), ("e", 4)):
        found = stage.nodes_of(name)[0]
        if found:
            taken[found] += cpu
    assert max(taken.values()) <= 4
    assert [informer.lists for informer in waiting._informers] == [count + 1 for count in loads]
    task.cancel()


class _Deaf:
    """A client whose watches tell nothing, as over a connection that broke without a word."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def stream(self, *_: Any) -> AsyncIterator[Any]:
        await asyncio.get_running_loop().create_future()
        yield


def test_what_the_former_leader_bound_and_no_watch_told_of_counts_at_the_turn(stage: Stage) -> None:
    world, turn = stage.world, asyncio.Event()
    stage.apply(node("n1"))
    waiting = Scheduler(_Deaf(stage.client), world.clock, profiles.load({}), world.registry)
    task = world.loop.create_task(waiting.run(turn.wait))
    stage.apply(node("n2", "1"))  # it lists
    stage.apply(pod("a", "3"))
    assert waiting.ready and waiting.pods_known == 0
    world._running.pop("scheduler").cancel()
    stage.apply(pod("b", "3"))

    async def begin() -> None:
        turn.set()

    stage.do(begin)
    assert stage.nodes_of("a", "b") == ["n1", ""]
    assert stage.scheduled("b")["message"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    task.cancel()


def test_a_reservation_that_cannot_be_scheduled_is_told_so_at_the_turn(stage: Stage) -> None:
    """Where another's definition let it pass: it has no owners."""
    stage.apply(node("n1"))
    assert stage.world.scheduler is not None
    nobodys = view({"metadata": {"name": "nobodys", "uid": "1"}, "spec": {"template": pod("t")}}, Reservation)
    items = ReservationItems(
        SchedulerContext(stage.client, stage.world.clock, stage.world.scheduler.engine, objects=[nobodys])
    )
    change = items.changed(None, nobodys)
    assert change.after is None and not list(change.instructions)
    assert [patch.name for patch in items.synced()] == ["nobodys"]
    assert not list(items.changed(nobodys, nobodys).instructions), "once"


class _Noted(Controller[str]):
    name = "noted"

    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self._told = told
        self.queue.add("known before")

    async def reconcile(self, key: str) -> None:
        self._told.append(key)


def test_controllers_work_on_what_they_heard_of_when_it_is_their_turn() -> None:
    async def main() -> None:
        told: list[str] = []
        turn = asyncio.Event()
        controller = _Noted(told)
        task = asyncio.create_task(run_controllers([controller], InformerSet(MemoryClient()), turn.wait))
        await asyncio.sleep(5)
        controller.queue.add("heard of while waiting")
        await asyncio.sleep(5)
        assert told == []
        turn.set()
        await asyncio.sleep(1)
        assert told == ["known before", "heard of while waiting"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main())


def candidate(client: MemoryClient) -> Leader:
    loop = asyncio.get_running_loop()
    return Leader(client, "lock", "ns", "me", SystemClock(), steady=loop.time, rng=random.Random(0))


def hold(client: MemoryClient, version: str) -> None:
    client.objects["leases", "ns", "lock"] = {
        "metadata": {"name": "lock", "namespace": "ns", "resourceVersion": version},
        "spec": {"holderIdentity": "another", "leaseDurationSeconds": 15, "renewTime": version},
    }


def test_work_is_begun_before_the_lease_is_won_and_anew_when_it_was_lost() -> None:
    async def main() -> None:
        client = MemoryClient()
        hold(client, "first")
        leader = candidate(client)
        said: list[str] = []

        async def work(turn: Callable[[], Awaitable[object]]) -> None:
            said.append("begins")
            try:
                await turn()
                said.append("leads")
                await asyncio.Event().wait()
            finally:
                said.append("ends")

        async def always() -> None:
            while not await stand_by_and_lead(leader, work):
                pass

        task = asyncio.create_task(always())
        await asyncio.sleep(1)
        assert said == ["begins"]
        await asyncio.sleep(17)
        assert said == ["begins", "leads"] and leader.leading
        hold(client, "second")
        await asyncio.sleep(5)
        assert said == ["begins", "leads", "ends", "begins"] and not leader.leading
        await asyncio.sleep(17)
        assert said[-1] == "leads"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert said[-1] == "ends" and client.objects["leases", "ns", "lock"]["spec"]["holderIdentity"] == ""

    run_virtual(main())


def test_work_that_breaks_while_it_waits_ends_the_process() -> None:
    async def main() -> None:
        client = MemoryClient()
        hold(client, "first")

        async def work(turn: Callable[[], Awaitable[object]]) -> None:
            await asyncio.sleep(1)
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await stand_by_and_lead(candidate(client), work)
        assert client.objects["leases", "ns", "lock"]["spec"]["holderIdentity"] == "another"

    run_virtual(main())
