"""What the dashboard keeps in memory is bounded, however long it runs and however busy the cluster is."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Any

import pytest
from tests.client.scripted import ScriptedClient
from tests.client.virtual import run_virtual
from tests.dashboard.test_units import pod

from wharfinger.api.kinds import registry
from wharfinger.client.access import ClusterAccess
from wharfinger.client.http import HttpClient
from wharfinger.dashboard.history import SAMPLES, History
from wharfinger.dashboard.pacing import KEPT, PacedAnswers
from wharfinger.dashboard.recent_events import ALTOGETHER, OF_REASON, EventInformer, RecentEvents
from wharfinger.dashboard.state import ClusterState
from wharfinger.dashboard.verdicts import ASKED, AT_ONCE, Verdicts
from wharfinger.dashboard.views.waiting import waiting_pods


def deep_size(*roots: object) -> int:
    """Bytes of everything that can be reached, without code and modules."""
    seen: set[int] = set()
    found, left = 0, list(roots)
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, type) or callable(each) or type(each).__name__ == "module":
            continue
        seen.add(id(each))
        found += sys.getsizeof(each)
        left.extend(gc.get_referents(each))
    return found


def event(number: int, reason: str = "Scheduled") -> dict[str, Any]:
    stamp = f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    name = f"p-{number}"
    return {
        "metadata": {
            "name": f"{name}.{reason}",
            "namespace": "n",
            "uid": f"{reason}-{number}",
            "creationTimestamp": stamp,
        },
        "involvedObject": {"kind": "Pod", "namespace": "n", "name": name},
        "reason": reason,
        "message": f"about {name}",
        "lastTimestamp": stamp,
    }


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}}}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_hours_of_pods_events_and_nodes_take_no_more_than_the_first() -> None:
    state, clock, recent = (
        ClusterState(HttpClient(ClusterAccess("https://127.0.0.1:1")), registry()),
        Clock(),
        RecentEvents(),
    )
    history = History(state, clock)
    for number in range(3):
        state.nodes.node_changed(None, node(f"n-{number}"))
    sizes = []
    for hour in range(5):
        for step in range(720):
            number = hour * 720 + step
            waits, runs = pod(f"p-{number}"), pod(f"p-{number}", f"n-{number % 3}")
            over = pod(f"p-{number}", f"n-{number % 3}", status={"phase": "Succeeded"})
            for old, new in ((None, waits), (waits, runs), (runs, over), (over, None)):
                state.usage.pod_changed(old, new)
            for reason in ("Scheduled", "Started", "Killing"):
                made = event(number, reason)
                recent.put(("n", made["metadata"]["name"]), made)
            if not step % 60:  # a node of another name
                state.nodes.node_changed(node("n-new"), None)
                state.nodes.node_changed(None, node("n-new"))
            clock.now += 5.0
            history.sample()
        sizes.append(deep_size(state.usage, state.nodes, history.samples, recent))
    assert len(history.samples) == SAMPLES and len(recent) == 3 * OF_REASON
    assert sizes[-1] <= 1.02 * sizes[2], "all windows are full after three hours"
    assert state.usage.present == state.usage.running == 0
    assert not (state.usage.waiting or state.usage.amounts or state.usage.pods or state.usage.by_uid)


def test_rare_events_survive_frequent_ones() -> None:
    recent = RecentEvents()
    recent.put(("n", "rare"), event(0, "FailedCreate"))
    for number in range(2 * ALTOGETHER):
        recent.put(("n", str(number)), event(number, f"Reason{number % 30}"))
    assert len(recent) == ALTOGETHER
    assert [each["reason"] for each in recent.of(["FailedCreate"])] == ["FailedCreate"]


def test_an_event_that_happens_again_is_the_latest() -> None:
    recent = RecentEvents(2)
    for name in ("a", "b", "a", "c"):
        recent.put(("n", name), event(0) | {"message": name})
    assert [each["message"] for each in recent] == ["a", "c"]
    recent.remove(("n", "a"), event(0))
    recent.remove(("n", "a"), event(0))
    assert len(recent) == 1


def test_events_beyond_the_recent_ones_are_not_held_by_the_informer_either() -> None:
    async def main() -> None:
        client = ScriptedClient()
        for number in reversed(range(40)):  # a list is in no order of time
            client.put(event(number))
        informer = EventInformer(client, recent=RecentEvents(10, 20))
        told: list[str] = []
        informer.add_handler(on_add=lambda new: told.append(new["metadata"]["name"]))
        informer.start()
        try:
            await informer.wait_synced()
            assert sorted(informer.items) == sorted(("n", f"p-{number}.Scheduled") for number in range(30, 40))
            assert len(told) == len(informer.recent) == 10
            client.put(event(40))
            client.put(event(1, "FailedCreate"))
            client.remove("p-5.Scheduled", "n")  # forgotten already
            client.remove("p-39.Scheduled", "n")
            await asyncio.sleep(1)
            kept = {each["metadata"]["name"] for each in informer.recent}
            assert kept == {key[1] for key in informer.items}
            assert kept == {f"p-{number}.Scheduled" for number in (*range(31, 39), 40)} | {"p-1.FailedCreate"}
            client.compact()
            await asyncio.sleep(60)  # listed again
            assert len(informer.items) == len(informer.recent) <= 11
        finally:
            await informer.stop()

    run_virtual(main())


def waiting(number: int) -> dict[str, Any]:
    return pod(f"w-{number:03}", uid=f"u-{number}")


@pytest.mark.parametrize("each_takes", [0.001, 0.01])
def test_verdicts_come_some_at_once_and_all_soon_after(each_takes: float) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        spent, revision, told = [0.0], [1], list[str]()
        judged: list[str] = []

        def judge(namespace: str, name: str) -> dict[str, Any]:
            judged.append(name)
            spent[0] += each_takes
            return {"verdict": "never", "because": f"revision {revision[0]}", "reasons": []}

        verdicts = Verdicts(judge, lambda: revision[0], told.append, loop.time, lambda: spent[0])
        state = ClusterState(HttpClient(ClusterAccess("https://127.0.0.1:1")), registry())
        for number in range(100):
            state.usage.pod_changed(None, waiting(number))
        rows = waiting_pods(state.usage, verdicts)
        assert len(rows) == 100 and len(judged) == round(AT_ONCE / each_takes)
        assert [row["verdict"] for row in rows].count("unjudged") == 100 - len(judged)
        await asyncio.sleep(ASKED / 2)
        assert len(judged) == 100 and told, "the others follow, and whoever looks is told"
        assert [row["because"] for row in waiting_pods(state.usage, verdicts)] == ["revision 1"] * 100
        assert len(judged) == 100, "a verdict holds until the cluster changes"
        revision[0] = 2
        told.clear()
        await asyncio.sleep(ASKED / 2)
        assert len(judged) == 200 and told, "nobody has to ask for a verdict to be found out of date"
        await asyncio.sleep(2 * ASKED)
        revision[0] = 3
        await asyncio.sleep(ASKED)
        assert len(judged) == 200 and not len(verdicts), "without an audience nothing is judged or kept"
        await verdicts.stop()

    run_virtual(main())


def test_slow_answers_are_made_now_and_then() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        spent, made, told = [0.0], list[int](), list[float]()
        paced = PacedAnswers(lambda: told.append(loop.time()), lambda: loop.time() + spent[0])

        def make(seconds: float, number: int) -> int:
            spent[0] += seconds
            made.append(number)
            return number

        assert paced.get("quick", 1, lambda: make(0.001, 1)) == 1
        assert paced.get("quick", 2, lambda: make(0.001, 2)) == 2
        assert paced.get("slow", 1, lambda: make(0.5, 3)) == 3
        assert paced.get("slow", 2, lambda: make(0.5, 4)) == 3, "it took long a moment ago"
        assert paced.get("slow", 1, lambda: make(0.5, 4)) == 3
        await asyncio.sleep(20)
        assert len(told) == 1, "who got the old answer is told when there is a new one"
        assert paced.get("slow", 2, lambda: make(0.5, 5)) == 5
        assert made == [1, 2, 3, 5]
        for number in range(3 * KEPT):
            paced.get(number, 0, lambda: [0] * 1000)
        assert deep_size(paced._kept) < 2 * KEPT * deep_size([0] * 1000)

    run_virtual(main())
