"""The endpoint for metrics and health."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from wharfinger.api.errors import ApiError, Forbidden, ServiceUnavailable, Unauthorized
from wharfinger.client.access import ClusterAccess
from wharfinger.client.metrics import HealthServer
from wharfinger.client.pool import PooledTransport
from wharfinger.http.tls import self_signed_context


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


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (None, 200, "things_total 1"),
        (Unauthorized("metrics need a bearer token"), 401, "metrics need a bearer token"),
        (Forbidden("no"), 403, "no"),
        (ServiceUnavailable("the API server is away"), 500, "cannot check the token: the API server is away"),
    ],
)
def test_by_tls_metrics_are_for_those_who_may_read_them_and_health_for_everybody(
    answer: ApiError | None, status: int, said: str
) -> None:
    asked: list[str] = []

    async def may_read(header: str) -> ApiError | None:
        asked.append(header)
        if isinstance(answer, ServiceUnavailable):
            raise answer
        return answer

    async def main() -> None:
        metrics = CollectorRegistry()
        Counter("things_total", "Things.", registry=metrics).inc()
        tls = self_signed_context(("pod-1", "localhost"), datetime.now(UTC))
        server = HealthServer(metrics, tls=tls, may_read=may_read)
        await server.start()
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session:
            base = f"https://127.0.0.1:{server.port}"
            async with session.get(f"{base}/healthz") as response:
                assert (response.status, await response.text()) == (200, "ok")
            assert not asked
            async with session.get(f"{base}/metrics", headers={"Authorization": "Bearer x"}) as response:
                assert response.status == status and said in await response.text()
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://127.0.0.1:{server.port}/metrics")
        assert asked == ["Bearer x"]
        await server.stop()

    asyncio.run(main())
