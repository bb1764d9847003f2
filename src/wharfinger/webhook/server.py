"""The webhook server: runs the application, its informers, and the upkeep of certificates and configurations."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from prometheus_client import CollectorRegistry

from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import ApiError
from wharfinger.api.kinds import registry as known_kinds
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.memory import settle_heap
from wharfinger.client.metrics_access import MetricsAccess
from wharfinger.client.timers import Clock, SystemClock, background_sleep
from wharfinger.http.server import TlsServer, uvicorn_config
from wharfinger.http.tls import server_context
from wharfinger.webhook.application import WebhookApplication
from wharfinger.webhook.certificates import CertificateSecret, WebhookCertificates
from wharfinger.webhook.configurations import WebhookEndpoint, ensure, ensure_conversion
from wharfinger.webhook.handler import WebhookContext, find_handlers

log = logging.getLogger(__name__)

UPKEEP_INTERVAL = 60.0  # seconds between checks of certificates and configurations
DRAIN = 5.0  # seconds to keep serving after reporting not ready


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    endpoint: WebhookEndpoint
    host: str = "0.0.0.0"
    port: int = 9443
    secret: str = "wharfinger-webhook"
    certificate_file: str = ""  # certificate files of the operator; none are issued then
    key_file: str = ""
    bundle_file: str = ""
    register: bool = True  # whether to write the webhook configurations
    drain: float = DRAIN
    configuration: Configuration = field(default_factory=Configuration)


class WebhookServer:
    """`run` serves until `stop` is called or the process gets a signal."""

    def __init__(self, client: Client, settings: WebhookSettings, *, clock: Clock | None = None) -> None:
        self._client = client
        self._settings = settings
        self._clock = SystemClock() if clock is None else clock
        self.metrics = CollectorRegistry()
        self.informers = InformerSet(client)
        self.registry = known_kinds()
        self.context = WebhookContext(
            client,
            self.informers,
            self.registry,
            settings.configuration,
            self.metrics,
            settings.endpoint.namespace,
        )
        self.handlers = find_handlers(self.context)
        self.application = WebhookApplication(
            self.handlers, self.registry, self.metrics, self._not_ready, MetricsAccess(client).check
        )
        self._tls: ssl.SSLContext | None = None
        self._serving: WebhookCertificates | None = None
        self._server: uvicorn.Server | None = None

    def _not_ready(self) -> str:
        waiting = sorted(informer.resource.group_plural for informer in self.informers if not informer.synced)
        return f"waiting for {', '.join(waiting)}" if waiting else ""

    async def run(self, started: Callable[[str], None] = lambda address: None) -> None:
        self.informers.start()
        upkeep: asyncio.Task[None] | None = None
        with socket.create_server((self._settings.host, self._settings.port), backlog=2048) as listener:
            try:
                tls = await self.refresh_certificates()
                config = uvicorn_config(self.application, graceful_shutdown=10)
                server = self._server = _DrainingServer(config, tls, self.application, self._settings.drain)
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

    # Certificates and configurations

    async def _keep_up(self) -> None:
        """Once reviews can be decided, creates the webhook configurations and keeps them and the certificates up to date."""
        await self.informers.wait_synced()
        settle_heap()  # the informers' objects stay; garbage collections over them would delay reviews
        while True:
            try:
                await self.refresh_certificates()
                await self._register()
                for handler in self.handlers:
                    await handler.upkeep()
            except (ApiError, OSError, ValueError) as error:
                log.warning("cannot update the webhook configurations, retrying in %d s: %s", UPKEEP_INTERVAL, error)
            await background_sleep(UPKEEP_INTERVAL)

    async def refresh_certificates(self) -> ssl.SSLContext:
        """Switches to the current certificates if they changed. Open connections are not affected."""
        current = await self._current()
        if self._tls is None or current != self._serving:
            self._tls = server_context(current.certificate, current.key, self._tls)
            self._serving = current
            log.info("serving certificate changed")
        return self._tls

    async def _current(self) -> WebhookCertificates:
        settings, endpoint = self._settings, self._settings.endpoint
        if settings.certificate_file:
            return _from_files(settings)
        namespace = endpoint.namespace or "default"
        secret = CertificateSecret(self._client, settings.secret, namespace, endpoint.names(), self._clock.now)
        return await secret.current(self._serving)

    async def _register(self) -> None:
        if not self._settings.register or self._serving is None:
            return
        endpoint, bundle = self._settings.endpoint, self._serving.bundle
        for line in await ensure(self._client, self.handlers, endpoint, bundle):
            log.info(line)
        for line in await ensure_conversion(self._client, self.registry, endpoint, bundle):
            log.info(line)


def _from_files(settings: WebhookSettings) -> WebhookCertificates:
    """The certificates in the operator's files, read every time because the operator may replace them."""
    bundle = Path(settings.bundle_file).read_bytes() if settings.bundle_file else b""
    certificate, key = Path(settings.certificate_file).read_bytes(), Path(settings.key_file).read_bytes()
    return WebhookCertificates(bundle, b"", certificate, key)


class _DrainingServer(TlsServer):
    """Reports not ready for some time before it stops listening."""

    def __init__(
        self, config: uvicorn.Config, tls: ssl.SSLContext, application: WebhookApplication, drain: float
    ) -> None:
        super().__init__(config, tls)
        self._application = application
        self._drain = drain

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.stopping = True
        await asyncio.sleep(self._drain)
        await super().shutdown(sockets)
