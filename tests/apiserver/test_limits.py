"""Limits that only show under load, asked of the application in process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds import registry
from wharfinger.apiserver.app import Application
from wharfinger.apiserver.credentials import load_credentials
from wharfinger.apiserver.server import open_application
from wharfinger.apiserver.tokens import TokenSigner
from wharfinger.store.store import Store


class Caller:
    """Speaks ASGI to an application, as the administrator."""

    def __init__(self, application: Application, token: str) -> None:
        self._application = application
        self._token = token

    async def ask(self, path: str, *, gone: asyncio.Event | None = None) -> tuple[int, dict[str, str], bytes]:
        path, _, query = path.partition("?")
        sent: list[dict[str, Any]] = []
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": b"", "more_body": False}
            if gone is not None:
                await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [(b"authorization", f"Bearer {self._token}".encode())],
        }
        await self._application(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:])


def with_application(tmp_path: Path, scenario: Callable[[Application, Caller], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        store = Store(registry())
        credentials = load_credentials(tmp_path / "d")
        signer = TokenSigner.load(tmp_path / "d" / "sa.key")
        async with open_application(store, credentials, signer, Configuration()) as application:
            await scenario(application, Caller(application, credentials.tokens["admin"]))
        await store.close()

    asyncio.run(main())


def test_too_many_requests_at_once_are_sent_away(tmp_path: Path) -> None:
    async def scenario(application: Application, caller: Caller) -> None:
        assert (await caller.ask("/api/v1/pods"))[0] == 200
        application.max_inflight = 0
        status, headers, body = await caller.ask("/api/v1/pods")
        assert (status, headers["retry-after"]) == (429, "1")
        answer = json.loads(body)
        assert (answer["reason"], answer["message"]) == (
            "TooManyRequests",
            "Too many requests, please try again later.",
        )
        application.max_inflight = 1
        assert (await caller.ask("/api/v1/pods"))[0] == 200

    with_application(tmp_path, scenario)


def test_watches_do_not_count_and_end_with_the_server(tmp_path: Path) -> None:
    async def scenario(application: Application, caller: Caller) -> None:
        application.max_inflight = 1
        gone = asyncio.Event()
        watches = [asyncio.create_task(caller.ask("/api/v1/pods?watch=1", gone=gone)) for _ in range(3)]
        await asyncio.sleep(0)
        assert (await caller.ask("/api/v1/pods"))[0] == 200
        application.stop()
        for watch in watches:
            assert (await asyncio.wait_for(watch, 10))[0] == 200
        assert (await caller.ask("/readyz"))[0] == 500
        assert (await caller.ask("/livez"))[0] == 200

    with_application(tmp_path, scenario)


def test_a_client_that_leaves_ends_its_watch(tmp_path: Path) -> None:
    async def scenario(application: Application, caller: Caller) -> None:
        gone = asyncio.Event()
        watch = asyncio.create_task(caller.ask("/api/v1/pods?watch=1", gone=gone))
        await asyncio.sleep(0.05)
        gone.set()
        assert (await asyncio.wait_for(watch, 10))[0] == 200
        metrics = (await caller.ask("/metrics"))[2].decode()
        assert 'apiserver_registered_watchers{group="",version="v1",kind="Pod"} 0' in metrics

    with_application(tmp_path, scenario)
