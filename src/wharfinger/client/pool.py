"""The fast transport: plain requests on a pool of connections of our own, watches through aiohttp.

Binding thousands of pods a second is the scheduler's main cost, and a general HTTP library spends most of it on what an
API server never asks for. Requests here are one write and one parse.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from contextlib import AbstractAsyncContextManager
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from wharfinger.client.access import Certificate, ClusterAccess
from wharfinger.client.fence import check_fence
from wharfinger.client.transport import (
    CONNECT_TIMEOUT,
    AiohttpTransport,
    Headers,
    Response,
    Stream,
    TransportError,
    keep_alive,
)

IDLE_SECONDS = 60.0  # a connection idle for longer is not used again: the server may be about to close it


class PooledTransport:
    """For servers that are reached directly, not through a proxy."""

    def __init__(self, access: ClusterAccess, *, connections: int = 100) -> None:
        self._access = access
        self._limit = connections
        parts = urlsplit(access.server)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._prefix = parts.path.rstrip("/")
        self._host_header = parts.netloc.rpartition("@")[2]
        self._streams = AiohttpTransport(access)
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()
        self._opening = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._tls: tuple[Certificate | None, ssl.SSLContext] | None = None

    async def request(self, method: str, path: str, headers: Headers, body: bytes | None, timeout: float) -> Response:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        data = self._encode(method, path, headers, body)
        connection = await self._take(deadline, timeout)
        timer = loop.call_at(deadline, connection.fail, f"no answer from {self._access.server} in {timeout:g} s")
        try:
            check_fence()  # here nothing is left to wait for
            return await connection.exchange(data)
        except asyncio.CancelledError:
            connection.abort()  # its answer may still come, and must not be taken for that of another request
            raise
        finally:
            timer.cancel()
            self._release(connection)

    def stream(self, path: str, headers: Headers, inactivity: float) -> AbstractAsyncContextManager[Stream]:
        return self._streams.stream(path, headers, inactivity)

    async def close(self) -> None:
        for connection in list(self._open):
            connection.abort()
        self._idle.clear()
        await self._streams.close()
        await asyncio.sleep(0)  # lets the connections learn that they are closed

    def _encode(self, method: str, path: str, headers: Headers, body: bytes | None) -> bytes:
        lines = [f"{method} {self._prefix}{path} HTTP/1.1\r\nHost: {self._host_header}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}\r\n")
        elif method != "GET":
            lines.append("Content-Length: 0\r\n")
        head = "".join(lines)
        # Nothing in a name, a token or a path may start a line of its own.
        if head.count("\n") != len(lines) + 1 or head.count("\r") != len(lines) + 1:
            raise TransportError("a header or the path contains a line break", sent=False, final=True)
        return head.encode() + b"\r\n" + (body or b"")

    async def _take(self, deadline: float, timeout: float) -> _Connection:
        """A connection for us alone: an idle one, a new one, or the next that is given back."""
        loop = asyncio.get_running_loop()
        tls = await self._context()
        while True:
            while self._idle:
                connection = self._idle.pop()
                fresh = loop.time() - connection.idle_since < IDLE_SECONDS
                if connection.usable and fresh and connection.tls is tls:
                    return connection
                connection.abort()
            if len(self._open) + self._opening < self._limit:
                return await self._connect(tls, max(0.0, min(CONNECT_TIMEOUT, deadline - loop.time())))
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter
            except TimeoutError:
                raise TransportError(
                    f"no connection to {self._access.server} free in {timeout:g} s", sent=False
                ) from None
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # the connection we were woken for is another's now
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    async def _context(self) -> ssl.SSLContext | None:
        if not self._secure:
            return None
        certificate = await self._access.credentials.certificate()
        if self._tls is None or self._tls[0] != certificate:
            try:
                self._tls = certificate, self._access.ssl_context(certificate)
            except ValueError as error:
                raise TransportError(str(error), sent=False, final=True) from error
        return self._tls[1]

    async def _connect(self, tls: ssl.SSLContext | None, timeout: float) -> _Connection:
        loop = asyncio.get_running_loop()
        self._opening += 1
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self, tls),
                    self._host,
                    self._port,
                    ssl=tls,
                    server_hostname=(self._access.server_name or self._host) if tls is not None else None,
                )
        except TimeoutError:
            raise self._unreachable(f"no connection in {timeout:g} s") from None
        except OSError as error:
            raise self._unreachable(str(error), final=isinstance(error, ssl.SSLCertVerificationError)) from error
        finally:
            self._opening -= 1
            self._wake()
        return connection

    def _unreachable(self, why: str, *, final: bool = False) -> TransportError:
        return TransportError(f"cannot connect to {self._access.server}: {why}", sent=False, final=final)

    def _release(self, connection: _Connection) -> None:
        if connection.usable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.abort()
        self._wake()

    def _made(self, connection: _Connection) -> None:
        self._open.add(connection)

    def _lost(self, connection: _Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


class _Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, pool: PooledTransport, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self.idle_since = 0.0
        self.usable = False  # open, and nothing of an earlier exchange is left on it
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Response] | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._in_body = False

    async def exchange(self, data: bytes) -> Response:
        if self._transport is None or not self.usable:
            raise TransportError(f"lost the connection to {self._pool._access.server} before it was used", sent=False)
        self._answer = asyncio.get_running_loop().create_future()
        self._headers, self._body, self._in_body = _Headers(), [], False
        self.usable = False
        self._transport.write(data)
        return await self._answer

    def fail(self, why: str) -> None:
        """Ends the exchange under way, and the connection with it."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(TransportError(why, sent=True))
        self.abort()

    def abort(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        keep_alive(cast(socket.socket, transport.get_extra_info("socket")))
        self.usable = True
        self._pool._made(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # nobody asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(f"{self._pool._access.server} does not answer in HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._pool._lost(self)
        if self._answer is None or self._answer.done():
            return
        unbounded = not ("content-length" in self._headers or "transfer-encoding" in self._headers)
        if self._in_body and unbounded and exc is None:
            self._finish()  # the end of the connection is the end of the answer
            return
        why = str(exc) if exc is not None else "the server closed it"
        self._answer.set_exception(
            TransportError(f"lost the connection to {self._pool._access.server}: {why}", sent=True)
        )

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        # A header that comes several times (warnings do) means the same as all its values with commas between them.
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # 100 Continue and the like: the answer is still to come
            self._headers, self._body, self._in_body = _Headers(), [], False
            return
        self.usable = self._parser.should_keep_alive()
        self._finish()

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done():
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._answer.set_result(Response(self._parser.get_status_code(), self._headers, body))


class _Headers(dict[str, str]):
    """Headers by lower-case name, asked for in any case."""

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)
