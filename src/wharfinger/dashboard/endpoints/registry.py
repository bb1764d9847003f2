"""Endpoints are declared with what OpenAPI says about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from wharfinger.api.errors import BadRequest, TooLarge
from wharfinger.dashboard.context import Dashboard
from wharfinger.dashboard.sessions import Caller

BODY_LIMIT = 4 << 20  # bytes

Handler = Callable[[Dashboard, Caller, Request], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    summary: str
    handler: Handler
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the query
    body: Mapping[str, Any] | None = None  # its schema


ENDPOINTS: list[Endpoint] = []


def endpoint(method: str, path: str, summary: str, **more: Any) -> Callable[[Handler], Handler]:
    def declare(handler: Handler) -> Handler:
        ENDPOINTS.append(Endpoint(method, path, summary, handler, **more))
        return handler

    return declare


async def body_of(request: Request) -> bytes:
    found = bytearray()
    try:
        async for chunk in request.stream():
            found += chunk
            if len(found) > BODY_LIMIT:
                raise TooLarge(f"the request has more than {BODY_LIMIT >> 20} MB")
    except ClientDisconnect:
        raise BadRequest("the request was not sent to its end") from None
    return bytes(found)


async def read_body(request: Request, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(await body_of(request) or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body cannot be used: {error}") from error
