"""Drivers that publish nonsense, and selectors that are meant to be slow: pods that want other devices do not notice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from tests.scheduler.test_devices import CLAIMS, Devices, claim, device_class, slice_of, user
from tests.scheduler.test_live import Document, node

from wharfinger.devices.selectors import DeviceSelector
from wharfinger.devices.slices import DeviceContent

BAD = "bad.example.com"


@pytest.fixture
def stage() -> Iterator[Devices]:
    made = Devices()
    yield made
    made.world.close()


def bad_slice(name: str, devices: list[Document], *, generation: int = 1, count: int = 1, **spec: Any) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": BAD,
            "pool": {"name": "bad", "generation": generation, "resourceSliceCount": count},
            "allNodes": True,
            **({"devices": devices} if devices else {}),
            **spec,
        },
    }


def bad_class(expression: str = f'device.driver == "{BAD}"') -> Document:
    return device_class("bad") | {"spec": {"selectors": [{"cel": {"expression": expression}}]}}


def bad_claim(name: str) -> Document:
    return claim(name, deviceClassName="bad")


def good_world(stage: Devices) -> None:
    stage.apply(node("n1"), node("n2"), device_class(), slice_of("n1", 1), slice_of("n2", 1))


def good_pods_get_devices(stage: Devices, mark: str = "") -> None:
    names = [f"good{mark}-{number}" for number in range(2)]
    stage.apply(*(claim(name) for name in names), *(user(name, name) for name in names))
    assert sorted(stage.nodes_of(*names)) == ["n1", "n2"]
    released = {"status": {"allocation": None, "reservedFor": None}}
    for name in names:
        stage.delete(name)
        stage.do(partial(stage.client.patch, CLAIMS, name, released, "default", subresource="status"))


def test_ten_thousand_devices_are_searched_only_for_those_who_want_them(
    stage: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    good_world(stage)
    per_slice = 100
    stage.apply(
        *(
            bad_slice(
                f"bad-{index:03}",
                [{"name": f"d-{index}-{number}", "attributes": {"i": {"int": number}}} for number in range(per_slice)],
                count=100,
            )
            for index in range(100)
        )
    )
    stage.apply(bad_class(), bad_claim("b"), user("b", "b"))
    assert stage.devices("b") == ["bad/d-0-0"]
    evaluated: list[str] = []
    known = DeviceSelector._evaluate

    def counting(self: DeviceSelector, content: DeviceContent) -> bool | str:
        evaluated.append(content.driver)
        return known(self, content)

    monkeypatch.setattr(DeviceSelector, "_evaluate", counting)
    good_pods_get_devices(stage)
    assert len(evaluated) <= 2  # the selector reads only the driver, so it is evaluated once for each
    assert not stage.used_twice()


def test_flapping_generations_cost_the_driver_its_devices(stage: Devices) -> None:
    good_world(stage)
    stage.apply(bad_class(), bad_claim("b"), user("b", "b"))
    for generation in (5, 3, 9, 9, 1, 12, 2):
        stage.apply(bad_slice("bad-0", [{"name": "d"}], generation=generation, count=2))
        stage.apply(bad_slice("bad-1", [{"name": "e"}], generation=generation + 1, count=2))
        good_pods_get_devices(stage, f"-{generation}")
    assert stage.nodes_of("b") == [""]  # slices of both generations are missing
    stage.apply(bad_slice("bad-0", [{"name": "d"}], generation=20, count=1))
    assert stage.nodes_of("b") != [""]


@pytest.mark.parametrize(
    "consumed",
    [
        {"counterSet": "nosuch", "counters": {"memory": {"value": "1"}}},
        {"counterSet": "memory", "counters": {"nosuch": {"value": "1"}}},
        {"counterSet": "memory", "counters": {"memory": {"value": "1000"}}},
    ],
)
def test_wrong_counters_cost_the_driver_its_devices(stage: Devices, consumed: Document) -> None:
    good_world(stage)
    counters = [{"name": "memory", "counters": {"memory": {"value": "10"}}}]
    stage.apply(bad_slice("bad-0", [], count=2, sharedCounters=counters))
    stage.apply(bad_slice("bad-1", [{"name": "d", "consumesCounters": [consumed]}], count=2))
    stage.apply(bad_class(), bad_claim("b"), user("b", "b"))
    assert stage.nodes_of("b") == [""]
    good_pods_get_devices(stage)
