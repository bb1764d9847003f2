"""Informers over real sockets, end to end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.scripted import pod
from tests.client.servers import Reply, Request, Server

from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.views import Pod
from wharfinger.client import informer as informer_module
from wharfinger.client.access import ClusterAccess
from wharfinger.client.http import HttpClient
from wharfinger.client.informer import Informer


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_module, "RETRY_BASE", 0.01)


class Cluster:
    """Pods with a history. `on_watch` scripts the events of a watch; by default it follows the history."""

    def __init__(self) -> None:
        self.version = 1
        self.pods: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, str, dict[str, Any]]] = []
        self.compacted = 0
        self.lists = 0
        self.watches: list[int] = []
        self.on_watch: Callable[[Reply, int], Awaitable[bool]] | None = None
        self.change = asyncio.Event()
        self.max_page = 1000

    def put(self, name: str, node: str = "") -> None:
        self.version += 1
        document = pod(name, node=node)
        document["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, "MODIFIED" if name in self.pods else "ADDED", document))
        self.pods[name] = document
        self.change.set()

    def remove(self, name: str) -> None:
        self.version += 1
        self.history.append((self.version, "DELETED", self.pods.pop(name)))
        self.change.set()

    async def serve(self, request: Request, reply: Reply) -> None:
        if request.query.get("watch"):
            await self._watch(int(request.query["resourceVersion"]), reply)
        else:
            await self._list(request, reply)

    async def _list(self, request: Request, reply: Reply) -> None:
        self.lists += 1
        start = int(request.query.get("continue", "0"))
        limit = min(int(request.query.get("limit", "1000000")), self.max_page)
        items = list(self.pods.values())
        metadata = {"resourceVersion": str(self.version)}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        await reply.answer(200, {"metadata": metadata, "items": items[start : start + limit]})

    async def _watch(self, at: int, reply: Reply) -> None:
        self.watches.append(at)
        if self.on_watch is not None and await self.on_watch(reply, at):
            return
        if at < self.compacted:
            await reply.begin()
            await reply.event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
            await reply.end()
            return
        await reply.begin()
        while True:
            for version, type, document in self.history:
                if version > at:
                    at = version
                    shown = {**document, "metadata": {**document["metadata"], "resourceVersion": str(version)}}
                    await reply.event(type, shown)
            self.change.clear()
            await self.change.wait()


def follow(body: Callable[[Cluster, Informer[Pod], list[str]], Awaitable[None]], *names: str, **options: Any) -> None:
    async def main() -> None:
        cluster = Cluster()
        for name in names:
            cluster.put(name)
        async with Server(cluster.serve) as server:
            client = HttpClient(ClusterAccess(server.url), **options)
            informer: Informer[Pod] = Informer(client, PODS, Pod)
            told: list[str] = []
            informer.add_handler(
                lambda new: told.append(f"+{new.metadata.name}"),
                lambda old, new: told.append(f"~{new.metadata.name}"),
                lambda old: told.append(f"-{old.metadata.name}"),
            )
            informer.start()
            try:
                await asyncio.wait_for(body(cluster, informer, told), 30)
            finally:
                await informer.stop()
                await client.close()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_long_lists_are_paged() -> None:
    async def body(cluster: Cluster, informer: Informer[Pod], told: list[str]) -> None:
        cluster.max_page = 2
        await informer.wait_synced()
        assert told == ["+a", "+b", "+c", "+d", "+e"] and cluster.lists == 3

    follow(body, "a", "b", "c", "d", "e")


@pytest.mark.parametrize("how", ["drop", "half a line", "end"])
def test_a_closed_connection_is_resumed_without_loss_or_repetition(how: str) -> None:
    async def body(cluster: Cluster, informer: Informer[Pod], told: list[str]) -> None:
        async def cut(reply: Reply, at: int) -> bool:
            if len(cluster.watches) > 3:
                return False
            await reply.begin()
            _, type, document = next(entry for entry in cluster.history if entry[0] > at)
            await reply.event(type, document)
            if how == "half a line":
                await reply.chunk(b'{"type":"ADDED","object":{"metadata":{"name":"ghost"')
            if how == "end":
                await reply.end()
            else:
                await until(lambda: f"+{document['metadata']['name']}" in told)
                reply.drop()
            return True

        cluster.on_watch = cut
        await informer.wait_synced()
        for name in ("b", "c", "d", "e"):
            cluster.put(name)
        await until(lambda: len(told) >= 5)
        assert told == ["+a", "+b", "+c", "+d", "+e"]
        assert cluster.lists == 1 and cluster.watches == [2, 3, 4, 5]

    follow(body, "a")


def test_a_silent_watch_is_cancelled_and_resumed() -> None:
    async def body(cluster: Cluster, informer: Informer[Pod], told: list[str]) -> None:
        async def silence(reply: Reply, at: int) -> bool:
            if len(cluster.watches) > 1:
                return False
            await reply.begin()
            await asyncio.sleep(20)
            return True

        cluster.on_watch = silence
        await informer.wait_synced()
        cluster.put("b")
        await until(lambda: told == ["+a", "+b"])
        assert cluster.lists == 1

    follow(body, "a", watch_inactivity=0.2)


def test_bookmarks_avoid_a_relist_after_compaction() -> None:
    async def body(cluster: Cluster, informer: Informer[Pod], told: list[str]) -> None:
        async def bookmark(reply: Reply, at: int) -> bool:
            if len(cluster.watches) > 1:
                return False
            await reply.begin()
            await reply.event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "50"}})
            await reply.end()
            return True

        cluster.on_watch = bookmark
        await informer.wait_synced()
        cluster.version = cluster.compacted = 50
        await until(lambda: len(cluster.watches) == 2)
        cluster.put("b")
        await until(lambda: told == ["+a", "+b"])
        assert cluster.watches == [2, 50] and cluster.lists == 1

    follow(body, "a")


def test_expiry_in_the_middle_of_a_watch_reports_missed_deletions() -> None:
    async def body(cluster: Cluster, informer: Informer[Pod], told: list[str]) -> None:
        async def expire(reply: Reply, at: int) -> bool:
            if len(cluster.watches) > 1:
                return False
            cluster.remove("a")
            cluster.put("c")
            cluster.compacted = cluster.version
            await reply.begin()
            await reply.event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
            await reply.end()
            return True

        cluster.on_watch = expire
        await until(lambda: "+c" in told)
        assert told == ["+a", "+b", "-a", "+c"] and informer.lists == 2

    follow(body, "a", "b")


def test_repeated_expiry_does_not_cause_many_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_module, "RETRY_BASE", 0.05)

    async def body(cluster: Cluster, informer: Informer[Pod], told: list[str]) -> None:
        cluster.compacted = 1_000_000
        started = asyncio.get_running_loop().time()
        await until(lambda: cluster.lists >= 5)
        # The first expiry is relisted at once; then delays of at least 0.1, 0.2 and 0.4 seconds.
        assert asyncio.get_running_loop().time() - started >= 0.7
        cluster.compacted = 0
        cluster.put("b")
        await until(lambda: told == ["+a", "+b"])

    follow(body, "a")


def test_an_informer_survives_a_restart_of_the_server() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.put("a")
        server = Server(cluster.serve)
        await server.__aenter__()
        client = HttpClient(ClusterAccess(server.url))
        informer: Informer[Pod] = Informer(client, PODS, Pod)
        informer.start()
        await informer.wait_synced()
        await server.__aexit__()
        cluster.put("b")
        cluster.remove("a")
        await asyncio.sleep(0.1)
        async with Server(cluster.serve, port=server.port):
            await asyncio.wait_for(until(lambda: list(informer.items) == [("default", "b")]), 30)
            assert cluster.lists == 1, "the version was still good"
            await informer.stop()
        await client.close()

    asyncio.run(main())
