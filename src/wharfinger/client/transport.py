"""How bytes get to an API server and back: a small interface, and its implementation on aiohttp (`pool` has a faster one).

A transport knows connections, TLS and timeouts. What a request means, and whether to send it again, is the client's
business.
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
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 30, 10, 3  # seconds, seconds, probes: a dead peer is noticed


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer whose body comes in pieces as they arrive."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class TransportError(Exception):
    """No (complete) answer came. `sent` tells whether the server may have seen the request; `final`, that trying again is
    of no use: a certificate does not get better."""

    def __init__(self, message: str, *, sent: bool, final: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.final = final


class Transport(Protocol):
    """Calls `check_fence` when a request has its connection and nothing is left to wait for."""

    async def request(
        self, method: str, path: str, headers: Headers, body: bytes | None, timeout: float
    ) -> Response: ...

    def stream(self, path: str, headers: Headers, inactivity: float) -> AbstractAsyncContextManager[Stream]:
        """A GET whose answer is read as it comes; TransportError when nothing comes for `inactivity` seconds."""
        ...

    async def close(self) -> None: ...


class AiohttpTransport:
    """The transport for every cluster: connection pool, TLS with rotating client certificates, proxies."""

    def __init__(self, access: ClusterAccess, *, connections: int = 100) -> None:
        self._access = access
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._tls: tuple[Certificate | None, ssl.SSLContext] | None = None
        self._secure = access.server.startswith("https:")

    async def request(self, method: str, path: str, headers: Headers, body: bytes | None, timeout: float) -> Response:
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, CONNECT_TIMEOUT))
        try:
            session, options = await self._prepare()
            async with session.request(
                method, self._url(path), headers=headers, data=body, timeout=limits, **options
            ) as answer:
                return Response(answer.status, answer.headers, await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._fault(error, timeout) from error

    @asynccontextmanager
    async def stream(self, path: str, headers: Headers, inactivity: float) -> AsyncIterator[Stream]:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=inactivity)
        try:
            session, options = await self._prepare()
            async with session.get(self._url(path), headers=headers, timeout=limits, **options) as answer:
                yield Stream(answer.status, answer.headers, answer.content.iter_any())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._fault(error, inactivity) from error

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _url(self, path: str) -> URL:
        # The path is already quoted, and quoting it again would cost time and change it.
        return URL(self._access.server + path, encoded=True)

    async def _prepare(self) -> tuple[aiohttp.ClientSession, dict[str, Any]]:
        """The session, and the options that go with every request; made on the loop that uses them."""
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._connections, keepalive_timeout=90, socket_factory=_socket, ttl_dns_cache=60
            )
            # No cookies, no decompression, no proxies or passwords from the surroundings.
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept-Encoding", "Accept", "Content-Type"),
                raise_for_status=False,
                requote_redirect_url=False,
                trace_configs=[_fence_checks()],
            )
        options: dict[str, Any] = {"allow_redirects": False}
        if self._secure:
            certificate = await self._access.credentials.certificate()
            if self._tls is None or self._tls[0] != certificate:
                # A new context means new connections: the old ones end with their last request.
                try:
                    self._tls = certificate, self._access.ssl_context(certificate)
                except ValueError as error:
                    raise TransportError(str(error), sent=False, final=True) from error
            options["ssl"] = self._tls[1]
            if self._access.server_name:
                options["server_hostname"] = self._access.server_name
        if self._access.proxy:
            options["proxy"] = self._access.proxy
        return self._session, options

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
    """Checks the fence when a request has got its connection, right before it is written."""

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
    """Lets the kernel find out that the other side is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL),
        ("TCP_KEEPCNT", KEEPALIVE_COUNT),
    ):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
