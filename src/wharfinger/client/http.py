"""The client of any Kubernetes API server over HTTP.

It builds requests, turns answers into documents, views and errors, and sends again what may safely be sent again.
Conflicts are the caller's business; connections are the transport's.
"""

from __future__ import annotations

import asyncio
import platform
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

import wharfinger
from wharfinger.api.errors import ApiError, BadRequest, ServiceUnavailable, Unauthorized
from wharfinger.api.registry import Document, Resource
from wharfinger.client.access import ClusterAccess
from wharfinger.client.backoff import Backoff
from wharfinger.client.interface import Page, PatchType, WatchEvent
from wharfinger.client.pool import PooledTransport
from wharfinger.client.transport import AiohttpTransport, Headers, Response, Transport, TransportError
from wharfinger.client.wire import lines, read_error, read_event, read_object, read_page, read_warnings

T = TypeVar("T")

JSON = "application/json"
RETRIES = 3  # further tries of a safe request that failed
PATIENCE = 10  # further tries of a request that the server asked to send later
RETRY_BASE, RETRY_LIMIT = 0.1, 5.0
WATCH_SECONDS = (300.0, 600.0)  # how long a watch is asked to last, at random, so that not all end together

_is_plain = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*)?").fullmatch  # most names: nothing to quote, nothing to refuse


