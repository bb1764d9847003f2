"""How our servers run uvicorn."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import uvicorn

from wharfinger.http.connections import Connections
from wharfinger.http.handshakes import Handshakes, TlsListener
from wharfinger.http.protocol import HttpProtocol


def uvicorn_config(
    application: Callable[..., Any],
    *,
    graceful_shutdown: int,
    connections: Connections | None = None,
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
    )


class TlsServer(uvicorn.Server):
    """Serves on sockets that it is given, over TLS, with a limit on incomplete handshakes."""

    def __init__(self, config: uvicorn.Config, tls: ssl.SSLContext, handshakes: Handshakes | None = None) -> None:
        super().__init__(config)
        self._tls = tls
        self._handshakes = Handshakes() if handshakes is None else handshakes

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        config = self.config

        def make() -> asyncio.Protocol:
            protocol: Callable[..., asyncio.Protocol] = config.http_protocol_class
            return protocol(config=config, server_state=self.server_state, app_state={})

        listeners = [TlsListener(each, self._tls, make, self._handshakes, config.backlog) for each in sockets or ()]
        self.servers = cast("Any", listeners)
        self.started = True
