"""Limits that only matter under load, tested in process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import ServiceUnavailable
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import EVENTS, NAMESPACES
from wharfinger.api.requests import PatchType
from wharfinger.apiserver import event_expiry, exchange
from wharfinger.apiserver.app import ApiServerApplication
from wharfinger.apiserver.credentials import load_credentials
from wharfinger.apiserver.event_expiry import EventExpiry
from wharfinger.apiserver.server import open_application
from wharfinger.apiserver.tokens import TokenSigner
from wharfinger.store.ledger import CommitListener, Memory
from wharfinger.store.store import Store


class Caller:
    """Speaks ASGI to an application, as the administrator."""

    def __init__(self, application: ApiServerApplication, token: str) -> None:
        self._application = application
        self._token = token

    def scope(self, path: str) -> dict[str, Any]:
        path, _, query = path.partition("?")
        return {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [(b"authorization", f"Bearer {self._token}".encode())],
        }

    async def ask(self, path: str, *, gone: asyncio.Event | None = None) -> tuple[int, dict[str, str], bytes]:
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

        await self._application(self.scope(path), receive, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:])


def with_application(
    tmp_path: Path, scenario: Callable[[ApiServerApplication, Caller], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        store = Store(registry())
        credentials = load_credentials(tmp_path / "d")
        signer = TokenSigner.load(tmp_path / "d" / "sa.key")
        async with open_application(store, credentials, signer, Path("pki"), Configuration()) as application:
            await scenario(application, Caller(application, credentials.tokens["admin"]))
        await store.close()

    asyncio.run(main())


def test_watches_take_no_seats_and_end_with_the_server(tmp_path: Path) -> None:
    async def scenario(application: ApiServerApplication, caller: Caller) -> None:
        application.fairness.limits.seats = 1
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


def test_a_watch_ends_when_the_client_disconnects(tmp_path: Path) -> None:
    async def scenario(application: ApiServerApplication, caller: Caller) -> None:
        gone = asyncio.Event()
        watch = asyncio.create_task(caller.ask("/api/v1/pods?watch=1", gone=gone))
        await asyncio.sleep(0.05)
        gone.set()
        assert (await asyncio.wait_for(watch, 10))[0] == 200
        metrics = (await caller.ask("/metrics"))[2].decode()
        assert 'apiserver_registered_watchers{group="",version="v1",kind="Pod"} 0' in metrics

    with_application(tmp_path, scenario)


def test_a_client_that_does_not_read_is_dropped(tmp_path: Path) -> None:
    async def scenario(application: ApiServerApplication, caller: Caller) -> None:
        application.watchers.stuck = 0.05
        full = asyncio.Event()
        sent = 0

        async def send(message: dict[str, Any]) -> None:
            nonlocal sent
            if message.get("body"):
                full.set()
                await asyncio.Event().wait()  # the connection takes nothing more
            sent += 1

        async def receive() -> dict[str, Any]:
            return await asyncio.Event().wait()  # type: ignore[return-value]  # never

        watch = asyncio.create_task(
            application(caller.scope("/api/v1/namespaces?watch=1&resourceVersion=0"), receive, send)
        )
        await asyncio.wait_for(full.wait(), 10)
        await asyncio.wait_for(watch, 10)
        metrics = (await caller.ask("/metrics"))[2].decode()
        assert 'apiserver_registered_watchers{group="",version="v1",kind="Namespace"} 0' in metrics
        assert (await caller.ask("/api/v1/namespaces"))[0] == 200

    with_application(tmp_path, scenario)


def test_health_checks_fail_when_the_store_cannot_write(tmp_path: Path) -> None:
    async def main() -> None:
        backend = Failing()
        store = Store(registry(), backend)
        credentials = load_credentials(tmp_path / "d")
        signer = TokenSigner.load(tmp_path / "d" / "sa.key")
        async with open_application(store, credentials, signer, Path("pki"), Configuration()) as application:
            caller = Caller(application, credentials.tokens["admin"])
            assert (await caller.ask("/livez"))[0] == 200
            backend.fails = True
            with pytest.raises(ServiceUnavailable):
                await store.create(NAMESPACES, {"metadata": {"name": "a"}})
            status, _, body = await caller.ask("/healthz")
            assert (status, "[-]store failed: no space left" in body.decode()) == (500, True)
            backend.fails = False
            await store.create(NAMESPACES, {"metadata": {"name": "a"}})
            assert (await caller.ask("/healthz"))[0] == 200
        await store.close()

    asyncio.run(main())


class Failing(Memory):
    """A back end that can run out of space."""

    durable_at_once = False
    fails = False

    def commit(self, rows: Any, version: int, told: CommitListener) -> None:
        loop = asyncio.get_running_loop()
        if self.fails:
            loop.call_soon(told.failed, OSError("no space left"))
        else:
            loop.call_soon(told.durable, version)


def test_events_expire_an_hour_after_the_last_write() -> None:
    async def main() -> None:
        now = 1_800_000_000.0
        store = Store(registry(), now=lambda: now)
        await store.create(NAMESPACES, {"metadata": {"name": "d"}})

        def event(name: str, last: str = "2027-01-15T08:00:00Z") -> dict[str, Any]:
            regarding = {"kind": "Pod", "name": "p", "namespace": "d"}
            return {"metadata": {"name": name}, "involvedObject": regarding, "lastTimestamp": last, "reason": "R"}

        await store.create(EVENTS, event("found"), "d")
        expiry = EventExpiry(store, lambda: now)
        await store.create(EVENTS, event("new", "2020-01-01T00:00:00Z"), "d")
        await store.create(EVENTS, event("kept"), "d")
        assert await expiry.sweep() == 0
        now += 1800
        await store.patch(EVENTS, "kept", {"count": 2}, "d", type=PatchType.MERGE)
        assert await expiry.sweep() == 0
        now += 1801
        assert await expiry.sweep() == 2
        assert [one.name for one in store.scan(EVENTS)] == ["kept"]
        now += 1800
        assert await expiry.sweep() == 1
        assert [one.name for one in store.scan(NAMESPACES)] == ["d"]
        await store.close()

    asyncio.run(main())


def test_of_too_many_events_the_oldest_of_the_busiest_namespace_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_expiry, "MOST", 6)

    async def main() -> None:
        store = Store(registry(), now=lambda: 1_800_000_000.0)
        expiry = EventExpiry(store, lambda: 1_800_000_000.0)
        for namespace, count in (("busy", 9), ("quiet", 2), ("some", 3)):
            await store.create(NAMESPACES, {"metadata": {"name": namespace}})
            for number in range(count):
                regarding = {"kind": "Pod", "name": "p", "namespace": namespace}
                event = {"metadata": {"name": f"e{number}"}, "involvedObject": regarding, "reason": "R"}
                await store.create(EVENTS, event, namespace)
        assert await expiry.sweep() == 8
        left = sorted((one.namespace, one.name) for one in store.scan(EVENTS))
        assert left == [
            ("busy", "e7"),
            ("busy", "e8"),
            ("quiet", "e0"),
            ("quiet", "e1"),
            ("some", "e1"),
            ("some", "e2"),
        ]
        await store.close()

    asyncio.run(main())


class Pending:
    """A connection on which no byte of the body has arrived."""

    owner = ""
    body_arrived = False
    peer = "127.0.0.1"

    def respond(self, status: int, headers: object, body: bytes) -> bool:
        return False

    def claim(self, owner: str, *, limited: bool) -> None:
        self.owner = owner

    def set_streaming(self, streaming: bool) -> None:
        raise AssertionError("the request is not a watch")


@pytest.mark.parametrize("first", [None, b'{"metadata":'], ids=["no byte", "a part"])
def test_a_body_that_does_not_arrive_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes | None
) -> None:
    monkeypatch.setattr(exchange, "_READ_SECONDS", 0.05)

    async def scenario(application: ApiServerApplication, caller: Caller) -> None:
        sent: list[dict[str, Any]] = []
        parts = [] if first is None else [first]

        async def receive() -> dict[str, Any]:
            if parts:
                return {"type": "http.request", "body": parts.pop(), "more_body": True}
            return await asyncio.Event().wait()  # type: ignore[return-value]  # never

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {**caller.scope("/api/v1/namespaces"), "method": "POST", "connection": Pending()}
        await asyncio.wait_for(application(scope, receive, send), 10)
        assert sent[0]["status"] == 408
        assert scope["connection"].owner == "system:admin"

    with_application(tmp_path, scenario)
