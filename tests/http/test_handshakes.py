"""Connections that never complete their TLS handshake, on the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from wharfinger.http.handshakes import Handshakes, TlsListener
from wharfinger.http.server import TlsServer, uvicorn_config
from wharfinger.http.tls import self_signed_context

Send = Callable[[dict[str, Any]], Awaitable[None]]


async def application(scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def serving(handshakes: Handshakes) -> AsyncIterator[int]:
    """A server in this event loop; yields its port."""
    tls = self_signed_context(("localhost",), datetime.datetime.now(datetime.UTC))
    server = _Server(uvicorn_config(application, graceful_shutdown=5), tls, handshakes)
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task


class _Server(TlsServer):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


async def ask(port: int) -> bytes:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer


async def silent(port: int, count: int) -> list[asyncio.StreamReader]:
    """Opens connections that send nothing."""
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for _, writer in opened:
        kept.append(writer)
    return [reader for reader, _ in opened]


kept: list[asyncio.StreamWriter] = []  # or the connections would be closed


async def until_closed(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""


def test_silent_connections_beyond_the_limit_are_closed_and_others_are_served() -> None:
    async def scenario() -> None:
        handshakes = Handshakes(most=10, seconds=60)
        async with serving(handshakes) as port:
            first = await silent(port, 30)
            for reader in first[:20]:
                await until_closed(reader)
            assert handshakes.count == 10 and handshakes.given_up == 20
            assert not any(reader.at_eof() for reader in first[20:])
            assert (await ask(port)).endswith(b"ok")
            # The client took the place of the oldest one.
            await until_closed(first[20])
            assert handshakes.count == 9

    asyncio.run(scenario())


def test_a_silent_connection_is_closed_when_its_time_is_over() -> None:
    async def scenario() -> None:
        handshakes = Handshakes(seconds=0.1)
        async with serving(handshakes) as port:
            (reader,) = await silent(port, 1)
            await until_closed(reader)
            async with asyncio.timeout(20):
                while handshakes.count:
                    await asyncio.sleep(0.01)
            assert handshakes.given_up == 0

    asyncio.run(scenario())


def test_a_connection_that_does_not_speak_tls_is_closed() -> None:
    async def scenario() -> None:
        handshakes = Handshakes(seconds=60)
        async with serving(handshakes) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(20):
                with contextlib.suppress(ConnectionResetError):
                    await reader.read()
                while handshakes.count:
                    await asyncio.sleep(0.01)
            assert (await ask(port)).endswith(b"ok")

    asyncio.run(scenario())


def test_a_server_that_stops_does_not_wait_for_handshakes() -> None:
    async def scenario() -> None:
        async with serving(Handshakes(seconds=60)) as port:
            (reader,) = await silent(port, 1)
        await until_closed(reader)

    asyncio.run(scenario())


def test_the_address_with_most_handshakes_loses_its_oldest() -> None:
    handshakes = Handshakes(most=4)
    pairs = [(address, *socket.socketpair()) for address in ("a", "b", "b", "b", "c")]
    for address, mine, _ in pairs:
        handshakes.began(address, mine)
    for _, _, theirs in pairs:
        theirs.setblocking(False)
    assert pairs[1][2].recv(1) == b"" and handshakes.count == 4
    for index in (0, 2, 3, 4):
        with pytest.raises(BlockingIOError):
            pairs[index][2].recv(1)
    for address, mine, theirs in pairs:
        handshakes.ended(address, mine)
        mine.close()
        theirs.close()
    assert handshakes.count == 0


def test_accepting_continues_after_file_descriptors_ran_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop's own server would stop listening."""
    monkeypatch.setattr("wharfinger.http.handshakes._PAUSE", 0.01)

    async def scenario() -> None:
        loop, refused = asyncio.get_running_loop(), 0

        class Listener(socket.socket):
            def accept(self) -> Any:
                nonlocal refused
                if refused < 3:
                    refused += 1
                    raise OSError(errno.EMFILE, "Too many open files")
                return super().accept()

        listener = Listener(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        tls = self_signed_context(("localhost",), datetime.datetime.now(datetime.UTC))
        made: asyncio.Future[None] = loop.create_future()

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.set_result(None)
                transport.close()

        server = TlsListener(listener, tls, Protocol, Handshakes(), 10)
        with contextlib.suppress(OSError):
            await ask(listener.getsockname()[1])
        async with asyncio.timeout(20):
            await made
        assert refused == 3
        server.close()
        await server.wait_closed()

    asyncio.run(scenario())
