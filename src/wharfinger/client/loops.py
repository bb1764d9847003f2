"""The event loop of programs that talk to an API server."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import uvloop

log = logging.getLogger(__name__)


def new_event_loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_report)
    return loop


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """As by default, but for data that arrives on a TLS connection that we have closed: uvloop reports a fatal error with a
    traceback, though nothing is lost."""
    error = context.get("exception")
    if isinstance(error, RuntimeError) and str(error).endswith("the handler is closed"):
        log.debug("data on a closed connection: %s", error)
        return
    loop.default_exception_handler(context)
