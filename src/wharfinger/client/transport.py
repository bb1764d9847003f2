"""The transport interface, and its implementation on aiohttp; `pool` has a faster one.

A transport owns connections, TLS and timeouts. It does not interpret requests, and leaves retries to the client.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from yarl import URL

from wharfinger.client.access import Certificate, ClusterAccess
from wharfinger.client.fence import check_fence

Headers = Sequence[tuple[str, str]]

CONNECT_TIMEOUT = 10.0
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 30, 10, 3  # seconds, seconds, probes


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Stream:
    """A response whose body is read while it arrives."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class TransportError(Exception):
    """There was no complete response.

    `sent`: the server may have seen the request. `final`: a retry is pointless, as with an invalid certificate.
    """

    def __init__(self, message: str, *, sent: bool, final: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.final = final


class Transport(Protocol):
    """Implementations call `check_fence` once a request has its connection, right before sending it."""

    async def request(
        self, method: str, path: str, headers: Headers, body: bytes | None, timeout: float
    ) -> Response: ...

    def stream(self, path: str, headers: Headers, inactivity: float) -> AbstractAsyncContextManager[Stream]:
        """Sends a GET and reads the response while it arrives. Raises TransportError after `inactivity` seconds of
        silence."""
        ...

    async def close(self) -> None: ...


class TlsContexts:
    """The TLS context for new connections, replaced when the client certificate is rotated."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._secure = access.server.startswith("https:")
        self._made: tuple[Certificate | None, ssl.SSLContext] | None = None

    async def current(self) -> ssl.SSLContext | None:
        if not self._secure:
            return None
        certificate = await self._access.credentials.certificate()
        if self._made is None or self._made[0] != certificate:
            try:
                self._made = certificate, self._access.ssl_context(certificate)
            except ValueError as error:
                raise TransportError(str(error), sent=False, final=True) from error
        return self._made[1]


def _session(connections: int) -> aiohttp.ClientSession:
    """A session with at most that many connections, 0 for any number; created inside the running loop."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=connections, keepalive_timeout=90, socket_factory=_socket, ttl_dns_cache=60
        ),
        # No cookies, no decompression, and no proxies or passwords from the environment.
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept-Encoding", "Accept", "Content-Type"),
        raise_for_status=False,
        requote_redirect_url=False,
        trace_configs=[_fence_checks()],
    )


class AiohttpTransport:
    """Works for every cluster, including those behind a proxy."""

    def __init__(self, access: ClusterAccess, *, connections: int = 100) -> None:
        self._access = access
        self._connections = connections  # for requests; each stream has one of its own, however many there are
        self._session: aiohttp.ClientSession | None = None
        self._streaming: aiohttp.ClientSession | None = None
        self._tls = TlsContexts(access)

    async def request(self, method: str, path: str, headers: Headers, body: bytes | None, timeout: float) -> Response:
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, CONNECT_TIMEOUT))
        try:
            options = await self._options()
            if self._session is None:
                self._session = _session(self._connections)
            async with self._session.request(
                method, self._url(path), headers=headers, data=body, timeout=limits, **options
            ) as answer:
                return Response(answer.status, answer.headers, await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._fault(error, timeout) from error

    @asynccontextmanager
    async def stream(self, path: str, headers: Headers, inactivity: float) -> AsyncIterator[Stream]:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=inactivity)
        try:
            options = await self._options()
            if self._streaming is None:
                self._streaming = _session(0)
            async with self._streaming.get(self._url(path), headers=headers, timeout=limits, **options) as answer:
                yield Stream(answer.status, answer.headers, answer.content.iter_any())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._fault(error, inactivity) from error

    async def close(self) -> None:
        sessions, self._session, self._streaming = (self._session, self._streaming), None, None
        for session in sessions:
            if session is not None:
                await session.close()

    def _url(self, path: str) -> URL:
        # The path is already quoted; quoting it again would change it.
        return URL(self._access.server + path, encoded=True)

    async def _options(self) -> dict[str, Any]:
        """The options of each request."""
        options: dict[str, Any] = {"allow_redirects": False}
        tls = await self._tls.current()
        if tls is not None:
            options["ssl"] = tls  # aiohttp opens new connections for a new context
            if self._access.server_name:
                options["server_hostname"] = self._access.server_name
        if self._access.proxy:
            options["proxy"] = self._access.proxy
        return options

    def _fault(self, error: Exception, timeout: float) -> TransportError:
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            why = str(getattr(error, "os_error", None) or error) or "no connection in time"
            final = isinstance(error, aiohttp.ClientConnectorCertificateError)
            return TransportError(f"cannot connect to {self._access.server}: {why}", sent=False, final=final)
        if isinstance(error, TimeoutError):
            return TransportError(f"no answer from {self._access.server} in {timeout:g} s", sent=True)
        return TransportError(
            f"lost the connection to {self._access.server}: {str(error) or type(error).__name__}", sent=True
        )


def _fence_checks() -> aiohttp.TraceConfig:
    """Checks the fence once a request has its connection, right before it is written."""

    async def check(*_: Any) -> None:
        check_fence()

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(check)
    trace.on_connection_reuseconn.append(check)
    return trace


def _socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    keep_alive(made)
    return made


def keep_alive(connection: socket.socket) -> None:
    """Lets the kernel detect a dead peer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL),
        ("TCP_KEEPCNT", KEEPALIVE_COUNT),
    ):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
