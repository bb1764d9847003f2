"""A small HTTP server on aiohttp, for endpoints beside the main work of a process."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web


class SideServer:
    """Base of servers that start with an aiohttp application."""

    def __init__(self, host: str, port: int) -> None:
        self.port = port  # 0: any free port; the actual one after `serve`
        self._host = host
        self._runner: web.AppRunner | None = None

    async def serve(self, application: web.Application, tls: ssl.SSLContext | None = None) -> None:
        from aiohttp import web

        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self.port, ssl_context=tls).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
