"""The event recorder: counting, combining, rate limiting, and never blocking its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.client.scripted import MemoryClient, pod
from tests.client.virtual import run_virtual

from wharfinger.api.errors import Forbidden, ServiceUnavailable
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.views import Pod, view
from wharfinger.client import events
from wharfinger.client.events import EventRecorder
from wharfinger.client.timers import LoopClock


def recording(body: Callable[[MemoryClient, EventRecorder], Awaitable[None]], component: str = "scheduler") -> None:
    async def main() -> None:
        client = MemoryClient()
        recorder = EventRecorder(client, component, LoopClock(1_700_000_000.0, asyncio.get_running_loop()))
        recorder.start()
        try:
            await body(client, recorder)
        finally:
            await recorder.stop()

    run_virtual(main())


def stored(client: MemoryClient) -> list[dict[str, Any]]:
    return [item for (plural, _, _), item in client.objects.items() if plural == "events"]


def test_an_event_has_the_fields_that_kubectl_shows() -> None:
    async def body(client: MemoryClient, recorder: EventRecorder) -> None:
        recorder.event(PODS, view(pod("web"), Pod), "Normal", "Scheduled", "Successfully assigned default/web to n1")
        await asyncio.sleep(1)
        (event,) = stored(client)
        name = event["metadata"].pop("name")
        assert name.startswith("web.17979cfe36")
        event["metadata"].pop("resourceVersion")
        assert event == {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": "default"},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "web",
                "namespace": "default",
                "uid": "uid-web",
            },
            "reason": "Scheduled",
            "message": "Successfully assigned default/web to n1",
            "source": {"component": "scheduler"},
            "firstTimestamp": "2023-11-14T22:13:20Z",
            "lastTimestamp": "2023-11-14T22:13:20Z",
            "count": 1,
            "type": "Normal",
            "reportingComponent": "scheduler",
            "reportingInstance": "",
        }

    recording(body)


def test_a_repeated_event_increments_its_count() -> None:
    async def body(client: MemoryClient, recorder: EventRecorder) -> None:
        for _ in range(3):
            recorder.event(PODS, pod("web"), "Warning", "FailedScheduling", "0/3 nodes are available")
            await asyncio.sleep(60)
        (event,) = stored(client)
        assert event["count"] == 3
        assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2023-11-14T22:13:20Z", "2023-11-14T22:15:20Z")

    recording(body)


def test_counts_that_were_not_sent_yet_take_one_write() -> None:
    async def body(client: MemoryClient, recorder: EventRecorder) -> None:
        client.delay = 1.0
        for _ in range(5):
            recorder.event(PODS, pod("web"), "Warning", "FailedScheduling", "0/3 nodes are available")
        await asyncio.sleep(1.5)  # the event was created, and its first update is on its way
        for _ in range(4):
            recorder.event(PODS, pod("web"), "Warning", "FailedScheduling", "0/3 nodes are available")
        await asyncio.sleep(10)
        (event,) = stored(client)
        assert event["count"] == 9
        assert [verb for verb, _, _ in client.calls] == ["create", "patch", "patch"]

    recording(body)


def test_many_messages_with_one_reason_are_combined() -> None:
    async def body(client: MemoryClient, recorder: EventRecorder) -> None:
        for attempt in range(14):
            recorder.event(PODS, pod("web"), "Warning", "FailedScheduling", f"attempt {attempt}")
        await asyncio.sleep(1)
        found = {event["message"]: event["count"] for event in stored(client)}
        assert found == {f"attempt {i}": 1 for i in range(9)} | {"(combined from similar events): attempt 13": 5}
        await asyncio.sleep(700)
        recorder.event(PODS, pod("web"), "Warning", "FailedScheduling", "later")
        await asyncio.sleep(1)
        assert any(event["message"] == "later" for event in stored(client)), "similar only counts for ten minutes"

    recording(body)


def test_an_object_with_too_many_events_is_rate_limited() -> None:
    async def body(client: MemoryClient, recorder: EventRecorder) -> None:
        for reason in range(40):
            recorder.event(PODS, pod("noisy"), "Warning", f"Reason{reason}", "x")
        recorder.event(PODS, pod("quiet"), "Warning", "Reason", "x")
        await asyncio.sleep(1)
        names = [event["involvedObject"]["name"] for event in stored(client)]
        assert names.count("noisy") == 25 and names.count("quiet") == 1
        await asyncio.sleep(301)
        recorder.event(PODS, pod("noisy"), "Warning", "Again", "x")
        recorder.event(PODS, pod("noisy"), "Warning", "TooSoon", "x")
        await asyncio.sleep(1)
        reasons = [event["reason"] for event in stored(client)]
        assert "Again" in reasons and "TooSoon" not in reasons

    recording(body)


def test_events_of_cluster_wide_objects_go_to_the_default_namespace() -> None:
    async def body(client: MemoryClient, recorder: EventRecorder) -> None:
        recorder.event(NODES, {"metadata": {"name": "n1", "uid": "u"}}, "Normal", "NodeReady", "ready")
        await asyncio.sleep(1)
        (event,) = stored(client)
        assert event["metadata"]["namespace"] == "default" and "namespace" not in event["involvedObject"]

    recording(body)


def test_events_of_two_components_at_the_same_time_have_different_names() -> None:
    async def main() -> None:
        client, clock = MemoryClient(), LoopClock(1_700_000_000.0, asyncio.get_running_loop())
        recorders = [EventRecorder(client, name, clock) for name in ("scheduler", "kubelet")]
        for recorder in recorders:
            recorder.start()
            recorder.event(PODS, pod("web"), "Normal", "One", "x")
            recorder.event(PODS, pod("web"), "Normal", "Two", "x")
        for recorder in recorders:
            await recorder.stop()
        assert len(stored(client)) == 4

    run_virtual(main())


def test_events_are_delayed_while_the_server_is_unreachable_and_dropped_when_rejected() -> None:
    async def body(client: MemoryClient, recorder: EventRecorder) -> None:
        down: list[Exception] = [ServiceUnavailable("down"), ServiceUnavailable("down"), Forbidden("terminating")]
        client.fail = lambda verb, name: down.pop(0) if down and name.startswith("web") else None
        recorder.event(PODS, pod("web"), "Normal", "One", "x")
        await asyncio.sleep(60)
        assert stored(client) == [] and recorder.dropped == 1
        recorder.event(PODS, pod("web"), "Normal", "Two", "x")
        await asyncio.sleep(1)
        assert [event["reason"] for event in stored(client)] == ["Two"]

    recording(body)


def test_an_event_that_expired_on_the_server_is_recreated_with_its_count() -> None:
    async def body(client: MemoryClient, recorder: EventRecorder) -> None:
        recorder.event(PODS, pod("web"), "Normal", "One", "x")
        await asyncio.sleep(1)
        client.objects.clear()
        recorder.event(PODS, pod("web"), "Normal", "One", "x")
        await asyncio.sleep(1)
        assert [event["count"] for event in stored(client)] == [2]

    recording(body)


def test_a_full_queue_drops_events_and_the_caller_never_waits() -> None:
    async def main() -> None:
        recorder = EventRecorder(MemoryClient(), "scheduler", LoopClock(0.0, asyncio.get_running_loop()))
        for number in range(events.QUEUE_LIMIT + 5):
            recorder.event(PODS, pod(f"p{number}"), "Normal", "Scheduled", "x")
        assert recorder.dropped == 5 and recorder.pending == events.QUEUE_LIMIT

    run_virtual(main())


def test_invalid_events_are_logged_not_raised() -> None:
    async def body(client: MemoryClient, recorder: EventRecorder) -> None:
        recorder.event(PODS, None, "Normal", "One", "x")
        assert recorder.dropped == 1

    recording(body)


def test_events_wait_for_urgent_writes_but_not_for_ever() -> None:
    async def body(client: MemoryClient, recorder: EventRecorder) -> None:
        urgent = True
        recorder.give_way(lambda: urgent)
        recorder.event(PODS, view(pod("web"), Pod), "Normal", "Scheduled", "Successfully assigned default/web to n1")
        await asyncio.sleep(1)
        assert stored(client) == []
        urgent = False
        await asyncio.sleep(1)
        assert len(stored(client)) == 1
        urgent = True
        recorder.event(PODS, view(pod("api"), Pod), "Normal", "Scheduled", "Successfully assigned default/api to n1")
        await asyncio.sleep(events.GIVE_WAY_SECONDS + 1)
        assert len(stored(client)) == 2

    recording(body)


def test_many_waiting_events_do_not_give_way(monkeypatch: Any) -> None:
    async def body(client: MemoryClient, recorder: EventRecorder) -> None:
        monkeypatch.setattr(events, "GIVE_WAY_LIMIT", 3)
        recorder.give_way(lambda: True)
        for name in ("a", "b", "c", "d"):
            recorder.event(PODS, view(pod(name), Pod), "Normal", "Scheduled", f"Successfully assigned default/{name}")
        await asyncio.sleep(1)
        assert len(stored(client)) >= 2

    recording(body)


def test_what_waits_is_sent_at_the_end() -> None:
    async def body(client: MemoryClient, recorder: EventRecorder) -> None:
        recorder.give_way(lambda: True)
        recorder.event(PODS, view(pod("web"), Pod), "Normal", "Scheduled", "Successfully assigned default/web to n1")
        await recorder.stop()
        assert len(stored(client)) == 1

    recording(body)
