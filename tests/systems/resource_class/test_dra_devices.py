"""Classes of DRA devices: the expression means what the requirements mean, the DeviceClass is kept, devices are counted."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.api import device_cases as cases
from tests.controllers.world import World

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import DEVICE_CLASSES, EVENTS, RESOURCE_SLICES
from wharfinger.api.registry import Document
from wharfinger.api.validation import object_faults
from wharfinger.api.views import ObjectMeta, view
from wharfinger.devices.held_record import HELD_DEVICES, devices_record
from wharfinger.devices.selectors import device_selector
from wharfinger.devices.slices import DeviceContent
from wharfinger.framework.stand_ins import StandIn
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.resource_class.plugin.device_report import device_report
from wharfinger.systems.resource_class.rules.device_selectors import (
    NotExpressible,
    device_attribute,
    device_expression,
)
from wharfinger.systems.resource_class.rules.dra_devices import device_groups, device_properties
from wharfinger.systems.resource_class.rules.properties import Expression, Selector, matches

KEYS = ("memory", "model", "ecc", "cores", "other.example.com/zone")


def random_device(source: random.Random) -> Document:
    """A device that has some of the properties, each of a type of its own."""
    made: Document = {
        "model": {"string": source.choice(["t4", "a100", "true", "40"])},
        "ecc": {"bool": source.choice([True, False])},
        "cores": {"int": source.choice([-1, 0, 39, 40, 41, 108])},
        "other.example.com/zone": {"string": source.choice(["a", "b"])},
    }
    attributes = {name: made[name] for name in made if source.random() < 0.7}
    memory = {"memory": {"value": source.choice(["16Gi", "40G", "41G", "80Gi", "0"])}}
    return {"name": "d", "attributes": attributes, "capacity": memory if source.random() < 0.7 else {}}


def random_expression(source: random.Random) -> Expression:
    key, operator = source.choice(KEYS), source.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
    if operator in ("Exists", "DoesNotExist"):
        return Expression(key, operator)
    if operator in ("Gt", "Lt"):
        return Expression(key, operator, (source.choice(["40", "40G", "39.5", "16Gi", "0"]),))
    values = ["t4", "a100", "true", "false", "40", "108", "a", "16Gi", "41G"]
    return Expression(key, operator, tuple(source.sample(values, source.randint(1, 3))))


@pytest.mark.parametrize("seed", range(20))
def test_the_expression_means_what_the_requirements_mean(seed: int) -> None:
    source = random.Random(seed)
    selectors: list[Selector] = [
        tuple(random_expression(source) for _ in range(source.randint(1, 2))) for _ in range(source.randint(0, 2))
    ]
    text = device_expression(cases.DRIVER, selectors)
    assert not device_selector(text).is_too_complex()
    for _ in range(20):
        device, driver = random_device(source), source.choice([cases.DRIVER, cases.DRIVER, "b.example.com"])
        content = DeviceContent(driver, False, device["attributes"], device["capacity"])
        expected = driver == cases.DRIVER and matches(selectors, device_properties(device, driver))
        if _compares_text(selectors, device):
            continue
        assert device_selector(text).matches(content) is expected, (text, device)


def _compares_text(selectors: list[Selector], device: Document) -> bool:
    """Text that looks like an amount is comparable as a property, but not as an attribute of a device."""
    asked = {each.key for selector in selectors for each in selector if each.operator in ("Gt", "Lt")}
    return any("string" in attribute and name in asked for name, attribute in device["attributes"].items())


def test_versions_are_not_expressible() -> None:
    with pytest.raises(NotExpressible, match="versions cannot be compared"):
        device_expression(cases.DRIVER, [(Expression("driverVersion", "Gt", ("535.104",)),)])


def a_class(name: str = "large", **spec: Any) -> Document:
    memory = {"key": "memory", "operator": "Gt", "values": ["40G"]}
    whole = {"resourceName": "example.com/gpu", "driver": cases.DRIVER, **spec}
    whole.setdefault("resourceSelector", [{"matchExpressions": [memory]}])
    return {
        "apiVersion": RESOURCE_CLASSES.api_version,
        "kind": "ResourceClass",
        "metadata": {"name": name},
        "spec": whole,
    }


def gpu(name: str, memory: str) -> Document:
    return {"name": name, "capacity": {"memory": {"value": memory}}}


def test_a_device_class_is_kept() -> None:
    with World(nodes=1) as world:
        world.apply(RESOURCE_CLASSES, a_class())
        world.apply(RESOURCE_SLICES, cases.slice_of(gpu("a", "16Gi"), gpu("b", "80Gi"), gpu("c", "80Gi")))
        world.advance(5)
        kept = world.get(DEVICE_CLASSES, "large")
        assert kept["spec"]["extendedResourceName"] == "resourceclass.scheduling.sigs.x-k8s.io/large"
        status = world.get(RESOURCE_CLASSES, "large")["status"]
        assert (status["nodes"], status["devices"], status["computeResources"]) == (1, 2, 1)
        assert status["conditions"][0]["message"] == "matches 2 devices on 1 node"
        world.patch(DEVICE_CLASSES, "large", {"spec": {"selectors": [], "extendedResourceName": "a.com/b"}})
        assert world.get(DEVICE_CLASSES, "large")["spec"] == kept["spec"]
        world.delete(DEVICE_CLASSES, "large")
        assert world.get(DEVICE_CLASSES, "large")["spec"] == kept["spec"]
        world.patch(RESOURCE_CLASSES, "large", {"spec": {"resourceSelector": [], "alias": "example.com/any"}})
        world.advance(5)
        assert world.get(DEVICE_CLASSES, "large")["spec"] == {
            "selectors": [{"cel": {"expression": f'device.driver == "{cases.DRIVER}"'}}],
            "extendedResourceName": "example.com/any",
        }
        assert world.get(RESOURCE_CLASSES, "large")["status"]["devices"] == 3
        world.delete(RESOURCE_CLASSES, "large")
        world.advance(60)
        assert world.list(DEVICE_CLASSES) == []


def test_the_device_class_of_groups_is_for_our_scheduler_only() -> None:
    with World(nodes=1) as world:
        world.apply(RESOURCE_CLASSES, a_class(groupBy="link", groupSize=2, resourceSelector=[]))
        world.advance(5)
        kept = world.get(DEVICE_CLASSES, "large")
        assert "extendedResourceName" not in kept["spec"]
        annotations = {
            "wharfinger.dev/group-by": f"{cases.DRIVER}/link",
            "wharfinger.dev/group-size": "2",
            "wharfinger.dev/grouped-resource-name": "resourceclass.scheduling.sigs.x-k8s.io/large",
        }
        assert kept["metadata"]["annotations"] == annotations
        world.patch(
            DEVICE_CLASSES, "large", {"metadata": {"annotations": {"wharfinger.dev/group-size": "3", "a": "b"}}}
        )
        assert world.get(DEVICE_CLASSES, "large")["metadata"]["annotations"] == {**annotations, "a": "b"}
        world.patch(RESOURCE_CLASSES, "large", {"spec": {"groupBy": "other.example.com/zone"}})
        changed = world.get(DEVICE_CLASSES, "large")["metadata"]["annotations"]
        assert changed["wharfinger.dev/group-by"] == "other.example.com/zone"


def test_a_group_needs_the_name_of_an_attribute() -> None:
    with pytest.raises(NotExpressible, match="cannot have an attribute of this name"):
        device_attribute(cases.DRIVER, "my-link")


def test_a_device_class_of_somebody_else_is_left_alone() -> None:
    with World(nodes=1) as world:
        foreign = {**cases.device_class(), "metadata": {"name": "large"}}
        world.apply(DEVICE_CLASSES, foreign)
        world.apply(RESOURCE_CLASSES, a_class())
        world.settle()
        assert not world.get(DEVICE_CLASSES, "large")["spec"]
        assert [each["reason"] for each in world.list(EVENTS) if each["involvedObject"]["name"] == "large"] == [
            "DeviceClassExists"
        ]


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"driver": "a_b"}, "spec.driver: Invalid value"),
        ({"driver": ""}, "spec.driver: Required value"),
        ({"scope": "Cluster"}, "spec.driver: Forbidden"),
    ],
)
def test_bad_classes_are_refused(spec: Document, fault: str) -> None:
    document = a_class(**spec)
    kind = registry().of_object(document["apiVersion"], "ResourceClass")
    assert kind is not None and kind.default is not None
    kind.default(document)
    assert any(str(each).startswith(fault) for each in object_faults(kind, document))


def test_the_driver_is_immutable() -> None:
    old, new = a_class(), a_class(driver="b.example.com")
    kind = registry().of_object(old["apiVersion"], "ResourceClass")
    assert kind is not None and kind.validate is not None
    assert [each.path for each in kind.validate(new, old)] == ["spec.driver"]


def test_devices_are_reported_by_class_and_by_driver() -> None:
    old = cases.slice_of(gpu("gone", "80Gi"), pool={"name": "n1", "generation": 0, "resourceSliceCount": 1})
    new = cases.slice_of(gpu("a", "16Gi"), gpu("gpu-0", "80Gi"), gpu("c", "80Gi"))
    claim = {**cases.claim(), "status": {"allocation": cases.allocation()}}
    by_driver = {
        **cases.device_class(selectors=cases.cel("device.driver == 'gpu.example.com'")),
        "metadata": {"name": "d"},
    }
    broken = {**cases.device_class(selectors=cases.cel("device.attributes['a'].b == 1")), "metadata": {"name": "e"}}
    lines = device_report([view(a_class(), ResourceClass)], [by_driver, broken], [old, new], [claim])
    assert [(line.name, line.devices, line.used, line.free) for line in lines] == [
        ("large", 2, 1, 1),
        ("d", 3, 1, 2),
        ("e", 0, 0, 0),
        ("gpu.example.com/devices", 3, 1, 2),
    ]


def test_free_units_of_groups_are_reported() -> None:
    devices = [{"name": f"gpu-{n}", "attributes": {"link": {"int": link}}} for n, link in enumerate((0, 0, 0, 1, 1, 2))]
    slice = cases.slice_of(*devices, {"name": "none"})
    claim = {**cases.claim(), "status": {"allocation": cases.allocation()}}
    grouped = view(a_class(groupBy="link", groupSize=2, resourceSelector=[]), ResourceClass)
    (line, *_) = device_report([grouped], [], [slice], [claim])
    assert (line.devices, line.used, line.free) == (6, 1, 2)


def test_devices_that_reservations_hold_are_reserved_until_they_are_used() -> None:
    slice = cases.slice_of(gpu("gpu-0", "80Gi"), gpu("c", "80Gi"), gpu("d", "80Gi"))
    claim = {**cases.claim(), "status": {"allocation": cases.allocation()}}
    results = [
        {**each, "device": name} for each in cases.allocation()["devices"]["results"][:1] for name in ("gpu-0", "c")
    ]
    record = devices_record({"gpus": {"devices": {"results": results}}})
    stand_in = StandIn(ObjectMeta(annotations={HELD_DEVICES: record}))
    (line, *_) = device_report([view(a_class(), ResourceClass)], [], [slice], [claim], [stand_in])
    assert (line.devices, line.used, line.reserved, line.free) == (3, 1, 1, 1)


def test_properties_of_devices() -> None:
    attributes = {
        "model": {"string": "t4"},
        f"{cases.DRIVER}/ecc": {"bool": True},
        "a.com/n": {"int": 3},
        "v": {"version": "1.2.3"},
        "empty": {},
    }
    device = {"name": "d", "attributes": attributes, "capacity": {"memory": {"value": "1024Mi"}}}
    expected = {"model": "t4", "ecc": "true", "a.com/n": "3", "v": "1.2.3", "memory": "1Gi"}
    assert device_properties(device, cases.DRIVER) == expected
    (group,) = device_groups([cases.slice_of(device, nodeName=None, allNodes=True)])
    assert (group.node, group.free) == ("*", 1)


def test_a_driver_that_flaps_costs_only_itself() -> None:
    """Slices beyond the limits are refused, and status follows a restless driver at most once a second."""
    with World(nodes=1) as world:
        world.apply(RESOURCE_CLASSES, a_class())
        world.apply(RESOURCE_CLASSES, a_class("other", driver="b.example.com"))
        world.advance(5)
        error = world.fails(
            lambda: world.create(RESOURCE_SLICES, cases.slice_of(*({"name": f"g{n}"} for n in range(10_000))))
        )
        assert "spec.devices: Too many: 10000: must have at most 128 items" in error.message
        world.create(RESOURCE_SLICES, cases.slice_of(gpu("a", "80Gi")))
        world.advance(5)
        before = {name: version(world, name) for name in ("large", "other")}
        for number in range(2, 42):
            devices = [gpu(f"g{each}", "80Gi") for each in range(number % 7)]
            pool = {"name": "n1", "generation": number, "resourceSliceCount": 9}
            world._do(world.client.patch(RESOURCE_SLICES, "x", {"spec": {"pool": pool, "devices": devices}}))
        world.advance(5)
        assert version(world, "other") == before["other"]
        assert world.get(RESOURCE_CLASSES, "large")["status"]["devices"] == 41 % 7
        assert world.get(RESOURCE_CLASSES, "large")["metadata"]["generation"] == 1


def version(world: World, name: str) -> str:
    return str(world.get(RESOURCE_CLASSES, name)["metadata"]["resourceVersion"])
