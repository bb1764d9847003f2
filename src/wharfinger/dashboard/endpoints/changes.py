"""What changed, as server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from wharfinger.dashboard.context import Dashboard
from wharfinger.dashboard.endpoints.registry import endpoint
from wharfinger.dashboard.sessions import Caller
from wharfinger.dashboard.state import Change, Subscription

COALESCE = 0.05  # seconds between two messages; the first change after a quiet time is told at once
KEEP_ALIVE = 15.0  # seconds between messages when nothing changes


@endpoint("GET", "/api/changes", "Server-sent events: the kinds of which an object changed. Ask for the screen again.")
async def changes(dashboard: Dashboard, caller: Caller, request: Request) -> Response:
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    stream = _stream(dashboard.state.subscribe(), caller)
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _stream(subscription: Subscription, caller: Caller) -> AsyncIterator[bytes]:
    told = 0.0
    try:
        yield b"retry: 2000\nevent: hello\ndata: {}\n\n"
        while True:
            changed = await subscription.take(KEEP_ALIVE)
            if not changed:
                yield b": nothing changed\n\n"
                continue
            wait = told + COALESCE - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
                changed |= await subscription.take(0)
            shown = await _listable(caller, changed)
            if shown:
                told = time.monotonic()
                yield b"event: changed\ndata: " + msgspec.json.encode(sorted(shown)) + b"\n\n"
    finally:
        subscription.close()


async def _listable(caller: Caller, changes: Iterable[Change]) -> set[str]:
    """The kinds of those changes that the caller may see."""
    found: set[str] = set()
    for resource, namespace in changes:
        if resource.plural not in found:
            everywhere = await caller.rights.may("list", resource)
            if everywhere or (namespace and await caller.rights.may("list", resource, namespace)):
                found.add(resource.plural)
    return found
