"""How our servers run uvicorn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import uvicorn

from wharfinger.http.connections import Connections
from wharfinger.http.protocol import HttpProtocol


def uvicorn_config(
    application: Callable[..., Any],
    *,
    graceful_shutdown: int,
    connections: Connections | None = None,
    **options: Any,
) -> uvicorn.Config:
    """`graceful_shutdown` is how many seconds requests have to finish when the server stops; `connections` limits how
    many a client may have."""
    return uvicorn.Config(
        application,
        http=cast("Any", partial(HttpProtocol, connections=connections)),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        # Longer than clients keep idle connections (Go: 90 s): the side that closes an idle connection loses
        # requests that are in flight.
        timeout_keep_alive=300,
        timeout_graceful_shutdown=graceful_shutdown,
        backlog=2048,
        **options,
    )
