"""The controller base: errors are retried, conflicts soon, and a failing key does not affect the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry
from tests.client.scripted import ScriptedClient
from tests.client.virtual import run_virtual

from wharfinger.api.errors import Conflict, ServiceUnavailable, TooManyRequests
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.client.controller import Controller, run_controllers
from wharfinger.client.informer import InformerSet
from wharfinger.client.metrics import ControllerMetrics
from wharfinger.http.metrics import exposition


class Failing(Controller[str]):
    name = "failing"

    def __init__(self, faults: dict[str, list[Exception]], metrics: CollectorRegistry | None = None) -> None:
        super().__init__(observer=ControllerMetrics(metrics) if metrics else None)
        self.faults = faults
        self.attempts: list[tuple[str, float]] = []
        self.prepared = 0
        self.prepare_faults: list[Exception] = []

    async def prepare(self) -> None:
        self.prepared += 1
        if self.prepare_faults:
            raise self.prepare_faults.pop(0)

    async def reconcile(self, key: str) -> None:
        self.attempts.append((key, round(asyncio.get_running_loop().time(), 3)))
        if self.faults.get(key):
            raise self.faults[key].pop(0)

    def times(self, key: str) -> list[float]:
        return [time for found, time in self.attempts if found == key]


def run(controller: Failing, *keys: str, later: Callable[[], None] = lambda: None) -> None:
    async def main() -> None:
        informers = InformerSet(ScriptedClient())
        task = asyncio.create_task(run_controllers([controller], informers))
        for key in keys:
            controller.queue.add(key)
        await asyncio.sleep(500)
        later()
        await asyncio.sleep(500)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main())


@pytest.mark.parametrize(
    ("fault", "waits"),
    [
        (ServiceUnavailable("down"), [0, 0.005, 0.015, 0.035]),
        (ValueError("a defect"), [0, 0.005, 0.015, 0.035]),
        (TooManyRequests("later", retry_after=7), [0, 7, 14, 21]),
    ],
    ids=["an API error", "a defect", "told when to come back"],
)
def test_a_failing_key_is_retried_and_others_continue(fault: Exception, waits: list[float]) -> None:
    controller = Failing({"bad": [fault] * 3})
    run(controller, "bad", "good")
    assert controller.times("bad") == waits and controller.times("good") == [0]


def test_conflicts_are_retried_soon_every_time() -> None:
    controller = Failing({"busy": [Conflict("changed")] * 20})
    run(controller, "busy")
    times = controller.times("busy")
    assert len(times) == 21 and max(after - before for before, after in pairwise(times)) < 1.001


def test_success_forgets_earlier_failures() -> None:
    controller = Failing({"k": [ValueError("x")] * 3})

    def fail_once_more() -> None:
        controller.faults["k"] = [ValueError("x")]
        controller.queue.add("k")

    run(controller, "k", later=fail_once_more)
    assert controller.times("k") == [0, 0.005, 0.015, 0.035, 500, 500.005]


def test_no_key_is_processed_before_prepare_succeeds() -> None:
    controller = Failing({})
    controller.prepare_faults = [ServiceUnavailable("down"), ServiceUnavailable("down")]
    run(controller, "k")
    assert controller.prepared == 3 and controller.times("k") == [0.3]


def test_metrics_count_additions_and_outcomes() -> None:
    metrics = CollectorRegistry()
    run(Failing({"k": [Conflict("x"), ValueError("y")]}, metrics), "k")
    text = exposition(metrics).decode()
    assert 'wharfinger_workqueue_adds_total{controller="failing"} 3' in text
    for outcome in ("conflict", "error", "success"):
        assert f'wharfinger_reconcile_duration_seconds_count{{controller="failing",outcome="{outcome}"}} 1' in text


class Ending(Controller[str]):
    """Takes two moments to end, and has informers of its own, as the garbage collector."""

    name = "ending"

    def __init__(self, own: InformerSet) -> None:
        super().__init__()
        self._own = own
        self.ended = False

    async def reconcile(self, key: str) -> None:
        raise AssertionError("there are no keys")

    async def run(self) -> None:
        self._own.start()
        try:
            await super().run()
        finally:
            await asyncio.sleep(1)
            await self._own.stop()
            self.ended = True


def test_a_controller_that_is_ended_finishes_its_own_end() -> None:
    async def main() -> tuple[bool, list[str]]:
        client = ScriptedClient()
        own = InformerSet(client)
        for resource in (PODS, NODES):
            own.of(resource, dict)
        controller = Ending(own)
        task = asyncio.create_task(run_controllers([Failing({}), controller], InformerSet(client)))
        await asyncio.sleep(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        left = [each.get_name() for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        return controller.ended, left

    assert run_virtual(main()) == (True, [])
