"""Score producers: normalisation, publishing and renewal, the member's agent, and Prometheus."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.client.certificates import Authority
from tests.support import require
from tests.systems.placement.hub import Hub, add_on, binding, cluster, exact, placement

from wharfinger.api.errors import Invalid, NotFound
from wharfinger.api.registry import Document
from wharfinger.api.times import parse_time
from wharfinger.systems.placement.kinds.names import ADDON_PLACEMENT_SCORES
from wharfinger.systems.placement.scores import (
    Linear,
    Relative,
    ScorePublisher,
    normalise,
    of_known_clusters,
    publish,
    run_producer,
)
from wharfinger.systems.placement.scores.prometheus import BadPrometheusScores, PrometheusSource, Query, load, values_of
from wharfinger.systems.placement.scores.publish import publish_all, set_by_hand


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


def test_a_deleted_score_is_written_again_at_once_and_a_changed_one_in_the_next_round(hub: Hub) -> None:
    async def measure() -> dict[str, dict[str, int]]:
        return {"c1": {"a": 7}}

    for valid_for in (300, None):
        hub.namespace("c1")
        publisher = ScorePublisher(hub.client, "demo", valid_for=valid_for, clock=hub.clock)
        task = hub.loop.create_task(run_producer(publisher, measure, 60))
        hub.settle()
        hub.advance(10)
        before = hub.get(ADDON_PLACEMENT_SCORES, "demo", "c1")
        hub.delete(ADDON_PLACEMENT_SCORES, "demo", "c1")
        after = hub.get(ADDON_PLACEMENT_SCORES, "demo", "c1")
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        for part in ("scores", "validUntil"):
            assert after["status"].get(part) == before["status"].get(part)  # measured when it was measured
        change = {"status": {"scores": [{"name": "a", "value": 99}]}}
        hub.patch(ADDON_PLACEMENT_SCORES, "demo", change, "c1", "status")
        hub.advance(60)
        assert hub.get(ADDON_PLACEMENT_SCORES, "demo", "c1")["status"]["scores"] == [{"name": "a", "value": 7}]
        version = hub.get(ADDON_PLACEMENT_SCORES, "demo", "c1")["metadata"]["resourceVersion"]
        hub.advance(60)
        assert hub.get(ADDON_PLACEMENT_SCORES, "demo", "c1")["metadata"]["resourceVersion"] == version
        task.cancel()
        hub.settle()
        hub.run(publisher.withdraw("c1"))


def test_conditions_of_others_survive_and_ours_changes_only_with_its_status(hub: Hub) -> None:
    hub.namespace("c1")
    publisher = ScorePublisher(hub.client, "demo", valid_for=300, clock=hub.clock)
    hub.run(publisher.publish("c1", {"a": 1}))
    (ours,) = hub.get(ADDON_PLACEMENT_SCORES, "demo", "c1")["status"]["conditions"]
    other = {**ours, "type": "Audited", "reason": "Other", "message": "by somebody else"}
    hub.patch(ADDON_PLACEMENT_SCORES, "demo", {"status": {"conditions": [other, ours]}}, "c1", "status")
    hub.advance(200)
    assert hub.run(publisher.publish("c1", {"a": 2}))
    assert hub.get(ADDON_PLACEMENT_SCORES, "demo", "c1")["status"]["conditions"] == [other, ours]
    restarted = ScorePublisher(hub.client, "demo", valid_for=300, clock=hub.clock)
    assert hub.run(restarted.publish("c1", {"a": 2}))
    assert hub.get(ADDON_PLACEMENT_SCORES, "demo", "c1")["status"]["conditions"] == [other, ours]


@pytest.mark.parametrize("fault", [KeyError("paris"), ZeroDivisionError(), TypeError("None"), OSError("no route")])
def test_an_exception_in_a_users_measure_does_not_end_the_producer(hub: Hub, fault: Exception) -> None:
    rounds = 0

    async def measure() -> Any:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise fault
        if rounds == 2:
            return None
        if rounds == 3:
            return {"c1": {"a": 0.5}}
        return {"c1": {"a": rounds}}

    hub.namespace("c1")
    publisher = ScorePublisher(hub.client, "demo", clock=hub.clock)
    task = hub.loop.create_task(run_producer(publisher, measure, 60))
    hub.advance(181)
    assert not task.done()
    assert hub.get(ADDON_PLACEMENT_SCORES, "demo", "c1")["status"]["scores"] == [{"name": "a", "value": 4}]


def test_clusters_that_the_hub_does_not_have_are_left_out_with_a_warning(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(publish.log, "warning", lambda text, *words: warnings.append(text % words))

    async def measure() -> dict[str, dict[str, int]]:
        return {"c1": {"a": 1}, "kube-system": {"a": 2}, "typo": {"a": 3}}

    hub.namespace("kube-system")
    hub.apply(cluster("c1"))
    publisher = ScorePublisher(hub.client, "demo", clock=hub.clock)
    task = hub.loop.create_task(run_producer(publisher, of_known_clusters(publisher, measure), 60))
    hub.advance(500)
    assert hub.find(ADDON_PLACEMENT_SCORES, "demo", "c1") is not None
    assert hub.find(ADDON_PLACEMENT_SCORES, "demo", "kube-system") is None
    assert warnings == ["ignored, because the hub has no such clusters: kube-system, typo"]  # once, not every round
    hub.apply(cluster("typo"))
    hub.advance(121)
    assert hub.find(ADDON_PLACEMENT_SCORES, "demo", "typo") is not None
    task.cancel()


def test_scores_by_hand(hub: Hub) -> None:
    hub.apply(cluster("c1"))

    def put(changes: dict[str, int | None], valid_for: float | None = None) -> dict[str, int]:
        return hub.run(set_by_hand(hub.client, "c1", "cost", changes, valid_for, hub.clock))

    assert put({"spot": 80}) == {"spot": 80}
    assert put({"onDemand": -20}, 60) == {"spot": 80, "onDemand": -20}
    status = hub.get(ADDON_PLACEMENT_SCORES, "cost", "c1")["status"]
    assert status["scores"] == [{"name": "onDemand", "value": -20}, {"name": "spot", "value": 80}]
    assert status["validUntil"] == "2026-01-01T00:01:00Z"
    assert put({"spot": None}) == {"onDemand": -20}
    assert "validUntil" not in hub.get(ADDON_PLACEMENT_SCORES, "cost", "c1")["status"]
    with pytest.raises(NotFound, match="c9"):
        hub.run(set_by_hand(hub.client, "c9", "cost", {"spot": 1}, None, hub.clock))
    with pytest.raises(Invalid):
        put({"spot": 101})


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
        ({"scores": [{"name": "a", "query": "b", "normalise": {"relative": True}}] * 2}, "more than once"),
        ({"validFor": "99999999999999h"}, "duration"),
        ({"bearerTokenFile": "nowhere/token"}, "bearerTokenFile: .*nowhere/token: No such file"),
        ({"caFile": "nowhere/ca.crt"}, "caFile: .*nowhere/ca.crt: No such file"),
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


class FakePrometheus:
    """Answers queries from a table: a value for cluster c1, or a status and a body."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, float | tuple[int, str]] = {}
        self.tokens: list[str] = []
        self._tls = tls
        self.url = ""

    async def __aenter__(self) -> FakePrometheus:
        application = web.Application()
        application.router.add_post("/api/v1/query", self._query)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        port = free_port()
        await web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=self._tls).start()
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._runner.cleanup()

    async def _query(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization", ""))
        answer = self.answers[str((await request.post())["query"])]
        if isinstance(answer, tuple):
            return web.Response(status=answer[0], text=answer[1])
        series = {"metric": {"cluster": "c1"}, "value": [1, str(answer)]}
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": [series]}})


class Hand:
    """A clock that moves by hand."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


def test_a_failing_query_withholds_only_its_own_score() -> None:
    asyncio.run(failing_query())


async def failing_query() -> None:
    async with FakePrometheus() as server:
        clock = Hand()
        source = PrometheusSource(load({**SETTINGS, "server": server.url}), clock=clock)
        rtt = "max by (cluster) (rtt)"
        try:
            server.answers = {"cluster_free": 10, rtt: (503, "<html>busy</html>")}
            assert await source.measure() == {"c1": {"free": 100}}
            assert "HTTP 503 Service Unavailable" in source.failures["rtt"]
            server.answers[rtt] = 5
            assert await source.measure() == {"c1": {"free": 100, "rtt": 0}}
            assert source.failures == {}
            server.answers[rtt] = (500, "")
            clock.time += 200
            assert await source.measure() == {"c1": {"free": 100, "rtt": 0}}  # what was measured is still valid
            clock.time += 200
            assert await source.measure() == {"c1": {"free": 100}}
            server.answers["cluster_free"] = (502, "")
            with pytest.raises(OSError, match=r"HTTP 502 Bad Gateway.*HTTP 500 Internal Server Error"):
                await source.measure()  # nothing is fresh, so nothing is renewed
        finally:
            await source.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, "Unauthorized"), "HTTP 401 Unauthorized"),
        ((404, "<html>"), "HTTP 404 Not Found"),
        ((302, ""), "HTTP 302 Found"),
        ((503, ""), "HTTP 503 Service Unavailable"),
        ((500, '{"message": "a proxy"}'), "HTTP 500"),
        ((422, '{"status":"error","errorType":"execution","error":"too many samples"}'), "execution: too many samples"),
        ((200, "hello"), "not JSON"),
    ],
)
def test_http_errors_are_named(answer: tuple[int, str], words: str) -> None:
    asyncio.run(http_error(answer, words))


async def http_error(answer: tuple[int, str], words: str) -> None:
    async with FakePrometheus() as server:
        server.answers = {"cluster_free": answer, "max by (cluster) (rtt)": answer}
        source = PrometheusSource(load({**SETTINGS, "server": server.url}))
        try:
            with pytest.raises(OSError, match=words):
                await source.measure()
            assert set(source.failures) == {"free", "rtt"}
        finally:
            await source.close()


def test_tokens_and_certificates_come_from_files(tmp_path: Path) -> None:
    authority = Authority()
    context = authority.server_context(tmp_path, authority.issue("prometheus", address="127.0.0.1"))
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    (tmp_path / "token").write_text("first\n")
    asyncio.run(secured(tmp_path, context))


async def secured(folder: Path, context: ssl.SSLContext) -> None:
    async with FakePrometheus(context) as server:
        server.answers = {"cluster_free": 10, "max by (cluster) (rtt)": 1}
        document = {**SETTINGS, "server": server.url, "bearerTokenFile": "token", "caFile": "ca.crt"}
        source = PrometheusSource(load(document, folder))
        try:
            assert await source.measure() == {"c1": {"free": 100, "rtt": 0}}
            rewrite(folder / "token", "second\n")
            await source.measure()
            assert set(server.tokens) == {"Bearer first", "Bearer second"}
        finally:
            await source.close()
        untrusting = PrometheusSource(load({**document, "caFile": ""}, folder))
        try:
            with pytest.raises(OSError, match="certificate"):
                await untrusting.measure()
        finally:
            await untrusting.close()


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)


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
