"""The webhook as a process: informers, certificates and configurations kept up, uvicorn around the application."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import uvicorn
from prometheus_client import CollectorRegistry

from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import ApiError
from wharfinger.api.kinds import registry as known_kinds
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.memory import settle_heap
from wharfinger.client.timers import Clock, SystemClock, background_sleep
from wharfinger.http.protocol import HttpProtocol
from wharfinger.webhook.application import Application
from wharfinger.webhook.certificates import Certificates, CertificateSecret
from wharfinger.webhook.configurations import Target, ensure, ensure_conversion
from wharfinger.webhook.handler import Context, find_handlers

log = logging.getLogger(__name__)

LOOK_AGAIN = 60.0  # seconds between looks at certificates and configurations
DRAIN = 5.0  # seconds in which we still serve after we said that we are not ready any more


@dataclass(frozen=True, slots=True)
class Settings:
    target: Target
    host: str = "0.0.0.0"
    port: int = 9443
    secret: str = "wharfinger-webhook"
    certificate_file: str = ""  # given certificates; then nothing is made or renewed here
    key_file: str = ""
    bundle_file: str = ""
    register: bool = True  # whether to write the webhook configurations
    drain: float = DRAIN
    configuration: Configuration = field(default_factory=Configuration)


class WebhookServer:
    """`run` serves until `stop` is called or the process is told to end."""

    def __init__(self, client: Client, settings: Settings, *, clock: Clock | None = None) -> None:
        self._client = client
        self._settings = settings
        self._clock = SystemClock() if clock is None else clock
        self.metrics = CollectorRegistry()
        self.informers = InformerSet(client)
        self.registry = known_kinds()
        self.context = Context(
            client,
            self.informers,
            self.registry,
            settings.configuration,
            self.metrics,
            settings.target.namespace,
        )
        self.handlers = find_handlers(self.context)
        self.application = Application(self.handlers, self.registry, self.metrics, self._not_ready)
        self._tls: ssl.SSLContext | None = None
        self._serving: Certificates | None = None
        self._server: uvicorn.Server | None = None

    def _not_ready(self) -> str:
        waiting = sorted(informer.resource.group_plural for informer in self.informers if not informer.synced)
        return f"waiting for {', '.join(waiting)}" if waiting else ""

    async def run(self, started: Callable[[str], None] = lambda address: None) -> None:
        self.informers.start()
        upkeep: asyncio.Task[None] | None = None
        with socket.create_server((self._settings.host, self._settings.port), backlog=2048) as listener:
            try:
                await self.refresh_certificates()
                server = self._server = _Server(self._config(), self.application, self._settings.drain)
                upkeep = asyncio.create_task(self._keep_up(), name="webhook upkeep")
                host, port = listener.getsockname()[:2]
                started(f"{host}:{port}")
                await server.serve([listener])
            finally:
                if upkeep is not None:
                    upkeep.cancel()
                    await asyncio.gather(upkeep, return_exceptions=True)
                await self.informers.stop()

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True

    def _config(self) -> uvicorn.Config:
        config = uvicorn.Config(
            self.application,
            http=cast("Any", HttpProtocol),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=300,  # API servers keep connections; who closes an idle one loses requests on their way
            timeout_graceful_shutdown=10,
        )
        config.load()
        config.ssl = self._tls
        return config

    # Certificates and configurations

    async def _keep_up(self) -> None:
        """Registers once reviews can be decided, and from then on keeps certificates and configurations right."""
        await self.informers.wait_synced()
        settle_heap()  # what the informers hold stays; looking through it again and again would hold reviews up
        while True:
            try:
                await self.refresh_certificates()
                await self._register()
            except (ApiError, OSError, ValueError) as error:
                log.warning("cannot keep the webhook configurations up, again in %d s: %s", LOOK_AGAIN, error)
            await background_sleep(LOOK_AGAIN)

    async def refresh_certificates(self) -> None:
        """Looks for newer certificates; new connections are served with them."""
        current = await self._current()
        if current == self._serving:
            return
        if self._tls is None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        # New connections use the new certificate; those that are open go on.
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
            certificate.write_bytes(current.certificate)
            key.touch(mode=0o600)
            key.write_bytes(current.key)
            self._tls.load_cert_chain(certificate, key)
        self._serving = current
        log.info("serving with a new certificate")

    async def _current(self) -> Certificates:
        settings, target = self._settings, self._settings.target
        if settings.certificate_file:
            return _given(settings)
        namespace = target.namespace or "default"
        secret = CertificateSecret(self._client, settings.secret, namespace, target.names(), self._clock.now)
        return await secret.current(self._serving)

    async def _register(self) -> None:
        if not self._settings.register or self._serving is None:
            return
        target, bundle = self._settings.target, self._serving.bundle
        for line in await ensure(self._client, self.handlers, target, bundle):
            log.info(line)
        for line in await ensure_conversion(self._client, self.registry, target, bundle):
            log.info(line)


def _given(settings: Settings) -> Certificates:
    """The certificates in files, read anew each time: whoever renews them replaces the files."""
    bundle = Path(settings.bundle_file).read_bytes() if settings.bundle_file else b""
    certificate, key = Path(settings.certificate_file).read_bytes(), Path(settings.key_file).read_bytes()
    return Certificates(bundle, b"", certificate, key)


class _Server(uvicorn.Server):
    """uvicorn's server, which says that it is not ready for a while before it stops to listen."""

    def __init__(self, config: uvicorn.Config, application: Application, drain: float) -> None:
        super().__init__(config)
        self._application = application
        self._drain = drain

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.stopping = True
        await asyncio.sleep(self._drain)
        await super().shutdown(sockets)
