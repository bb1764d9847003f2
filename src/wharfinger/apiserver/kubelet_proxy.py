"""Requests that the API server passes on to other servers: kubelets, and what runs in pods.

Like upstream's UpgradeAwareHandler, it does not read the protocols of exec, attach and port-forward: after the response
that switches protocols, both connections are joined.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from yarl import URL

from wharfinger.api.errors import ApiError, BadRequest, InternalError
from wharfinger.api.registry import Document
from wharfinger.apiserver.exchange import ApiExchange, ClientGone
from wharfinger.http.tunnel import TunnelEnd

KUBELET_PORT = 10250
_ADDRESS_TYPES = ("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")  # in the order of kubeadm
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0  # for the response to a request to upgrade
_MAX_HEAD = 64 * 1024
_MAX_ERROR = 50 * 1024  # bytes of an error that are passed on
_OF_ONE_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)  # fmt: skip
_PRIVATE = (b"authorization", b"host", b"x-forwarded-uri", b"x-forwarded-host", b"x-forwarded-proto")


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    """A server to pass requests on to; without TLS settings it is called with plain HTTP."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def url(self, path: str, query: str) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{self.authority}{path}{'?' if query else ''}{query}"


class KubeletProxy:
    """Connects clients to kubelets. `load_tls` returns the settings with our client certificate, for each connection, so
    that a renewed certificate is used."""

    def __init__(self, load_tls: Callable[[], ssl.SSLContext]) -> None:
        self._load_tls = load_tls
        self._tunnels: set[TunnelEnd] = set()
        self._sessions: set[aiohttp.ClientSession] = set()

    def kubelet(self, node: Document) -> ProxyTarget:
        """Where the kubelet of a node serves. Raises ApiError if the node has no address."""
        status = node.get("status") or {}
        addresses = {one.get("type"): one.get("address") for one in reversed(status.get("addresses") or [])}
        host = next((addresses[kind] for kind in _ADDRESS_TYPES if addresses.get(kind)), None)
        if host is None:
            raise ApiError(
                f"no preferred addresses found; known addresses: {list(addresses.values())}", code=500, reason=""
            )
        port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or KUBELET_PORT
        return ProxyTarget(host, port, self._load_tls())

    async def forward(self, exchange: ApiExchange, node: Document, path: str, query: str, *, upgrade: bool) -> None:
        """Sends the request to the kubelet of a node under another path and query, and its response to the client.

        With `upgrade`, the client must ask for another protocol (SPDY or WebSocket), and both connections are joined.
        Otherwise the response is a stream, and an error becomes a Status.
        """
        target = self.kubelet(node)
        if not upgrade:
            await self._stream(exchange, target, path, query)
        elif exchange.take_over is None:
            raise BadRequest("Upgrade request required")
        else:
            await self._join(exchange, target, path, query)

    async def relay(self, exchange: ApiExchange, target: ProxyTarget, path: str, query: str) -> None:
        """Sends the request to a server under another path and query, and its response as it is to the client."""
        if exchange.take_over is not None:
            await self._join(exchange, target, path, query)
            return
        headers = [(name.decode(), value.decode("latin-1")) for name, value in _passed(exchange, _OF_ONE_HOP)]
        async with self._response(exchange, target, path, query, headers) as response:
            passed = [
                (name.lower().encode(), value.encode("latin-1", "replace"))
                for name, value in response.headers.items()
                if name.lower().encode() not in _OF_ONE_HOP
            ]
            await exchange.start_raw(response.status, passed)
            await _copy(response, exchange)

    async def fetch(self, node: Document, path: str) -> str:
        """What the kubelet of a node answers to a GET request. Raises ApiError."""
        target = self.kubelet(node)
        timeout = aiohttp.ClientTimeout(total=_CONNECT_SECONDS)
        connector = aiohttp.TCPConnector(ssl=target.tls or False, force_close=True)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
                session.get(target.url(path, ""), allow_redirects=False) as response,
            ):
                text = await response.text()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiError(_reason(target, error), code=500, reason="") from None
        if response.status != 200:
            raise _status_error(response.status, text[:_MAX_ERROR])
        return text

    def close(self) -> None:
        """Ends all connections that were passed on."""
        for tunnel in list(self._tunnels):
            tunnel.close()
        for session in list(self._sessions):
            # Closes the connections at once; the requests that read from them fail.
            if session.connector is not None:
                session.connector._close()

    # Plain responses

    def _response(
        self, exchange: ApiExchange, target: ProxyTarget, path: str, query: str, headers: list[tuple[str, str]]
    ) -> _Response:
        return _Response(self._sessions, exchange, target, URL(target.url(path, query), encoded=True), headers)

    async def _stream(self, exchange: ApiExchange, target: ProxyTarget, path: str, query: str) -> None:
        async with self._response(exchange, target, path, query, []) as response:
            if not 200 <= response.status <= 206:
                text = (await response.content.read(_MAX_ERROR)).decode("utf-8", "replace")
                raise _status_error(response.status, text)
            await exchange.start_stream("text/plain")
            await exchange.stream(b"")
            await _copy(response, exchange)

    # Upgraded connections

    async def _join(self, exchange: ApiExchange, target: ProxyTarget, path: str, query: str) -> None:
        assert exchange.take_over is not None
        backend = await self._dial(target)
        self._tunnels.add(backend)
        try:
            backend.write(_request_head(exchange, target, path, query))
            head, rest = await _response_head(backend)
            status = _status_of(head)
            if status != 101:
                body = await _error_body(backend, head, rest)
                await exchange.answer(status, body, _header_of(head, b"content-type") or "text/plain; charset=utf-8")
                return
            exchange.status = 101
            client = TunnelEnd()
            if exchange.take_over(client) is None:
                raise ClientGone
            client.write(head + rest)
            client.join(backend)
            await backend.closed.wait()
        finally:
            self._tunnels.discard(backend)
            backend.close()

    async def _dial(self, target: ProxyTarget) -> TunnelEnd:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, backend = await loop.create_connection(TunnelEnd, target.host, target.port, ssl=target.tls)
        except (OSError, TimeoutError) as error:
            raise ApiError(f"error dialing backend: {_reason(target, error)}", code=500, reason="") from None
        return backend


