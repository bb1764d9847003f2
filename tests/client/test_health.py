"""The endpoint for metrics and health."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Counter

from wharfinger.client.access import ClusterAccess
from wharfinger.client.metrics import HealthServer
from wharfinger.client.pool import PooledTransport


def test_it_serves_metrics_and_failed_checks() -> None:
    async def main() -> None:
        metrics = CollectorRegistry()
        Counter("things_total", "Things.", registry=metrics).inc()
        wrong = "informers have not synced"
        server = HealthServer(metrics, ready=lambda: wrong)
        await server.start()
        client = PooledTransport(ClusterAccess(f"http://127.0.0.1:{server.port}"))

        async def ask(path: str) -> tuple[int, str]:
            answer = await client.request("GET", path, [], None, 10)
            return answer.status, answer.body.decode()

        assert await ask("/metrics") == (
            200,
            "# HELP things_total Things.\n# TYPE things_total counter\nthings_total 1\n",
        )
        assert await ask("/healthz") == (200, "ok")
        assert await ask("/readyz") == (500, "informers have not synced")
        wrong = ""
        assert await ask("/readyz") == (200, "ok")
        assert (await ask("/secrets"))[0] == 404
        await client.close()
        await server.stop()

    asyncio.run(main())
