"""The debug endpoint: what it tells, and whom."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from tests.systems.placement.hub import Hub, placement

from wharfinger.api.errors import BadRequest, NotFound
from wharfinger.systems.placement.controllers.debug import DebugServer, PlacementDebug


def test_it_tells_filters_scores_and_totals(hub: Hub) -> None:
    hub.apply(placement(1))
    told = PlacementDebug(hub.scheduling).existing(hub.placement())
    assert told["placement"] == hub.placement()
    assert [entry["clusterName"] for entry in told["aggregatedScores"]] == ["c1", "c2", "c3"]
    assert told["prioritizeResults"][1]["scores"] == {"c1": 100, "c2": 0, "c3": 0}


def test_a_dry_run_writes_nothing(hub: Hub) -> None:
    version = hub.store.version
    debug = PlacementDebug(hub.scheduling)
    told = debug.dry_run(placement(2, name="new", prioritizerPolicy={"mode": "Maximum"}))
    assert told["error"] == ":incorrect prioritizer policy mode: Maximum"
    assert debug.dry_run(placement(2, name="new"))["filteredPipelineResults"][0]["filteredClusters"] == [
        "c1",
        "c2",
        "c3",
    ]
    with pytest.raises(BadRequest, match="numberOfClusters"):
        debug.dry_run(placement(-1))
    assert hub.store.version == version


class Reviews:
    """An API server that knows one user, who may do one thing."""

    async def create(self, resource: Any, document: dict[str, Any]) -> dict[str, Any]:
        spec = document["spec"]
        if resource.kind == "TokenReview":
            known = spec["token"] == "good"
            return {"status": {"authenticated": known, "user": {"username": "eve"}}}
        attributes = spec["resourceAttributes"]
        return {"status": {"allowed": (attributes["verb"], attributes["namespace"]) == ("get", "ns1")}}

    async def get(self, resource: Any, name: str, namespace: str) -> dict[str, Any]:
        if name == "absent":
            raise NotFound("not found")
        return {"metadata": {"name": name}}


class Told:
    def existing(self, document: dict[str, Any]) -> dict[str, Any]:
        if document["metadata"]["name"] == "broken":
            raise RuntimeError("broken")
        return document


GOOD = {"Authorization": "Bearer good"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "code"),
    [
        ("GET", "ns1/p", GOOD, 200),
        ("GET", "ns1/p", {}, 401),
        ("GET", "ns1/p", {"Authorization": "Bearer bad"}, 401),
        ("GET", "other/p", GOOD, 403),
        ("POST", "", GOOD, 400),
        ("GET", "ns1", GOOD, 400),
        ("GET", "ns1/absent", GOOD, 404),
        ("GET", "ns1/broken", GOOD, 500),
        ("DELETE", "ns1/p", GOOD, 405),
    ],
)
def test_codes(method: str, path: str, headers: dict[str, str], code: int) -> None:
    async def ask() -> int:
        told: Any = Told()
        reviews: Any = Reviews()
        server = DebugServer(told, reviews)
        await server.start()
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.request(
                    method, f"http://127.0.0.1:{server.port}/debug/placements/{path}", headers=headers
                ) as answer,
            ):
                return answer.status
        finally:
            await server.stop()

    assert asyncio.run(ask()) == code