class HttpClient:
    """Implements `wharfinger.client.interface.Client`."""

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
        """`in_flight` limits how many requests (watches aside) are under way at once; 0 means no limit. `on_warning` is
        told what the server warns of."""
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

    async def get(
        self, resource: Resource, name: str, namespace: str = "", *, view: Any = dict, subresource: str = ""
    ) -> Any:
        answer = await self._send("GET", _path(resource, namespace, name, subresource))
        return read_object(answer.body, view)

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        view: Any = dict,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Page[Any]:
        query = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "limit": str(limit) if limit else "",
            "continue": continue_token,
            "resourceVersion": resource_version,
        }
        answer = await self._send("GET", _path(resource, namespace) + _query(query), timeout=self._list_timeout)
        page = read_page(answer.body, view)
        if view is dict:
            for item in page.items:
                # API servers leave out in lists what the list itself says.
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
        return page

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        view: type[T],
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout: float | None = None,
    ) -> AsyncIterator[WatchEvent[T]]:
        seconds = self._rng.uniform(*WATCH_SECONDS) if timeout is None else timeout
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(seconds))),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        path = _path(resource, namespace) + _query(query)
        try:
            for last in (False, True):
                headers = await self._authorized(self._headers)
                async with self._transport.stream(path, headers, self._watch_inactivity) as answer:
                    if answer.status == 401 and not last and self.access.credentials.refused():
                        continue
                    if answer.status != 200:
                        body = b"".join([chunk async for chunk in answer.chunks])
                        raise read_error(Response(answer.status, answer.headers, body))
                    async for line in lines(answer.chunks):
                        yield read_event(line, view)
                    return
        except TransportError as error:
            if error.sent:
                return  # the connection ended or fell silent: the caller resumes, as after any end
            raise ServiceUnavailable(str(error)) from error

    async def create(
        self,
        resource: Resource,
        document: Document,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Document:
        namespace = namespace or _namespace(document)
        path = _path(resource, namespace, name, subresource) + self._write_query(dry_run)
        return await self._write("POST", path, document, evicts=subresource == "eviction")

    async def update(
        self,
        resource: Resource,
        document: Document,
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Document:
        name = str(document.get("metadata", {}).get("name") or "")
        if not name:
            raise BadRequest("metadata.name: an update needs the name of its object")
        path = _path(resource, namespace or _namespace(document), name, subresource)
        return await self._write("PUT", path + self._write_query(dry_run), document)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> Document:
        query = self._write_query(dry_run, field_manager, force)
        path = _path(resource, namespace, name, subresource) + query
        return await self._write("PATCH", path, patch, content_type=type.value)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace_period: int | None = None,
        propagation: str = "",
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> Document:
        options: Document = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_period is not None:
            options["gracePeriodSeconds"] = grace_period
        if propagation:
            options["propagationPolicy"] = propagation
        preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
        if preconditions:
            options["preconditions"] = preconditions
        if dry_run:
            options["dryRun"] = ["All"]
        return await self._write("DELETE", _path(resource, namespace, name), options)

    async def delete_collection(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> None:
        query = _query({"labelSelector": label_selector, "fieldSelector": field_selector})
        await self._write("DELETE", _path(resource, namespace) + query, None, timeout=self._list_timeout)

    async def fetch(self, path: str) -> bytes:
        """The body of any path of the server, such as `/version` or `/openapi/v3`."""
        return (await self._send("GET", path)).body

    async def close(self) -> None:
        await self._transport.close()

    def _write_query(self, dry_run: bool, manager: str = "", force: bool = False) -> str:
        return _write_query(dry_run, manager or self._manager, force)

    async def _write(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        content_type: str = JSON,
        evicts: bool = False,
        timeout: float | None = None,
    ) -> Document:
        data = None if body is None else msgspec.json.encode(body)
        answer = await self._send(method, path, data, content_type=content_type, evicts=evicts, timeout=timeout)
        found: Document = read_object(answer.body, dict)
        return found

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        evicts: bool = False,
        timeout: float | None = None,
    ) -> Response:
        """Sends until there is an answer to give: a good one, or an error that trying again will not change."""
        safe = method == "GET"
        backoff = Backoff(RETRY_BASE, RETRY_LIMIT, rng=self._rng)
        headers = self._headers if body is None else [*self._headers, ("Content-Type", content_type)]
        renewed = False
        while True:
            try:
                answer = await self._once(method, path, headers, body, self._timeout if timeout is None else timeout)
            except TransportError as error:
                # What never left may go again; what may have arrived, only if arriving twice does no harm.
                if error.final or (error.sent and not safe) or backoff.failures >= self._retries:
                    raise ServiceUnavailable(str(error)) from error
                await asyncio.sleep(backoff.next())
                continue
            if self._on_warning is not None:
                for warning in read_warnings(answer):
                    self._on_warning(warning)
            if answer.status < 300:
                return answer
            if answer.status == 401 and not renewed and self.access.credentials.refused():
                renewed = True
                continue
            fault = read_error(answer)
            delay = self._again_in(fault, backoff, safe, evicts)
            if delay is None:
                raise fault
            await asyncio.sleep(delay)

    def _again_in(self, fault: ApiError, backoff: Backoff, safe: bool, evicts: bool) -> float | None:
        """How long to wait before sending again; None if the error is the answer."""
        # An eviction refused for a disruption budget is an answer: whether to insist is the caller's decision.
        if fault.code == 429 and evicts:
            return None
        if fault.retry_after is not None and (fault.code == 429 or fault.code >= 500):
            if backoff.failures >= PATIENCE:
                return None
            backoff.failures += 1
            return fault.retry_after * (1 + 0.2 * self._rng.random())
        if (fault.code == 429 or (safe and fault.code in (502, 503, 504))) and backoff.failures < self._retries:
            return backoff.next()
        return None

    async def _once(self, method: str, path: str, headers: Headers, body: bytes | None, timeout: float) -> Response:
        async with self._limit or nullcontext():
            return await self._transport.request(method, path, await self._authorized(headers), body, timeout)

    async def _authorized(self, headers: Headers) -> Headers:
        token = await self.access.credentials.token()
        if not token:
            return headers
        if not token.isprintable():
            raise Unauthorized("getting credentials: the token contains a line break or another control character")
        return [*headers, ("Authorization", f"Bearer {token}")]


def _path(resource: Resource, namespace: str = "", name: str = "", subresource: str = "") -> str:
    if not _is_plain(namespace) or not _is_plain(name):
        for part in (namespace, name):
            if part in (".", ".."):
                raise BadRequest(f'"{part}" is not a name')
        namespace, name = quote(namespace, safe=""), quote(name, safe=":")
    return resource.path(namespace, name, subresource)


def _query(parameters: dict[str, str]) -> str:
    given = {name: value for name, value in parameters.items() if value}
    return "?" + urlencode(given, quote_via=quote) if given else ""


@lru_cache(maxsize=64)
def _write_query(dry_run: bool, manager: str, force: bool) -> str:
    return _query({"fieldManager": manager, "force": "true" if force else "", "dryRun": "All" if dry_run else ""})


def _namespace(document: Document) -> str:
    return str(document.get("metadata", {}).get("namespace") or "")
