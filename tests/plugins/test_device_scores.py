"""Device scores: a plugin decides which of the devices of a node a pod gets; without one it is the first that fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wharfinger.api.views import Node, Pod, view
from wharfinger.devices.claims import DeviceRequest
from wharfinger.devices.pools import CandidateDevice
from wharfinger.engine import Engine, default_profile
from wharfinger.framework.device_scoring import DeviceScorer
from wharfinger.framework.plugin import Plugin
from wharfinger.framework.shapes import Shape
from wharfinger.plugins.dynamic_resources.catalogue import catalogue_of

Document = dict[str, Any]
DRIVER = "gpu.example.com"


class PreferNamed(DeviceScorer):
    def __init__(self, liked: str) -> None:
        self._liked = liked

    def scores(self, row: int, request: DeviceRequest, devices: Sequence[CandidateDevice]) -> Sequence[int]:
        return [self._liked.find(each.device.name) for each in devices]


class LikesLater(Plugin):
    """Prefers devices whose names come late in the alphabet."""

    name = "LikesLater"
    points = frozenset({"deviceScore"})

    def device_scorer(self, shape: Shape) -> DeviceScorer | None:
        return PreferNamed("abcdefgh")


class LikesEarlier(Plugin):
    name = "LikesEarlier"
    points = frozenset({"deviceScore"})
    weight = 2

    def device_scorer(self, shape: Shape) -> DeviceScorer | None:
        return PreferNamed("hgfedcba")


class NoOpinion(Plugin):
    name = "NoOpinion"
    points = frozenset({"deviceScore"})


def engine_with(*plugins: type[Plugin], devices: str = "abcd") -> Engine:
    engine = Engine([default_profile(extra=plugins)], plugins={each.name: each for each in plugins})
    engine.set_node(view({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "64", "pods": "110"}}}, Node))
    engine.apply("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {}})
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    listed = [{"name": name, "attributes": {"even": {"bool": index % 2 == 0}}} for index, name in enumerate(devices)]
    spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": listed}
    engine.apply("ResourceSlice", {"metadata": {"name": "n-gpus"}, "spec": spec})
    return engine


def given(engine: Engine, *requests: Document, name: str = "p") -> list[str]:
    """The devices that a pod with a claim for these requests gets."""
    listed = [
        {"name": f"r{index}", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **each}}
        for index, each in enumerate(requests)
    ]
    metadata = {"name": name, "namespace": "default", "uid": name}
    engine.apply("ResourceClaim", {"metadata": metadata, "spec": {"devices": {"requests": listed}}})
    claims = [{"name": "c", "resourceClaimName": name}]
    pod = view({"metadata": metadata, "spec": {"containers": [{"name": "c"}], "resourceClaims": claims}}, Pod)
    decision = engine.schedule(pod)
    assert decision.node == "n", decision.message
    assert engine.assume(pod, "n").ok
    chosen = catalogue_of(engine.tables).pending[name]
    return [each["device"] for each in chosen["devices"]["results"]]


def test_without_a_plugin_the_first_devices_that_fit_are_taken() -> None:
    assert given(engine_with(), {"count": 2}) == ["a", "b"]


def test_a_plugin_without_an_opinion_changes_nothing() -> None:
    assert given(engine_with(NoOpinion), {"count": 2}) == ["a", "b"]


def test_the_best_devices_are_taken() -> None:
    engine = engine_with(LikesLater)

    assert given(engine, {"count": 2}) == ["d", "c"]
    assert given(engine, {}, name="q") == ["b"]


def test_scores_of_several_plugins_add_up_by_weight() -> None:
    assert given(engine_with(LikesLater, LikesEarlier), {}) == ["a"]


def test_only_devices_that_serve_the_request_are_taken() -> None:
    even = {"selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].even'}}]}

    assert given(engine_with(LikesLater), even, {}) == ["c", "d"]


def test_the_best_device_for_one_request_gives_way_if_another_could_not_be_served_otherwise() -> None:
    only_d = {"selectors": [{"cel": {"expression": f'!device.attributes["{DRIVER}"].even'}}]}

    assert given(engine_with(LikesLater, devices="cd"), {}, only_d) == ["c", "d"]


def test_a_plugin_is_told_of_the_configuration_by_the_name_of_the_point() -> None:
    from wharfinger.scheduler.profiles import load

    point = {"enabled": [{"name": "BestFit"}]}
    profile = {"schedulerName": "x", "plugins": {"score": point, "deviceScore": point}}

    loaded = load({"profiles": [profile]})

    assert loaded.profiles[0].points["deviceScore"] == ("BestFit",)
