"""One request and its response, with the `receive` and `send` of an ASGI application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wharfinger.http.protocol import HttpProtocol

log = logging.getLogger(__name__)

_BUFFER_LIMIT = 64 * 1024  # bytes of a request body to buffer before reading is paused
_JOIN_LIMIT = 64 * 1024  # up to this size a response body is copied to be written together with its head
_PIECE = 128 * 1024  # bytes of a large body that are written before the client must have read some

_DISCONNECT = {"type": "http.disconnect"}
_STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_FAILED = b"Internal Server Error"


class HttpExchange:
    __slots__ = (
        "_body",
        "_chunked",
        "_chunks",
        "_connection",
        "_done",
        "_expects",
        "_given",
        "_head",
        "_length",
        "_lost",
        "_started",
        "_waiting",
        "_whole",
        "keep_alive",
        "scope",
    )

    def __init__(
        self, connection: HttpProtocol, scope: dict[str, Any], *, keep_alive: bool, chunks: bool, expects: bool
    ) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self._connection = connection
        self._chunks = chunks  # the client understands chunked responses
        self._expects = expects  # the client waits for 100 Continue before it sends its body
        self._body: list[bytes] = []
        self._length = 0  # bytes in `_body`
        self._whole = False  # the whole body has arrived
        self._given = False  # the application has received it
        self._lost = False
        self._waiting: asyncio.Future[None] | None = None
        self._head = b""  # of the response, until it is written together with the first part of the body
        self._started = False
        self._chunked = False
        self._done = False

    # Called by the connection

    def feed(self, body: bytes) -> None:
        if self._done:
            return  # the application has already responded
        self._body.append(body)
        self._length += len(body)
        if self._length > _BUFFER_LIMIT:
            self._connection.pause_reading()
        self._wake()

    def complete(self) -> None:
        self._whole = True
        self._wake()

    def lost(self) -> None:
        self._lost = True
        self._wake()

    def taken_over(self) -> None:
        """Called when another protocol has taken over the connection; there is no response to write any more."""
        self._done = True

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # The application

    async def run(self, app: Callable[..., Awaitable[None]]) -> None:
        try:
            await app(self.scope, self.receive, self.send)
            broken = None if self._done or self._lost else "the application returned without a response"
        except asyncio.CancelledError:
            self._connection.close()
            raise
        except Exception:
            log.exception("%s %s failed", self.scope["method"], self.scope["path"])
            broken = "failed"
        if broken is None or self._lost:
            return
        if self._started or self._done:
            self._connection.close()  # part of the response has been written
            return
        log.error("%s %s: %s", self.scope["method"], self.scope["path"], broken)
        length = str(len(_FAILED)).encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", length)]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": _FAILED})

    async def receive(self) -> dict[str, Any]:
        if self._expects and not self._whole and not self._started:
            self._expects = False
            self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self._lost or self._done or self._body or (self._whole and not self._given)):
            self._waiting = self._connection.loop.create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        if self._lost or self._done:
            return _DISCONNECT
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        if self._length > _BUFFER_LIMIT:
            self._connection.resume_reading()
        self._body, self._length, self._given = [], 0, self._whole
        return {"type": "http.request", "body": body, "more_body": not self._whole}

    async def send(self, message: dict[str, Any]) -> None:
        connection = self._connection
        if message["type"] == "http.response.start":
            self._head = self._begin(message["status"], message.get("headers", ()))
            return
        if self._done or not (self._started or self._head):
            raise RuntimeError(f"{message['type']} is not allowed here")
        if connection.full:
            await connection.drain()
        if self._lost:
            return  # the client has disconnected
        body: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        if self.scope["method"] == "HEAD":
            body = b""
        elif self._chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if not more:
                body += b"0\r\n\r\n"
        if not self._started:
            self._started = True
            if len(body) > _JOIN_LIMIT:
                connection.write(self._head)
            else:
                body = self._head + body
            self._head = b""
        if len(body) > _PIECE:
            if not await self._write_pieces(body):
                return
        elif body:
            connection.write(body)
        if not more:
            self._done = True
            self._body.clear()
            connection.answered(self)
            self._wake()

    def respond(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Writes a whole response at once, which takes less time than to `send` it, and adds its `content-length`. False if
        that is not possible now."""
        connection = self._connection
        if self._head or self._started or self._done or self._lost or connection.full or len(body) > _JOIN_LIMIT:
            return False
        head = self._begin(status, (*headers, (b"content-length", b"%d" % len(body))))
        self._started = self._done = True
        connection.write(head if self.scope["method"] == "HEAD" else head + body)
        self._body.clear()
        connection.answered(self)
        self._wake()
        return True

    def write_now(self, data: bytes) -> bool:
        """Writes a part of a response that has started, which takes less time than to `send` it. False if that is not
        possible now, or if the part is too large."""
        connection = self._connection
        if not self._started or self._done or self._lost or connection.full or not 0 < len(data) <= _PIECE:
            return False
        connection.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        return True

    async def _write_pieces(self, body: bytes) -> bool:
        """Writes a large body as the client reads it; False if the client has disconnected. Written at once, it would be
        copied for every client that does not read."""
        connection, view = self._connection, memoryview(body)
        for start in range(0, len(body), _PIECE):
            if connection.full:
                await connection.drain()
            if self._lost:
                return False
            connection.write(view[start : start + _PIECE])
        return True

    def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        parts = [_STATUS.get(status) or b"HTTP/1.1 %d \r\n" % status]
        framed = status < 200 or status in (204, 304)
        for name, value in (*self._connection.state.default_headers, *headers):
            if name == b"content-length" or name == b"transfer-encoding":
                framed = True
            elif name == b"connection" and value == b"close":
                self.keep_alive = False
                continue
            parts += (name, b": ", value, b"\r\n")
        if not framed:
            if self._chunks:
                self._chunked = True
                parts.append(b"transfer-encoding: chunked\r\n")
            else:
                self.keep_alive = False  # the body ends with the connection
        if not self.keep_alive or self._connection.last:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)
