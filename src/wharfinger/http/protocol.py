"""HTTP/1.1 connections of a uvicorn server: from bytes to an ASGI application and back, at little cost for a request.

A small answer is one write, and so one TLS record and one system call. Heads are bounded in size and time, bodies in what
waits to be read; how large a body may be, the application decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import httptools

from wharfinger.http.exchange import Exchange

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.server import ServerState

log = logging.getLogger(__name__)

MAX_HEAD = 128 * 1024  # bytes of request line and headers
PATIENCE = 60.0  # seconds for a head to arrive, and for a body that nobody wants any more
_LOOK = 15.0  # seconds between looks at whether a connection is of use
_LOWER = {
    name.title().encode(): name.encode()
    for name in (
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "user-agent",
    )
}


class HttpProtocol(asyncio.Protocol):
    """One connection. Requests are answered in the order they came, one at a time."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any] | None = None,
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.app = config.loaded_app
        self.state = server_state
        self.loop = _loop or asyncio.get_running_loop()
        self.closed = False
        self._keep_alive = config.timeout_keep_alive
        self._parser = httptools.HttpRequestParser(self)
        # What follows a request that closes the connection is nothing to complain of.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._since = self.loop.time()  # when what the connection is in began: idling, a head, the rest of a body
        self._reading_head = False
        self._head = 0  # bytes of the head under way, in earlier pieces
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects = False
        self._receiving: Exchange | None = None  # whose body is arriving
        self._answering: Exchange | None = None
        self._queue: deque[Exchange] = deque()  # requests that came before the last was answered
        self._stopping = False
        self._ended = False
        self._reading = True
        self._drained: asyncio.Future[None] | None = None

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transports are not asyncio's class, only alike.
        self._transport = cast("asyncio.Transport", transport)
        self.state.connections.add(cast("Any", self))
        self._timer = self.loop.call_later(_LOOK, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.state.connections.discard(cast("Any", self))
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        self._queue.clear()
        if self._receiving is not None:
            self._receiving.lost()
        if self._answering is not None:
            self._answering.lost()

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        if not self._reading_head and self._receiving is None:
            self._since = self.loop.time()
            self._reading_head, self._head = True, 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Nothing else is spoken here: the request is answered as it stands, and is the last.
            self._stopping = True
        except httptools.HttpParserError:
            self._refuse(400, "Invalid HTTP request received.")
        else:
            if self._reading_head:
                self._head += len(data)
                if self._head > MAX_HEAD:
                    self._refuse(431, "The head of the request is too large.")

    def pause_writing(self) -> None:
        if self._drained is None:
            self._drained = self.loop.create_future()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    @property
    def full(self) -> bool:
        """Whether the client leaves its end full."""
        return self._drained is not None

    async def drain(self) -> None:
        """Waits until the client has read what was written."""
        while self._drained is not None:
            await asyncio.shield(self._drained)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self.closed:
            self._transport.write(data)

    def pause_reading(self) -> None:
        if self._reading and self._transport is not None and not self.closed:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._reading and self._transport is not None and not self.closed:
            self._reading = True
            self._transport.resume_reading()

    def close(self) -> None:
        """After what was written has gone out."""
        self._ended = True
        if self._transport is not None:
            self._transport.close()

    # The parser

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._expects = False
        self._reading_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = _LOWER.get(name) or name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._reading_head = False
        parser = self._parser
        version = parser.get_http_version()
        path, query = _split(self._url)
        exchange = Exchange(
            self,
            {
                "type": "http",
                "method": parser.get_method().decode("ascii"),
                "path": path,
                "query_string": query,
                "http_version": version,
                "scheme": "https",
                "headers": self._headers,
            },
            keep_alive=version == "1.1" and parser.should_keep_alive(),
            chunks=version == "1.1",
            expects=self._expects,
        )
        self._receiving = exchange
        if self._answering is None:
            self._start(exchange)
        else:
            self._queue.append(exchange)
            self.pause_reading()  # there is enough to do

    def on_body(self, body: bytes) -> None:
        if self._receiving is not None:
            self._receiving.feed(body)

    def on_message_complete(self) -> None:
        exchange, self._receiving = self._receiving, None
        self._since = self.loop.time()
        if exchange is not None:
            exchange.complete()

    # Requests

    def _start(self, exchange: Exchange) -> None:
        self._answering = exchange
        task = self.loop.create_task(exchange.run(self.app))
        self.state.tasks.add(task)
        task.add_done_callback(self.state.tasks.discard)

    def answered(self, exchange: Exchange) -> None:
        """The answer has been written; the next request may be."""
        self._answering = None
        self._since = self.loop.time()
        self.state.total_requests += 1
        if self._stopping or not exchange.keep_alive:
            self.close()
            return
        if self._queue:
            self._start(self._queue.popleft())
        if not self._queue:
            self.resume_reading()

    def shutdown(self) -> None:
        """The server stops: the request being answered is the last."""
        self._stopping = True
        if self._answering is None:
            self.close()

    @property
    def last(self) -> bool:
        """Whether the connection ends with the answer under way."""
        return self._stopping

    def _refuse(self, status: int, text: str) -> None:
        """Says why nothing more is read, unless an answer is being written, which this would garble."""
        if self._answering is None:
            reason = {400: "Bad Request", 431: "Request Header Fields Too Large"}[status]
            self.write(
                f"HTTP/1.1 {status} {reason}\r\ncontent-type: text/plain; charset=utf-8\r\n"
                f"content-length: {len(text)}\r\nconnection: close\r\n\r\n{text}".encode()
            )
        self.close()

    def _look(self) -> None:
        """Ends a connection that idles for long, or that is slow with what it owes."""
        waited = self.loop.time() - self._since
        owes = self._reading_head or self._receiving is not None  # a body that is wanted has a time limit of its own
        if self._answering is None and waited > (PATIENCE if owes else self._keep_alive):
            self.close()
            return
        self._timer = self.loop.call_later(_LOOK, self._look)


def _split(url: bytes) -> tuple[str, bytes]:
    """Path and query of what a request line asks for."""
    if url.startswith(b"/") and b"#" not in url:
        raw, _, query = url.partition(b"?")
    else:
        parsed = httptools.parse_url(url)
        raw, query = parsed.path or b"/", parsed.query or b""
    path = raw.decode("ascii")
    return (unquote(path) if "%" in path else path), query
