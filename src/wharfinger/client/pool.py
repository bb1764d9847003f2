"""The default transport: a connection pool of our own for requests, and aiohttp for watches.

Binding pods is the scheduler's largest cost. Measured with binding POSTs to a trivial server over loopback, 32 at a
time, on uvloop, best of six runs: 21,100 requests per CPU second over TLS against 8,000 with aiohttp (2.6 times), and
50,100 against 9,400 without TLS (5.3 times); of the whole client, 15,100 against 6,300 over TLS. At 2,000 bindings a
second that saves the scheduler a fifth of a core. Each request here is one write and one parse.
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

from wharfinger.client.access import ClusterAccess
from wharfinger.client.fence import check_fence
from wharfinger.client.transport import (
    CONNECT_TIMEOUT,
    AiohttpTransport,
    Headers,
    Response,
    Stream,
    TlsContexts,
    TransportError,
    keep_alive,
)
from wharfinger.client.waiters import wake_next

IDLE_SECONDS = 60.0  # connections idle for longer are not reused: the server may be about to close them


class PooledTransport:
    """For servers that are reached directly, not through a proxy."""

    def __init__(self, access: ClusterAccess, *, connections: int = 100) -> None:
        self._access = access
        self._limit = connections
        parts = urlsplit(access.server)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._prefix = parts.path.rstrip("/")
        self._host_header = parts.netloc.rpartition("@")[2]
        self._streams = AiohttpTransport(access)
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()
        self._opening = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._tls = TlsContexts(access)

    async def request(self, method: str, path: str, headers: Headers, body: bytes | None, timeout: float) -> Response:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        data = self._encode(method, path, headers, body)
        connection = await self._take(deadline, timeout)
        timer = loop.call_at(deadline, connection.fail, f"no answer from {self._access.server} in {timeout:g} s")
        try:
            check_fence()  # no more waiting from here on
            return await connection.exchange(data)
        except asyncio.CancelledError:
            connection.abort()  # a late response must not be taken for the response to another request
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
        await asyncio.sleep(0)  # lets `connection_lost` run

    def _encode(self, method: str, path: str, headers: Headers, body: bytes | None) -> bytes:
        lines = [f"{method} {self._prefix}{path} HTTP/1.1\r\nHost: {self._host_header}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}\r\n")
        elif method != "GET":
            lines.append("Content-Length: 0\r\n")
        head = "".join(lines)
        # No name, token or path may inject a header line.
        if head.count("\n") != len(lines) + 1 or head.count("\r") != len(lines) + 1:
            raise TransportError("a header or the path contains a line break", sent=False, final=True)
        return head.encode() + b"\r\n" + (body or b"")

    async def _take(self, deadline: float, timeout: float) -> _Connection:
        """Returns a connection for exclusive use: an idle one, a new one, or the next to be released."""
        loop = asyncio.get_running_loop()
        tls = await self._tls.current()
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
                    wake_next(self._waiters)  # pass the free connection on
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

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
            wake_next(self._waiters)
        return connection

    def _unreachable(self, why: str, *, final: bool = False) -> TransportError:
        return TransportError(f"cannot connect to {self._access.server}: {why}", sent=False, final=final)

    def _release(self, connection: _Connection) -> None:
        now = asyncio.get_running_loop().time()
        if connection.usable:
            connection.idle_since = now
            self._idle.append(connection)
        else:
            connection.abort()
        # Those that only a burst of requests needed. Each holds a buffer of a quarter of a megabyte.
        while self._idle and now - self._idle[0].idle_since >= IDLE_SECONDS:
            self._idle.popleft().abort()
        wake_next(self._waiters)

    def _opened(self, connection: _Connection) -> None:
        self._open.add(connection)

    def _lost(self, connection: _Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        wake_next(self._waiters)


class _Connection(asyncio.Protocol):
    """One connection, which carries one request at a time."""

    def __init__(self, pool: PooledTransport, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self.idle_since = 0.0
        self.usable = False  # open, and not in the middle of an exchange
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
        """Fails the exchange in progress and closes the connection."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(TransportError(why, sent=True))
        self.abort()

    def abort(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        keep_alive(cast(socket.socket, transport.get_extra_info("socket")))
        self.usable = True
        self._pool._opened(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # data without a request
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(f"{self._pool._access.server} does not answer in HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._pool._lost(self)
        self._fail_for_good(exc)
        # These refer to the connection, too, and collections of cycles are rare: without them, the buffers are free now.
        self._transport = None
        del self._parser

    def _fail_for_good(self, exc: Exception | None) -> None:
        """Ends the exchange in progress: no more of the response will come."""
        if self._answer is None or self._answer.done():
            return
        unbounded = not ("content-length" in self._headers or "transfer-encoding" in self._headers)
        if self._in_body and unbounded and exc is None:
            self._finish()  # without a length, the response ends with the connection
            return
        why = str(exc) if exc is not None else "the server closed it"
        self._answer.set_exception(
            TransportError(f"lost the connection to {self._pool._access.server}: {why}", sent=True)
        )

    # Called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        # A repeated header (such as Warning) is equivalent to one with all values, separated by commas.
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # such as 100 Continue: the response follows
            self._headers, self._body, self._in_body = _Headers(), [], False
            return
        self.usable = self._parser.should_keep_alive()
        self._finish()

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done():
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._answer.set_result(Response(self._parser.get_status_code(), self._headers, body))


class _Headers(dict[str, str]):
    """Headers by lower-case name; look-ups ignore case."""

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)
