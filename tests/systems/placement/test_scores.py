"""Score producers: normalisation, publishing and renewal, the member's agent, and Prometheus."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web
from tests.support import require
from tests.systems.placement.hub import Hub, add_on, binding, cluster, exact, placement

from wharfinger.api.registry import Document
from wharfinger.api.times import parse_time
from wharfinger.systems.placement.kinds.names import ADDON_PLACEMENT_SCORES
from wharfinger.systems.placement.scores import Linear, Relative, ScorePublisher, normalise, run_producer
from wharfinger.systems.placement.scores.prometheus import BadPrometheusScores, PrometheusSource, Query, load, values_of
from wharfinger.systems.placement.scores.publish import publish_all


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, -100), (1, -100), (1.0001, -99), (50.5, 0), (51, 1), (100, 100), (100.1, 100), (1e9, 100), (-5, -100)],
)
def test_normalise(value: float, expected: int) -> None:
    assert normalise(value, 1, 100) == expected


def test_scales() -> None:
    assert Linear(200, 5).scores({"near": 5, "far": 200, "nan": float("nan")}) == {"near": 100, "far": -100}
    assert Relative().scores({"a": 1, "b": 2, "c": 3}) == {"a": -100, "b": 0, "c": 100}
    assert Relative(less_is_better=True).scores({"a": 1, "b": 3}) == {"a": 100, "b": -100}
    assert Relative().scores({"a": 1, "b": 1, "c": float("inf")}) == {"a": 0, "b": 0}
    assert Relative().scores({}) == {}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub(implicit=False) as made:
        yield made


def test_scores_are_written_when_they_change_and_renewed_before_they_expire(hub: Hub) -> None:
    hub.namespace("c1")
    publisher = ScorePublisher(hub.client, "demo", valid_for=300, clock=hub.clock)
    assert hub.run(publisher.publish("c1", {"a": 5}))
    status = hub.get(ADDON_PLACEMENT_SCORES, "demo", "c1")["status"]
    assert status["scores"] == [{"name": "a", "value": 5}]
    assert status["validUntil"] == "2026-01-01T00:05:00Z"
    assert status["conditions"][0]["type"] == "AddOnPlacementScoreUpdated"
    assert not hub.run(publisher.publish("c1", {"a": 5}))
    assert hub.run(publisher.publish("c1", {"a": 6}))
    hub.advance(150)
    assert hub.run(publisher.publish("c1", {"a": 6}))
    assert hub.get(ADDON_PLACEMENT_SCORES, "demo", "c1")["status"]["validUntil"] == "2026-01-01T00:07:30Z"
    with pytest.raises(ValueError, match="between -100 and 100"):
        hub.run(publisher.publish("c1", {"a": 101}))
    hub.run(publisher.withdraw("c1"))
    assert hub.find(ADDON_PLACEMENT_SCORES, "demo", "c1") is None


def test_a_hub_side_producer_decides_placements_and_its_end_makes_scores_expire() -> None:
    measured = {"c1": {"a": 80}, "c2": {"a": 90}, "c3": {"a": 100}}

    async def measure() -> dict[str, dict[str, int]]:
        return measured

    with Hub() as hub:
        hub.apply(binding(), *(cluster(name) for name in measured), placement(2, prioritizerPolicy=exact(add_on())))
        publisher = ScorePublisher(hub.client, "demo", valid_for=300, clock=hub.clock)
        task = hub.loop.create_task(run_producer(publisher, measure, 60))
        hub.settle()
        assert hub.selected() == ["c2", "c3"]
        hub.advance(3600)
        assert hub.selected() == ["c2", "c3"]
        task.cancel()
        hub.advance(400)
        assert hub.selected() == ["c1", "c2"]  # all expired: names decide


def test_one_clusters_failure_does_not_keep_others_from_being_scored(hub: Hub) -> None:
    hub.namespace("c2")
    publisher = ScorePublisher(hub.client, "demo", clock=hub.clock)
    written, failed = hub.run(publish_all(publisher, {"c1": {"a": 1}, "c2": {"a": 2}}))  # c1 has no namespace
    assert written == 1 and list(failed) == ["c1"]
    assert hub.find(ADDON_PLACEMENT_SCORES, "demo", "c2") is not None


@pytest.mark.parametrize("interval", [30, 120, 149])
def test_one_failed_round_never_lets_scores_expire(interval: int) -> None:
    """Whichever round it is, as long as the interval is at most half the validity."""
    for lost in range(1, 12):
        with Hub() as hub:
            hub.namespace("c1")
            rounds = 0

            async def measure(lost: int = lost) -> dict[str, dict[str, int]]:
                nonlocal rounds
                rounds += 1
                if rounds == lost + 1:
                    raise OSError("no route to host")
                return {"c1": {"a": 7}}

            publisher = ScorePublisher(hub.client, "demo", valid_for=300, clock=hub.clock)
            hub.loop.create_task(run_producer(publisher, measure, interval))
            hub.settle()
            for _ in range(lost + 2):
                hub.advance(interval)
                until = hub.get(ADDON_PLACEMENT_SCORES, "demo", "c1")["status"]["validUntil"]
                assert parse_time(until) >= hub.clock.now(), (lost, interval)


SETTINGS: Document = {
    "apiVersion": "wharfinger.dev/v1alpha1",
    "kind": "PrometheusScores",
    "server": "http://127.0.0.1:9090",
    "resourceName": "metrics",
    "scores": [
        {"name": "free", "query": "cluster_free", "normalise": {"worst": 0, "best": 10}},
        {"name": "rtt", "query": "max by (cluster) (rtt)", "normalise": {"relative": True, "lessIsBetter": True}},
    ],
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"server": "ftp://x"}, "server"),
        ({"scores": []}, "scores"),
        ({"interval": "4m"}, "half of validFor"),
        ({"interval": "x"}, "duration"),
        ({"unknown": 1}, "unknown"),
        ({"scores": [{"name": "a", "query": "b", "normalise": {}}]}, "worst and best"),
        ({"scores": [{"name": "a", "query": "b", "normalise": {"relative": True, "best": 1}}]}, "neither"),
    ],
)
def test_faulty_prometheus_documents_are_refused(change: Document, words: str) -> None:
    with pytest.raises(BadPrometheusScores, match=words):
        load({**SETTINGS, **change})


QUERY = load(SETTINGS).scores[0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>", "JSON"),
        (b"[]", "not an answer of Prometheus"),
        (b'{"status":"success"}', "nothing"),
        (b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"cluster":"a"}}]}}', "value"),
        (
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"much"]}]}}',
            "could not convert",
        ),
        (b'{"status":"error","errorType":"bad_data","error":"parse error"}', "bad_data: parse error"),
        (b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}', "instant vector"),
        (
            b'{"status":"success","data":{"resultType":"vector","result":['
            b'{"metric":{"cluster":"a"},"value":[1,"1"]},{"metric":{"cluster":"a"},"value":[1,"2"]}]}}',
            "more than one value",
        ),
    ],
)
def test_answers_that_are_no_use_say_why(body: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        values_of(body, QUERY)


def test_values_are_taken_by_label() -> None:
    body = (
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"cluster":"a"},"value":[1,"2.5"]},'
        b'{"metric":{"site":"b"},"value":[1,"1"]},{"metric":{"cluster":"c"},"value":[1,"NaN"]}]}}'
    )
    assert values_of(body, QUERY) == {"a": 2.5}
    assert values_of(body, Query(name="x", query="y", normalise=QUERY.normalise, cluster_label="site")) == {"b": 1.0}


EXPOSED = """\
cluster_free{cluster="c1"} 2
cluster_free{cluster="c2"} 9
rtt{cluster="c1"} 5
rtt{cluster="c2"} 80
"""


def test_scores_from_a_real_prometheus(tmp_path: Path) -> None:
    program = require("prometheus")
    target, port = free_port(), free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: t, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n"
    )
    with subprocess.Popen(
        [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            found = asyncio.run(scores_from_prometheus(target, port))
        finally:
            process.terminate()
    assert found == {"c1": {"free": -60, "rtt": 100}, "c2": {"free": 80, "rtt": -100}}


async def scores_from_prometheus(target: int, port: int) -> dict[str, dict[str, int]]:
    """Serves what Prometheus scrapes, and measures as soon as it has scraped."""

    async def expose(request: web.Request) -> web.Response:
        return web.Response(text=EXPOSED)

    application = web.Application()
    application.router.add_get("/metrics", expose)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", target).start()
    source = PrometheusSource(load({**SETTINGS, "server": f"http://127.0.0.1:{port}"}))
    try:
        for _ in range(300):
            with suppress(OSError, ValueError):  # it may not listen yet
                measured = await source.measure()
                if measured:
                    return measured
            await asyncio.sleep(0.2)
        raise AssertionError("Prometheus gave no values within a minute")
    finally:
        await source.close()
        await runner.cleanup()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
