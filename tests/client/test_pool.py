"""The connection pool: connections are reused only when that is safe."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable

import pytest
from tests.client.servers import Reply, Request, Script, Server

from wharfinger.client import pool as pool_module
from wharfinger.client.access import ClusterAccess
from wharfinger.client.memory import gc_paused
from wharfinger.client.pool import PooledTransport
from wharfinger.client.transport import TransportError


def pooled(script: Script, body: Callable[[Server, PooledTransport], Awaitable[None]], connections: int = 100) -> None:
    async def main() -> None:
        async with Server(script) as server:
            transport = PooledTransport(ClusterAccess(server.url), connections=connections)
            try:
                await asyncio.wait_for(body(server, transport), 30)
            finally:
                await transport.close()

    asyncio.run(main())


async def name(request: Request, reply: Reply) -> None:
    await reply.answer(200, request.path)


async def get(transport: PooledTransport, path: str, timeout: float = 10.0) -> bytes:
    return (await transport.request("GET", path, [], None, timeout)).body


def test_a_connection_is_reused() -> None:
    async def body(server: Server, transport: PooledTransport) -> None:
        assert [await get(transport, f"/{i}") for i in range(3)] == [b'"/0"', b'"/1"', b'"/2"']
        assert server.connections == 1

    pooled(name, body)


def test_concurrent_requests_on_few_connections_get_their_own_responses() -> None:
    async def slowly(request: Request, reply: Reply) -> None:
        await asyncio.sleep(0.001 * (hash(request.path) % 5))
        await reply.answer(200, request.path)

    async def body(server: Server, transport: PooledTransport) -> None:
        answers = await asyncio.gather(*(get(transport, f"/{i}") for i in range(60)))
        assert answers == [f'"/{i}"'.encode() for i in range(60)]
        assert server.connections == 4

    pooled(slowly, body, connections=4)


def test_a_cancelled_request_closes_its_connection() -> None:
    asked = asyncio.Event()

    async def first_late(request: Request, reply: Reply) -> None:
        if request.path == "/late":
            asked.set()
            await asyncio.sleep(0.05)
        await reply.answer(200, request.path)

    async def body(server: Server, transport: PooledTransport) -> None:
        late = asyncio.create_task(get(transport, "/late"))
        await asked.wait()
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        assert await get(transport, "/next") == b'"/next"'
        with pytest.raises(TransportError, match=r"no answer .* in 0\.01 s"):
            await get(transport, "/late", timeout=0.01)
        assert await get(transport, "/after") == b'"/after"'

    pooled(first_late, body, connections=1)


def test_waiting_for_a_connection_times_out() -> None:
    async def never(request: Request, reply: Reply) -> None:
        await asyncio.sleep(30)

    async def body(server: Server, transport: PooledTransport) -> None:
        holder = asyncio.create_task(get(transport, "/holder"))
        await asyncio.sleep(0)
        with pytest.raises(TransportError, match=r"no connection to .* free in 0\.05 s") as caught:
            await get(transport, "/waiting", timeout=0.05)
        assert not caught.value.sent
        holder.cancel()
        await asyncio.gather(holder, return_exceptions=True)

    pooled(never, body, connections=1)


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", b"ok"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n3\r\nay!\r\n0\r\n\r\n", b"okay!"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
    ids=["closing", "ended by the connection", "chunked", "after a continue", "empty"],
)
def test_forms_of_responses(raw: bytes, body: bytes) -> None:
    async def script(request: Request, reply: Reply) -> None:
        reply.writer.write(raw)
        await reply.writer.drain()
        if b"close" in raw or b"1.0" in raw:
            reply.writer.close()

    async def ask(server: Server, transport: PooledTransport) -> None:
        assert [await get(transport, "/") for _ in range(2)] == [body, body]

    pooled(script, ask)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "the server closed it"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "the server closed it"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf", "the server closed it"),
        (b"SSH-2.0-OpenSSH\r\n", "does not answer in HTTP"),
    ],
)
def test_broken_responses(raw: bytes, message: str) -> None:
    async def script(request: Request, reply: Reply) -> None:
        reply.writer.write(raw)
        await reply.writer.drain()
        reply.writer.close()

    async def ask(server: Server, transport: PooledTransport) -> None:
        with pytest.raises(TransportError, match=message) as caught:
            await get(transport, "/")
        assert caught.value.sent

    pooled(script, ask)


def test_closed_or_old_idle_connections_are_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    writers: list[asyncio.StreamWriter] = []

    async def script(request: Request, reply: Reply) -> None:
        writers.append(reply.writer)
        await reply.answer(200, "ok")

    async def body(server: Server, transport: PooledTransport) -> None:
        await get(transport, "/")
        writers[0].close()
        while transport._idle:
            await asyncio.sleep(0.001)
        await get(transport, "/")
        assert server.connections == 2
        monkeypatch.setattr(pool_module, "IDLE_SECONDS", 0.0)
        await get(transport, "/")
        assert server.connections == 3

    pooled(script, body)


def test_connections_that_only_a_burst_needed_are_closed() -> None:
    together = asyncio.Event()
    asked: list[str] = []

    async def script(request: Request, reply: Reply) -> None:
        asked.append(request.path)
        if len(asked) == 3:
            together.set()
        await together.wait()
        await reply.answer(200, "ok")

    async def body(server: Server, transport: PooledTransport) -> None:
        await asyncio.gather(*(get(transport, f"/{i}") for i in range(3)))
        assert server.connections == len(transport._open) == 3
        for connection in list(transport._idle)[:2]:
            connection.idle_since -= pool_module.IDLE_SECONDS
        await get(transport, "/")
        while len(transport._open) > 1:
            await asyncio.sleep(0.001)
        await get(transport, "/")
        assert server.connections == 3

    pooled(script, body)


def test_the_memory_of_a_closed_connection_is_free_without_a_collection_of_cycles() -> None:
    async def body(server: Server, transport: PooledTransport) -> None:
        with gc_paused():
            await get(transport, "/")
            connection = weakref.ref(transport._idle[0])
            transport._idle.pop().abort()
            while transport._open:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.001)
            assert connection() is None

    pooled(name, body)


def test_the_path_of_the_server_url_is_kept() -> None:
    async def main() -> None:
        async with Server(name) as server:
            transport = PooledTransport(ClusterAccess(server.url + "/k8s/clusters/c-1"))
            assert await get(transport, "/api/v1/pods?limit=1") == b'"/k8s/clusters/c-1/api/v1/pods"'
            await transport.close()

    asyncio.run(main())


def test_a_server_that_closes_immediately_is_an_error() -> None:
    async def main() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = PooledTransport(ClusterAccess(f"http://127.0.0.1:{port}"))
        for _ in range(20):
            with pytest.raises(TransportError, match="lost the connection"):
                await get(transport, "/")
        await transport.close()
        server.close()

    asyncio.run(asyncio.wait_for(main(), 30))
