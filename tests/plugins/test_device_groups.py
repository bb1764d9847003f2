"""Extended resources that a class serves in groups of devices: one request for each unit, and never a mixture."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from tests.plugins.test_dynamic_resources import DRIVER, Document, device, device_class, engine_with, prepared, slice_of

from wharfinger.api.views import Pod, view
from wharfinger.devices.classes import DeviceClass, DeviceClasses
from wharfinger.devices.extended import ExtendedRequests
from wharfinger.plugins.dynamic_resources.filtering import DevicePlan

PAIR = "example.com/pair"


def pairs(size: int = 2, **annotations: str) -> Document:
    named = {"group-by": f"{DRIVER}/link", "group-size": str(size), "grouped-resource-name": PAIR, **annotations}
    made = device_class(f'device.driver == "{DRIVER}"')
    made["metadata"]["annotations"] = {f"wharfinger.dev/{name}": value for name, value in named.items()}
    return made


def container(name: str, units: int, **fields: Any) -> Document:
    return {"name": name, "resources": {"requests": {PAIR: str(units)}}, **fields}


def asking(*containers: Document, init: tuple[Document, ...] = ()) -> Pod:
    metadata = {"name": "p", "namespace": "default", "uid": "p"}
    return view({"metadata": metadata, "spec": {"containers": containers, "initContainers": init}}, Pod)


def linked(*links: int | None) -> list[Document]:
    return [
        device(f"g{index}", attributes={} if link is None else {"link": {"int": link}})
        for index, link in enumerate(links)
    ]


def requests_of(pod: Pod) -> ExtendedRequests:
    classes = DeviceClasses()
    classes.set(DeviceClass(pairs()))
    return ExtendedRequests(pod, [PAIR], classes)


def test_each_unit_is_a_request_with_a_constraint_of_its_own() -> None:
    made = requests_of(asking(container("a", 2), container("b", 1)))
    names = ["container-0-request-0-group-0", "container-0-request-0-group-1", "container-1-request-0-group-0"]
    assert [each["name"] for each in made.requests] == names
    assert {each["exactly"]["count"] for each in made.requests} == {2}
    assert made.devices["constraints"] == [{"requests": [name], "matchAttribute": f"{DRIVER}/link"} for name in names]
    assert [(each["containerName"], each["requestName"]) for each in made.mappings] == list(
        zip("aab", names, strict=True)
    )


def test_init_containers_use_the_groups_of_later_ones_and_share_the_rest() -> None:
    made = requests_of(asking(container("main", 1), init=(container("i", 3), container("j", 2))))
    assert [each["name"] for each in made.requests] == [
        "container-0-request-0-group-0",
        "container-0-request-0-group-1",
        "container-2-request-0-group-0",
    ]
    used: dict[str, list[str]] = {}
    for each in made.mappings:
        used.setdefault(each["containerName"], []).append(each["requestName"])
    assert used["i"] == [
        "container-2-request-0-group-0",
        "container-0-request-0-group-0",
        "container-0-request-0-group-1",
    ]
    assert used["j"] == ["container-2-request-0-group-0", "container-0-request-0-group-0"]


@pytest.mark.parametrize("seed", range(30))
def test_a_node_serves_as_many_units_as_its_devices_make_groups(seed: int) -> None:
    chance = random.Random(seed)
    links = [chance.choice((0, 1, 2, None)) for _ in range(chance.randint(2, 16))]
    size = chance.choice((2, 3))
    engine = engine_with(slice_of("n0", *linked(*links)), classes=(pairs(size),), nodes=1)
    most = sum(count // size for link, count in Counter(links).items() if link is not None)
    if most:
        fits = asking(container("c", most))
        plan = prepared(engine, fits).plan(engine.tables.row_of["n0"], lambda: "any")
        assert engine.schedule(fits).node == "n0" and isinstance(plan, DevicePlan)
        (allocation,) = plan.allocations.values()
        of_request: dict[str, set[int | None]] = {}
        for result in allocation["devices"]["results"]:
            of_request.setdefault(result["request"], set()).add(links[int(result["device"][1:])])
        assert all(len(values) == 1 for values in of_request.values()) and len(of_request) == most
    refused = engine.schedule(asking(container("c", most + 1)))
    assert refused.node is None and "cannot allocate all claims" in refused.message


def test_more_groups_than_there_can_be_are_refused_at_once() -> None:
    engine = engine_with(slice_of("n0", *linked(*[0] * 64)), classes=(pairs(),), nodes=1)
    assert "exceeds the claim limit of 32" in engine.schedule(asking(container("c", 20))).error
    assert engine.schedule(asking(container("c", 1_000_000_000))).node is None


@pytest.mark.parametrize("broken", [{"group-size": "0"}, {"group-size": "two"}, {"group-by": ""}])
def test_a_class_whose_annotations_make_no_sense_serves_nothing_in_groups(broken: dict[str, str]) -> None:
    engine = engine_with(slice_of("n0", *linked(0, 0)), classes=(pairs(**broken),), nodes=1)
    assert f"Insufficient {PAIR}" in engine.schedule(asking(container("c", 1))).message


def test_an_explanation_says_that_too_few_devices_are_alike() -> None:
    engine = engine_with(slice_of("n0", *linked(0, 1, 2)), classes=(pairs(),), nodes=1)
    pod = asking(container("c", 1))
    assert prepared(engine, pod).detail(engine.tables.row_of["n0"]) == (
        "default/<extended-resources>, request container-0-request-0-group-0: 3 of 3 devices usable, 2 needed"
        f" (of which at most 1 have the same {DRIVER}/link)"
    )
