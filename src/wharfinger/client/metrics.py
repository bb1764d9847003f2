"""What a live process exposes: metrics of its controllers, and the endpoint for metrics and health."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from wharfinger.api.errors import ApiError, InternalError
from wharfinger.client.serving import SideServer
from wharfinger.http.metrics import CONTENT_TYPE, LATENCY_BUCKETS, LabelledSeries, exposition


class ControllerMetrics:
    """The observer of all controllers of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._adds = LabelledSeries(
            Counter("wharfinger_workqueue_adds_total", "Keys added to work queues.", ("controller",), registry=registry)
        )
        self._seconds = LabelledSeries(
            Histogram(
                "wharfinger_reconcile_duration_seconds",
                "Time to reconcile one key.",
                ("controller", "outcome"),
                registry=registry,
                buckets=LATENCY_BUCKETS,
            )
        )

    def added(self, controller: str) -> None:
        self._adds[(controller,)].inc()

    def reconciled(self, controller: str, seconds: float, outcome: str) -> None:
        self._seconds[controller, outcome].observe(seconds)


class HealthServer(SideServer):
    """Serves `/metrics`, `/healthz`, `/livez` and `/readyz`. A check returns an error message, or nothing.

    `may_read` returns the error for a request for metrics with the given Authorization header, or nothing. Health is told
    to everybody, as by the Kubernetes components.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        healthy: Callable[[], str] = lambda: "",
        ready: Callable[[], str] = lambda: "",
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        may_read: Callable[[str], Awaitable[ApiError | None]] | None = None,
    ) -> None:
        super().__init__(host, port)
        self._registry = registry
        self._tls = tls
        self._may_read = may_read
        self._checks = {"/healthz": healthy, "/livez": healthy, "/readyz": ready}

    async def start(self) -> None:
        from aiohttp import web

        async def metrics(request: web.Request) -> web.Response:
            if denied := await self._denied(request.headers.get("Authorization", "")):
                return web.Response(text=denied.message, status=denied.code)
            return web.Response(body=exposition(self._registry), headers={"Content-Type": CONTENT_TYPE})

        async def check(request: web.Request) -> web.Response:
            wrong = self._checks[request.path]()
            return web.Response(text=wrong or "ok", status=500 if wrong else 200)

        app = web.Application()
        app.router.add_get("/metrics", metrics)
        for path in self._checks:
            app.router.add_get(path, check)
        await self.serve(app, self._tls)

    async def _denied(self, authorization: str) -> ApiError | None:
        try:
            return await self._may_read(authorization) if self._may_read is not None else None
        except ApiError as error:
            return InternalError(f"cannot check the token: {error.message}")


class ControllerGauges:
    """Gauges of controllers, each made once: controllers are made again when a lease is acquired again."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._made: dict[str, Gauge] = {}

    def of(self, name: str, documentation: str, labels: Sequence[str]) -> Gauge:
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = Gauge(name, documentation, labels, registry=self._registry)
        return found
