"""The client of any Kubernetes API server over HTTP.

It authenticates, sends and retries what is safe to retry. `wire` encodes requests and decodes responses, the transport
owns the connections, and conflicts are up to the caller.
"""

from __future__ import annotations

import asyncio
import platform
import random
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import TypeVar, cast

import msgspec

import wharfinger
from wharfinger.api.errors import ApiError, Invalid, ServiceUnavailable, Unauthorized
from wharfinger.api.kubernetes_version import KubernetesVersion, version_of_server
from wharfinger.api.requests import ApiRequest
from wharfinger.client.access import ClusterAccess
from wharfinger.client.backoff import Backoff
from wharfinger.client.interface import Client, WatchEvent
from wharfinger.client.pool import PooledTransport
from wharfinger.client.transport import AiohttpTransport, Headers, Response, Transport, TransportError
from wharfinger.client.verbatim import PROTOBUF, changes_finalizers, with_finalizers
from wharfinger.client.wire import (
    JSON,
    HttpRequest,
    decode_response,
    encode_request,
    lines,
    read_error,
    read_event,
    read_warnings,
)

T = TypeVar("T")

RETRIES = 3  # of a safe request that failed
RETRIES_ON_REQUEST = 10  # of a request that the server asked to be sent again later (Retry-After)
RETRY_BASE, RETRY_LIMIT = 0.1, 5.0  # seconds
WATCH_SECONDS = (300.0, 600.0)  # duration of a watch, chosen at random so that watches do not all end together

_LONG = frozenset(("list", "deletecollection"))  # verbs with the longer timeout


