"""The HTTP protocol on a recording transport, byte by byte."""

from __future__ import annotations

import asyncio
import gc
import re
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from wharfinger.http import protocol
from wharfinger.http.protocol import HttpProtocol

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


class Transport:
    def __init__(self) -> None:
        self.out = b""
        self.closed = False
        self.reading = True
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    def get_extra_info(self, name: str) -> Any:
        return None

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol

    def set_write_buffer_limits(self, high: int) -> None:
        self.limit = high

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.out += data

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Connection:
    """The client side of a connection."""

    def __init__(self, app: App) -> None:
        config = uvicorn.Config(
            app, http=cast("Any", HttpProtocol), ws="none", lifespan="off", interface="asgi3", proxy_headers=False
        )
        config.load()
        self.state = ServerState()
        self.transport = Transport()
        self.protocol = HttpProtocol(config, self.state)
        self.protocol.connection_made(cast("Any", self.transport))

    async def say(self, data: bytes) -> bytes:
        """The bytes written once the server is idle."""
        self.protocol.data_received(data)
        return await self.said()

    async def said(self) -> bytes:
        for _ in range(20):
            await asyncio.sleep(0)
        return self.transport.out

    def leave(self) -> None:
        self.protocol.connection_lost(None)


async def echo(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Echoes the request."""
    body, more = b"", True
    while more:
        message = await receive()
        assert message["type"] == "http.request"
        body += message["body"]
        more = message["more_body"]
    text = f"{scope['method']} {scope['path']} {scope['query_string'].decode()} ".encode() + body
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


def talk(app: App, scenario: Callable[[Connection], Awaitable[None]]) -> None:
    async def main() -> None:
        connection = Connection(app)
        await scenario(connection)
        if not connection.protocol.closed:
            connection.leave()
        await asyncio.sleep(0)

    asyncio.run(main())


def bodies(out: bytes) -> list[bytes]:
    """The bodies of all responses, split by content length."""
    found = []
    while out:
        head, _, rest = out.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        size = int(length[1]) if length else 0
        found.append(rest[:size])
        out = rest[size:]
    return found


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        (b"GET /a HTTP/1.1\r\n\r\n", b"GET /a  "),
        (b"GET /a%20b?x=%20 HTTP/1.1\r\nHost: h\r\n\r\n", b"GET /a b x=%20 "),
        (b"GET http://host/a?b HTTP/1.1\r\n\r\n", b"GET /a b "),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"POST /  abc"),
        (b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", b"PUT /  abc"),
    ],
)
def test_a_request_may_arrive_in_any_pieces(request_bytes: bytes, answer: bytes) -> None:
    async def whole(connection: Connection) -> None:
        assert bodies(await connection.say(request_bytes)) == [answer]
        assert not connection.transport.closed

    async def byte_by_byte(connection: Connection) -> None:
        for number in range(len(request_bytes)):
            await connection.say(request_bytes[number : number + 1])
        assert bodies(await connection.said()) == [answer]

    talk(echo, whole)
    talk(echo, byte_by_byte)


def test_pipelined_requests_are_answered_in_order() -> None:
    order: list[str] = []
    go = asyncio.Event()

    async def slow_first(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        order.append(scope["path"])
        if scope["path"] == "/1":
            await go.wait()
        await echo(scope, receive, send)

    async def scenario(connection: Connection) -> None:
        await connection.say(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % number for number in (1, 2, 3)))
        assert order == ["/1"] and not connection.transport.reading
        go.set()
        await connection.said()
        assert bodies(connection.transport.out) == [b"GET /1  ", b"GET /2  ", b"GET /3  "]
        assert connection.transport.reading

    talk(slow_first, scenario)


@pytest.mark.parametrize("request_bytes", [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"])
def test_a_connection_is_closed_after_its_last_response(request_bytes: bytes) -> None:
    async def scenario(connection: Connection) -> None:
        out = await connection.say(request_bytes)
        assert b"connection: close\r\n" in out and connection.transport.closed

    talk(echo, scenario)


def test_100_continue_is_sent_when_the_body_is_read() -> None:
    async def scenario(connection: Connection) -> None:
        out = await connection.say(b"POST / HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert out == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await connection.say(b"abc")).endswith(b"POST /  abc")

    talk(echo, scenario)


def test_an_unread_body_does_not_corrupt_the_next_request() -> None:
    async def refuse(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            await echo(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def scenario(connection: Connection) -> None:
        out = await connection.say(b"POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"x" * 100_000)
        assert out.startswith(b"HTTP/1.1 413 ")
        out = await connection.say(b"x" * 100_000 + b"GET /next HTTP/1.1\r\n\r\n")
        assert bodies(out) == [b"", b"GET /next  "]

    talk(refuse, scenario)


def test_reading_is_paused_while_the_body_is_not_read() -> None:
    wanted = asyncio.Event()

    async def late(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await wanted.wait()
        await echo(scope, receive, send)

    async def scenario(connection: Connection) -> None:
        await connection.say(b"POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b"x" * 99_999)
        assert not connection.transport.reading
        wanted.set()
        await connection.said()
        assert connection.transport.reading
        assert (await connection.say(b"y")).endswith(b"xy")

    talk(late, scenario)


def test_a_response_of_unknown_length_is_chunked() -> None:
    async def stream(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"", b"one", b"two"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    async def modern(connection: Connection) -> None:
        out = await connection.say(b"GET / HTTP/1.1\r\n\r\n")
        assert out.endswith(b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
        assert not connection.transport.closed

    async def old(connection: Connection) -> None:
        out = await connection.say(b"GET / HTTP/1.0\r\n\r\n")
        assert out.endswith(b"connection: close\r\n\r\nonetwo") and connection.transport.closed

    async def only_the_head(connection: Connection) -> None:
        assert (await connection.say(b"HEAD / HTTP/1.1\r\n\r\n")).endswith(b"chunked\r\n\r\n")

    talk(stream, modern)
    talk(stream, old)
    talk(stream, only_the_head)


def test_writing_waits_for_a_slow_client() -> None:
    sent: list[int] = []

    async def stream(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(3):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            sent.append(number)

    async def reads_again(connection: Connection) -> None:
        connection.protocol.pause_writing()
        await connection.say(b"GET / HTTP/1.1\r\n\r\n")
        assert sent == []
        connection.protocol.resume_writing()
        await connection.said()
        assert sent == [0, 1, 2]

    async def leaves(connection: Connection) -> None:
        sent.clear()
        connection.protocol.pause_writing()
        await connection.say(b"GET / HTTP/1.1\r\n\r\n")
        connection.leave()
        await connection.said()
        assert not connection.state.tasks and not connection.transport.out

    talk(stream, reads_again)
    talk(stream, leaves)


def test_a_large_response_is_written_as_the_client_reads_it() -> None:
    body = bytes(range(256)) * 4096  # 1 MiB
    ended: list[bool] = []

    async def answer(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})
        ended.append(True)

    def fill(connection: Connection) -> None:
        """From now on, every write fills the buffer."""
        write, transport = connection.transport.write, cast("Any", connection.transport)

        def write_and_pause(data: bytes) -> None:
            write(data)
            if len(connection.transport.out) > 1000:
                connection.protocol.pause_writing()

        transport.write = write_and_pause

    async def reads_slowly(connection: Connection) -> None:
        fill(connection)
        await connection.say(b"GET / HTTP/1.1\r\n\r\n")
        pieces = [len(connection.transport.out)]
        while not ended:
            connection.protocol.resume_writing()
            await connection.said()
            pieces.append(len(connection.transport.out) - sum(pieces))
        assert max(pieces) <= 2 * connection.transport.limit
        assert connection.transport.out.endswith(body)

    async def leaves(connection: Connection) -> None:
        ended.clear()
        fill(connection)
        await connection.say(b"GET / HTTP/1.1\r\n\r\n")
        connection.leave()
        await connection.said()
        assert ended and not connection.state.tasks and len(connection.transport.out) < len(body)

    talk(answer, reads_slowly)
    talk(answer, leaves)


def test_the_application_is_notified_of_a_disconnect() -> None:
    heard: list[str] = []

    async def listen(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        while not heard or heard[-1] != "http.disconnect":
            heard.append((await receive())["type"])

    async def scenario(connection: Connection) -> None:
        await connection.say(b"GET / HTTP/1.1\r\n\r\n")
        assert heard == ["http.request"]
        connection.leave()
        await connection.said()
        assert heard == ["http.request", "http.disconnect"]
        assert not connection.state.connections

    talk(listen, scenario)


def test_a_failing_application_is_a_500_or_closes_the_connection() -> None:
    async def fail(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["path"] == "/late":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("secret")

    async def at_once(connection: Connection) -> None:
        out = await connection.say(b"GET / HTTP/1.1\r\n\r\n")
        assert out.startswith(b"HTTP/1.1 500 ") and b"secret" not in out

    async def half_way(connection: Connection) -> None:
        out = await connection.say(b"GET /late HTTP/1.1\r\n\r\n")
        assert out.endswith(b"half\r\n") and connection.transport.closed

    talk(fail, at_once)
    talk(fail, half_way)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01garbage\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"400"),
        (b"CONNECT host:1 HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * protocol.MAX_HEAD, b"431"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * protocol.MAX_HEAD, b"431"),
    ],
)
def test_malformed_requests_are_rejected_and_the_connection_closed(data: bytes, status: bytes) -> None:
    async def scenario(connection: Connection) -> None:
        for start in range(0, len(data), 65536):
            if not connection.transport.closed:
                await connection.say(data[start : start + 65536])
        assert connection.transport.out.startswith(b"HTTP/1.1 %s " % status)
        assert connection.transport.closed

    talk(echo, scenario)


def test_an_upgrade_request_is_answered_as_plain_http() -> None:
    async def scenario(connection: Connection) -> None:
        out = await connection.say(b"GET /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert out.endswith(b"GET /a  ") and connection.transport.closed

    talk(echo, scenario)


def test_an_application_can_take_over_an_upgraded_connection() -> None:
    taken: list[bytes] = []

    class Other(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            taken.append(data)

    async def switch(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        transport = scope["take_over"](Other())
        transport.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")

    async def scenario(connection: Connection) -> None:
        head = b"POST /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"
        out = await connection.say(head + b"already the other protocol")
        assert out.startswith(b"HTTP/1.1 101 ") and not connection.transport.closed
        assert taken == [b"already the other protocol"]
        assert isinstance(connection.transport.protocol, Other) and connection.transport.reading
        assert not connection.state.connections

    talk(switch, scenario)


@pytest.mark.parametrize(
    ("said", "closes"),
    [(b"", False), (b"GET / HTTP/1.1\r\nX: ", True), (b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n", False)],
    ids=["idle", "half a head", "a body that is waited for"],
)
def test_an_incomplete_head_times_out(monkeypatch: pytest.MonkeyPatch, said: bytes, closes: bool) -> None:
    monkeypatch.setattr(protocol, "READ_TIMEOUT", 0.0)
    monkeypatch.setattr(protocol, "_CHECK_INTERVAL", 0.001)

    async def scenario(connection: Connection) -> None:
        if said:
            await connection.say(said)
        while closes and not connection.transport.closed:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        assert connection.transport.closed == closes

    talk(echo, scenario)


def test_shutdown_lets_the_current_request_finish() -> None:
    go = asyncio.Event()

    async def wait(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await go.wait()
        await echo(scope, receive, send)

    async def busy(connection: Connection) -> None:
        await connection.say(b"GET / HTTP/1.1\r\n\r\n")
        connection.protocol.shutdown()
        assert not connection.transport.closed
        go.set()
        out = await connection.said()
        assert b"connection: close\r\n" in out and out.endswith(b"GET /  ") and connection.transport.closed

    async def idle(connection: Connection) -> None:
        await connection.say(b"GET / HTTP/1.1\r\n\r\n")
        connection.protocol.shutdown()
        assert connection.transport.closed

    talk(wait, busy)
    talk(echo, idle)


@pytest.mark.parametrize("left_during", ["the head", "the body", "the response", "a full buffer"])
def test_a_lost_connection_is_freed_without_the_cyclic_collector(left_during: str) -> None:
    """The transport may hold megabytes that the client never read, and the collector rarely runs."""

    async def unfinished(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def large(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def main() -> None:
        connection = Connection(large if left_during == "a full buffer" else unfinished)
        made, transport = connection.protocol, connection.transport
        transport.protocol = made  # type: ignore[attr-defined]  # as a real one has it
        data = {
            "the head": b"GET / HTTP/1.1\r\nHo",
            "the body": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab",
        }.get(left_during, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        if left_during == "a full buffer":
            made.pause_writing()
        await connection.say(data)
        assert connection.state.connections
        connection.leave()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not connection.state.tasks
        alive = weakref.ref(made), weakref.ref(transport)
        del connection, made, transport
        assert [one() for one in alive] == [None, None]

    gc.collect()
    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


def test_a_client_that_does_not_read_its_response_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "WRITE_TIMEOUT", 0.0)

    async def main() -> None:
        connection = Connection(echo)
        await connection.say(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        connection.protocol._check()
        assert not connection.transport.aborted
        connection.protocol.pause_writing()
        await asyncio.sleep(0.001)
        connection.protocol._check()
        assert connection.transport.aborted
        connection.leave()

    asyncio.run(main())
