"""Status patches of objects other than Pods: what could not be written is written later, derived anew."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from tests.client.virtual import run_virtual

from wharfinger.api.errors import ApiError, Conflict, Forbidden, NotFound, ServiceUnavailable
from wharfinger.api.kinds.builtin import NODES
from wharfinger.api.registry import Document
from wharfinger.api.views import Node, view
from wharfinger.client.interface import Client
from wharfinger.client.timers import LoopClock
from wharfinger.scheduler.instructions import PatchStatus
from wharfinger.scheduler.object_statuses import TRIES, ObjectStatusWriter


class FailingClient(Client):
    """Answers every read; refuses the first writes, and records the others."""

    def __init__(self, failures: list[ApiError]) -> None:
        self.failures = failures
        self.written: list[Document] = []

    async def send(self, request: Any) -> Any:
        if request.verb == "get":
            return view({"metadata": {"name": "n", "uid": "u"}}, Node)
        if self.failures:
            raise self.failures.pop(0)
        self.written.append(request.body["status"])
        return {"metadata": {"name": "n", "resourceVersion": str(len(self.written))}}

    def stream(self, request: Any) -> Any:
        raise NotImplementedError

    async def kubernetes_version(self) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def written(failures: list[ApiError], *, newer_after: float | None = None) -> tuple[list[Document], list[bool], float]:
    """What is written, what the patches are told, and after how many seconds, if the first writes fail. `newer_after` is
    when a newer patch for the same object follows, of which only the newest is wanted."""
    client, told = FailingClient(failures), []
    started: set[asyncio.Future[None]] = set()
    ended = 0.0

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def start(work: Awaitable[None]) -> None:
            started.add(asyncio.ensure_future(work))

        def patch(text: str) -> PatchStatus:
            def done(outcome: bool) -> tuple[()]:
                nonlocal ended
                told.append(outcome)
                ended = loop.time()
                return ()

            newest_only = newer_after is not None
            return PatchStatus(NODES, Node, "n", lambda found, now: {"phase": text}, done, newest_only)

        writer = ObjectStatusWriter(client, LoopClock(0.0, loop), start, lambda instructions: None)
        writer.submit(patch("first"))
        if newer_after is not None:
            await asyncio.sleep(newer_after)
            writer.submit(patch("second"))
        await asyncio.sleep(500)
        await asyncio.gather(*started)

    run_virtual(main())
    return client.written, told, ended


def test_what_failed_is_written_after_a_back_off() -> None:
    assert written([ServiceUnavailable("down"), ServiceUnavailable("down")]) == ([{"phase": "first"}], [True], 1.5)


def test_a_conflict_is_tried_again_at_once() -> None:
    assert written([Conflict("changed")]) == ([{"phase": "first"}], [True], 0.01)


@pytest.mark.parametrize("error", [Forbidden("no"), NotFound("gone")], ids=("forbidden", "gone"))
def test_what_cannot_succeed_is_not_tried_again(error: ApiError) -> None:
    assert written([error]) == ([], [False], 0.0)


def test_in_the_end_it_is_given_up_and_whoever_asked_is_told() -> None:
    outcome, told, ended = written([ServiceUnavailable("down") for _ in range(TRIES)])
    assert (outcome, told) == ([], [False])
    assert 60 < ended < 65


def test_a_newer_patch_replaces_one_that_waits_for_its_next_try() -> None:
    failures: list[ApiError] = [ServiceUnavailable("down") for _ in range(4)]
    assert written(failures, newer_after=2.0)[0] == [{"phase": "second"}]