class HttpClient(Client):
    def __init__(
        self,
        access: ClusterAccess,
        *,
        component: str = "",
        timeout: float = 30.0,
        list_timeout: float = 120.0,
        watch_inactivity: float = 120.0,
        in_flight: int = 0,
        retries: int = RETRIES,
        transport: Transport | None = None,
        rng: random.Random | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        """`in_flight` limits the number of concurrent requests, not counting watches; 0 means no limit. `on_warning` is
        called with each warning of the server."""
        self.access = access
        self._transport: Transport = transport or (
            AiohttpTransport(access) if access.proxy else PooledTransport(access)
        )
        self._timeout = timeout
        self._list_timeout = list_timeout
        self._watch_inactivity = watch_inactivity
        self._retries = retries
        self._rng = rng or random.Random()
        self._on_warning = on_warning
        self._limit = asyncio.Semaphore(in_flight) if in_flight else None
        self._manager = component or "wharfinger"
        agent = f"wharf/{wharfinger.__version__} ({platform.system().lower()}/{platform.machine()})"
        self._headers = [
            ("User-Agent", f"{agent} {component}".rstrip()),
            ("Accept", JSON),
            *access.impersonate.headers(),
        ]
        for name, value in self._headers:
            if not value.isprintable():
                raise ValueError(f"{name}: {value!r} contains a line break or another control character")

    async def send(self, request: ApiRequest[T]) -> T:
        try:
            response = await self._exchange(
                encode_request(request, self._manager),
                timeout=self._list_timeout if request.verb in _LONG else self._timeout,
                evicts=request.subresource == "eviction",
            )
        except Invalid:
            if not changes_finalizers(request):
                raise
            response = await self._change_finalizers(request)
        return cast("T", decode_response(request, response.body))

    async def _change_finalizers(self, request: ApiRequest[T]) -> Response:
        """Without a change of anything else, not even of white space: see `verbatim`."""
        reading: ApiRequest[T] = ApiRequest("get", request.resource, request.namespace, request.name)
        path = encode_request(reading, self._manager).path
        found = await self._exchange(HttpRequest("GET", path), timeout=self._timeout, accept=PROTOBUF)
        changed = HttpRequest("PUT", path, with_finalizers(found.body, request), PROTOBUF)
        return await self._exchange(changed, timeout=self._timeout)

    async def stream(self, request: ApiRequest[WatchEvent[T]]) -> AsyncIterator[WatchEvent[T]]:
        if request.timeout is None:
            request = msgspec.structs.replace(request, timeout=self._rng.uniform(*WATCH_SECONDS))
        path = encode_request(request, self._manager).path
        view = cast("type[T]", request.view)
        try:
            for last in (False, True):
                headers = await self._authorized(self._headers)
                async with self._transport.stream(path, headers, self._watch_inactivity) as response:
                    if response.status == 401 and not last and self.access.credentials.refused():
                        continue
                    if response.status != 200:
                        body = b"".join([chunk async for chunk in response.chunks])
                        raise read_error(Response(response.status, response.headers, body))
                    async for line in lines(response.chunks):
                        yield read_event(line, view)
                    return
        except TransportError as error:
            if error.sent:
                return  # the connection was lost or timed out: the caller resumes, as after any end of a watch
            raise ServiceUnavailable(str(error)) from error

    async def fetch(self, path: str) -> bytes:
        """The body of any path of the server, such as `/version` or `/openapi/v3`."""
        return (await self._exchange(HttpRequest("GET", path), timeout=self._timeout)).body

    async def kubernetes_version(self) -> KubernetesVersion:
        return version_of_server(msgspec.json.decode(await self.fetch("/version"), type=dict[str, object]))

    async def close(self) -> None:
        await self._transport.close()

    async def _exchange(
        self, request: HttpRequest, *, timeout: float, evicts: bool = False, accept: str = ""
    ) -> Response:
        """Sends a request until it succeeds or fails with an error that a retry cannot change."""
        safe = request.method == "GET"
        backoff = Backoff(RETRY_BASE, RETRY_LIMIT, rng=self._rng)
        headers: Headers = self._headers
        if accept:
            headers = [(name, accept if name == "Accept" else value) for name, value in headers]
        if request.body is not None:
            headers = [*headers, ("Content-Type", request.content_type)]
        renewed = False
        while True:
            try:
                response = await self._once(request, headers, timeout)
            except TransportError as error:
                # A write that the server may have seen is not sent again.
                if error.final or (error.sent and not safe) or backoff.failures >= self._retries:
                    raise ServiceUnavailable(str(error)) from error
                await asyncio.sleep(backoff.next())
                continue
            if self._on_warning is not None:
                for warning in read_warnings(response):
                    self._on_warning(warning)
            if response.status < 300:
                return response
            if response.status == 401 and not renewed and self.access.credentials.refused():
                renewed = True
                continue
            fault = read_error(response)
            delay = self._retry_delay(fault, backoff, safe, evicts)
            if delay is None:
                raise fault
            await asyncio.sleep(delay)

    def _retry_delay(self, fault: ApiError, backoff: Backoff, safe: bool, evicts: bool) -> float | None:
        """Seconds to wait before a retry; None: the error is final."""
        # An eviction refused by a disruption budget is final here: whether to insist is up to the caller.
        if fault.code == 429 and evicts:
            return None
        if fault.retry_after is not None and (fault.code == 429 or fault.code >= 500):
            if backoff.failures >= RETRIES_ON_REQUEST:
                return None
            backoff.failures += 1
            return fault.retry_after * (1 + 0.2 * self._rng.random())
        if (fault.code == 429 or (safe and fault.code in (502, 503, 504))) and backoff.failures < self._retries:
            return backoff.next()
        return None

    async def _once(self, request: HttpRequest, headers: Headers, timeout: float) -> Response:
        async with self._limit or nullcontext():
            headers = await self._authorized(headers)
            return await self._transport.request(request.method, request.path, headers, request.body, timeout)

    async def _authorized(self, headers: Headers) -> Headers:
        token = await self.access.credentials.token()
        if not token:
            return headers
        if not token.isprintable():
            raise Unauthorized("getting credentials: the token contains a line break or another control character")
        return [*headers, ("Authorization", f"Bearer {token}")]
