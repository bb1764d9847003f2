"""Status patches of waiting pods: what could not be written is written later, and nothing of it gets lost."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.client.virtual import run_virtual

from wharfinger.api.errors import ServiceUnavailable
from wharfinger.api.registry import Document
from wharfinger.api.views import Pod, view
from wharfinger.client.interface import Client
from wharfinger.client.timers import LoopClock
from wharfinger.scheduler.pod_statuses import PodStatusWriter


class FailingClient(Client):
    """Refuses the first patches, and records the others."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.written: list[Document] = []

    async def send(self, request: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise ServiceUnavailable("down")
        self.written.append(request.body["status"])
        return {}

    def stream(self, request: Any) -> Any:
        raise NotImplementedError

    async def kubernetes_version(self) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def written(
    *calls: tuple[str, str | None], failures: int = 1, withdrawn: bool = False, said: str = ""
) -> list[Document]:
    """What is written for a message and a nominated node, one after the other, when the first patches fail. `said` is what
    the pod says; nothing newer of it is reported."""
    client = FailingClient(failures)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    status = {"conditions": [condition]} if said else {}
    pod = view({"metadata": {"namespace": "default", "name": "p", "uid": "u"}, "status": status}, Pod)

    async def main() -> None:
        writer = PodStatusWriter(client, LoopClock(0.0, asyncio.get_running_loop()))
        task = asyncio.create_task(writer.run())
        for message, node in calls:
            writer.unschedulable(pod, "Unschedulable", message, node)
            await asyncio.sleep(0.1)
        if withdrawn:
            writer.withdraw(pod)
        await asyncio.sleep(100)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main())
    return client.written


def test_what_failed_is_written_again() -> None:
    (status,) = written(("no room", None))
    assert status["conditions"][0]["message"] == "no room"


def test_a_newer_message_keeps_the_nomination_that_was_not_written() -> None:
    (status,) = written(("no room", "n1"), ("still no room", None))
    assert status["conditions"][0]["message"] == "still no room"
    assert status["nominatedNodeName"] == "n1"


def test_a_withdrawn_nomination_keeps_the_message_that_was_not_written() -> None:
    (status,) = written(("no room", "n1"), withdrawn=True)
    assert status["conditions"][0]["message"] == "no room"
    assert status["nominatedNodeName"] is None


def test_what_is_already_so_is_not_written() -> None:
    assert not written(("no room", None), failures=0, said="no room")


def test_a_message_that_comes_back_is_written_although_the_known_pod_has_it() -> None:
    statuses = written(("its claim is being allocated", None), ("no room", None), failures=0, said="no room")
    assert [each["conditions"][0]["message"] for each in statuses] == ["its claim is being allocated", "no room"]


def test_a_nomination_that_comes_back_is_written() -> None:
    statuses = written(("no room", "n1"), ("no room", "n2"), ("no room", "n1"), failures=0)
    assert [each["nominatedNodeName"] for each in statuses] == ["n1", "n2", "n1"]