class _Response:
    """The response of a server to the request of a client, until the block ends or the client leaves."""

    def __init__(
        self,
        sessions: set[aiohttp.ClientSession],
        exchange: ApiExchange,
        target: ProxyTarget,
        url: URL,
        headers: list[tuple[str, str]],
    ) -> None:
        self._sessions = sessions
        self._exchange = exchange
        self._target = target
        self._url = url
        self._headers = headers
        self._session: aiohttp.ClientSession | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> aiohttp.ClientResponse:
        exchange = self._exchange
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        connector = aiohttp.TCPConnector(ssl=self._target.tls or False, force_close=True)
        session = self._session = aiohttp.ClientSession(
            timeout=timeout,
            connector=connector,
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
        )
        self._sessions.add(session)
        body = exchange.body_chunks() if exchange.has_body else None
        try:
            response = await session.request(
                exchange.method, self._url, headers=self._headers, data=body, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await self.__aexit__()
            cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
            text = f'{exchange.method.title()} "{self._url}": {_reason(self._target, cause)}'
            raise ApiError(text, code=500, reason="") from None
        except BaseException:
            await self.__aexit__()
            raise
        self._leaving = asyncio.ensure_future(exchange.gone())
        self._leaving.add_done_callback(lambda _: response.close())
        return response

    async def __aexit__(self, *_: object) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        if self._session is not None:
            self._sessions.discard(self._session)
            await self._session.close()


async def _copy(response: aiohttp.ClientResponse, exchange: ApiExchange) -> None:
    try:
        async for chunk in response.content.iter_any():
            await exchange.stream(chunk)
    except (aiohttp.ClientError, OSError):
        raise ClientGone from None  # one of both sides has closed; the client sees an incomplete response
    await exchange.stream(b"", more=False)


def _passed(exchange: ApiExchange, left_out: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    """The headers of a client for another server: without its credentials."""
    return [
        (name, value)
        for name, value in exchange.raw_headers
        if name not in _PRIVATE and name not in left_out and not name.startswith(b"impersonate-")
    ]


def _request_head(exchange: ApiExchange, target: ProxyTarget, path: str, query: str) -> bytes:
    lines = [
        f"{exchange.method} {path}{'?' if query else ''}{query} HTTP/1.1".encode("latin-1"),
        b"host: " + target.authority.encode(),
        *(name + b": " + value for name, value in _passed(exchange, frozenset())),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _response_head(backend: TunnelEnd) -> tuple[bytes, bytes]:
    """The head of a response with the empty line, and what came after it."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            while b"\r\n\r\n" not in backend.early:
                if backend.closed.is_set() or len(backend.early) > _MAX_HEAD:
                    raise ApiError("error dialing backend: no valid response", code=500, reason="")
                backend.arrived.clear()
                await backend.arrived.wait()
    except TimeoutError:
        raise ApiError("error dialing backend: i/o timeout", code=500, reason="") from None
    head, _, rest = bytes(backend.early).partition(b"\r\n\r\n")
    backend.early.clear()
    return head + b"\r\n\r\n", rest


async def _error_body(backend: TunnelEnd, head: bytes, body: bytes) -> bytes:
    """The body of a response that refuses the upgrade."""
    length = _header_of(head, b"content-length")
    wanted = min(int(length), _MAX_ERROR) if length.isdigit() else _MAX_ERROR
    try:
        async with asyncio.timeout(1.0):
            while len(body) < wanted and not backend.closed.is_set():
                backend.arrived.clear()
                await backend.arrived.wait()
                body += bytes(backend.early)
                backend.early.clear()
    except TimeoutError:
        pass
    return body[:wanted]


def _status_of(head: bytes) -> int:
    parts = head.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1][:3].isdigit():
        raise ApiError("error dialing backend: malformed HTTP response", code=500, reason="")
    return int(parts[1][:3])


def _header_of(head: bytes, name: bytes) -> str:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip().decode("latin-1")
    return ""


def _status_error(status: int, text: str) -> ApiError:
    """After GenericHttpResponseChecker of upstream's registry."""
    if status == 400:
        return BadRequest(text)
    if status == 500:
        return InternalError(f"Internal error occurred: {text}")
    reasons = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 503: "ServiceUnavailable"}
    return ApiError(text, code=status, reason=reasons.get(status, ""))


def _reason(target: ProxyTarget, error: BaseException) -> str:
    """The words of a Go client for an error."""
    if isinstance(error, TimeoutError):
        return f"dial tcp {target.authority}: i/o timeout"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno is not None:
        return f"dial tcp {target.authority}: connect: {os.strerror(error.errno).lower()}"
    return f"dial tcp {target.authority}: {error}"
