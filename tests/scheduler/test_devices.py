"""Devices over the store in process, in virtual time: pods get them, claims say so, and nobody gets one twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from tests.scheduler.test_live import Document, Stage, node, pod

from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.kinds.devices import RESOURCE_CLAIM
from wharfinger.scenario.document import ScenarioFault

CLAIMS = RESOURCE_CLAIM.resource()


def device_class(name: str = "gpu", **spec: Any) -> Document:
    selectors = [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def slice_of(node_name: str, count: int = 2, generation: int = 1, **device: Any) -> Document:
    devices = [{"name": f"gpu-{index}", "attributes": {"index": {"int": index}}, **device} for index in range(count)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node_name}-gpu"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def claim(name: str, count: int = 1, **exactly: Any) -> Document:
    request = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": count, **exactly}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }


def user(name: str, *claims: str, **spec: Any) -> Document:
    named = [{"name": each, "resourceClaimName": each} for each in claims]
    return pod(name, "100m", resourceClaims=named, **spec)


class Devices(Stage):
    def claim(self, name: str) -> Document:
        found = self.world.store.peek(CLAIMS, name, "default")
        assert found is not None, name
        return found.document()

    def devices(self, name: str) -> list[str]:
        allocation = self.claim(name).get("status", {}).get("allocation", {})
        return [f"{each['pool']}/{each['device']}" for each in allocation.get("devices", {}).get("results", ())]

    def reserved(self, name: str) -> list[str]:
        return [each["name"] for each in self.claim(name).get("status", {}).get("reservedFor", ())]

    def used_twice(self) -> list[str]:
        held: Counter[str] = Counter()
        for document in self.world.objects(CLAIMS):
            held.update(self.devices(document["metadata"]["name"]))
        return [device for device, count in held.items() if count > 1]


@pytest.fixture
def stage() -> Any:
    made = Devices()
    yield made
    made.world.close()


def test_a_pod_with_a_claim_is_bound_and_the_claim_says_what_it_got(stage: Devices) -> None:
    stage.apply(node("n1"), node("n2"), device_class(), slice_of("n2"), claim("c"), user("a", "c"))
    assert stage.nodes_of("a") == ["n2"]
    assert stage.devices("c") == ["n2/gpu-0"]
    assert stage.reserved("c") == ["a"]
    found = stage.claim("c")
    assert found["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert found["status"]["allocation"]["allocationTimestamp"] == "2026-01-01T00:00:00Z"
    field = found["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]
    assert field == {"key": "metadata.name", "operator": "In", "values": ["n2"]}


def test_pods_share_a_claim_on_its_node(stage: Devices) -> None:
    stage.apply(node("n1"), node("n2"), device_class(), slice_of("n1"), slice_of("n2"))
    stage.apply(claim("c"), user("a", "c"), user("b", "c"), user("d", "c"))
    assert len(set(stage.nodes_of("a", "b", "d"))) == 1
    assert len(stage.devices("c")) == 1
    assert sorted(stage.reserved("c")) == ["a", "b", "d"]


def test_a_pod_waits_for_its_claim_and_for_devices(stage: Devices) -> None:
    stage.apply(node("n1"), user("a", "c"))
    assert stage.nodes_of("a") == [""]
    stage.apply(claim("c"))
    assert "request gpus: device class gpu does not exist" in stage.scheduled("a")["message"]
    stage.apply(device_class())
    assert "1 cannot allocate all claims" in stage.scheduled("a")["message"]
    stage.apply(slice_of("n1"))
    assert stage.nodes_of("a") == ["n1"]


def test_more_pods_than_devices_wait_until_one_is_given_back(stage: Devices) -> None:
    stage.apply(node("n1"), device_class(), slice_of("n1", 2), *(claim(f"c{number}") for number in range(3)))
    stage.apply(*(user(f"p{number}", f"c{number}") for number in range(3)))
    assert stage.nodes_of("p0", "p1", "p2") == ["n1", "n1", ""]
    assert not stage.used_twice()
    stage.delete("p0")
    released = {"status": {"allocation": None, "reservedFor": None}}
    stage.do(lambda: stage.client.patch(CLAIMS, "c0", released, "default", subresource="status"))
    assert stage.nodes_of("p2") == ["n1"]
    assert stage.devices("c2") == ["n1/gpu-0"]


def test_a_tainted_device_is_not_given_to_pods_that_do_not_tolerate_it(stage: Devices) -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    stage.apply(node("n1"), device_class(), slice_of("n1", 1, taints=[taint]), claim("c"), user("a", "c"))
    assert stage.nodes_of("a") == [""]
    stage.apply(claim("t", tolerations=[{"key": "broken", "operator": "Exists"}]), user("b", "t"))
    assert stage.nodes_of("b") == ["n1"]


def test_an_extended_resource_is_served_by_devices(stage: Devices) -> None:
    stage.apply(node("n1"), device_class(extendedResourceName="example.com/gpu"), slice_of("n1"))
    asking = pod("a", "100m")
    amounts = {"cpu": "100m", "example.com/gpu": "2"}
    asking["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": {"example.com/gpu": "2"}}
    stage.apply(asking)
    assert stage.nodes_of("a") == ["n1"]
    status = stage.pod("a")["status"]["extendedResourceClaimStatus"]
    name = status["resourceClaimName"]
    assert name.startswith("a-extended-resources-")
    assert status["requestMappings"] == [
        {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-1"}
    ]
    assert stage.devices(name) == ["n1/gpu-0", "n1/gpu-1"]
    assert stage.reserved(name) == ["a"]


def test_a_failed_binding_keeps_the_devices_for_the_claim_and_is_tried_again(stage: Devices) -> None:
    stage.fault(bind="fail", count=1)
    stage.apply(node("n1"), device_class(), slice_of("n1", 1), claim("c"), user("a", "c"))
    assert stage.nodes_of("a") == ["n1"]
    assert stage.devices("c") == ["n1/gpu-0"]
    assert stage.reserved("c") == ["a"]


def test_a_failed_binding_deletes_the_claim_made_for_extended_resources(stage: Devices) -> None:
    stage.fault(bind="fail", count=1)
    stage.apply(node("n1"), device_class(extendedResourceName="example.com/gpu"), slice_of("n1", 1))
    asking = pod("a", "100m")
    asking["spec"]["containers"][0]["resources"] = {
        "requests": {"example.com/gpu": "1"},
        "limits": {"example.com/gpu": "1"},
    }
    stage.apply(asking)
    assert stage.nodes_of("a") == ["n1"]
    names = [each["metadata"]["name"] for each in stage.world.objects(CLAIMS)]
    assert names == [stage.pod("a")["status"]["extendedResourceClaimStatus"]["resourceClaimName"]]


def test_a_restart_in_the_middle_of_binding_gives_no_device_twice(stage: Devices) -> None:
    stage.fault(bind="slow", count=3, delay=30.0)
    stage.apply(node("n1"), node("n2"), device_class(), slice_of("n1", 2), slice_of("n2", 2))

    async def work() -> None:
        for number in range(6):
            await stage.client.create(CLAIMS, claim(f"c{number}"), "default")
        for number in range(6):
            await stage.client.create(PODS, user(f"p{number}", f"c{number}"), "default")
        await asyncio.sleep(5)
        await stage.world.fault(ScenarioFault(restart="scheduler"))

    stage.do(work)
    bound = [name for name in stage.nodes_of(*(f"p{number}" for number in range(6))) if name]
    assert len(bound) == 4
    assert not stage.used_twice()


def test_devices_with_binding_conditions_are_waited_for(stage: Devices) -> None:
    conditions = {"bindsToNode": True, "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    stage.apply(node("n1"), device_class(), slice_of("n1", 2, **conditions), claim("c"))

    async def report(condition: str) -> None:
        status = {
            "driver": "gpu.example.com",
            "pool": "n1",
            "device": "gpu-0",
            "conditions": [
                {
                    "type": condition,
                    "status": "True",
                    "reason": "Done",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
        }
        await stage.client.patch(CLAIMS, "c", {"status": {"devices": [status]}}, "default", subresource="status")

    async def work() -> None:
        await stage.client.create(PODS, user("a", "c"), "default")
        await asyncio.sleep(60)
        assert stage.devices("c") == ["n1/gpu-0"]
        assert stage.nodes_of("a") == [""]
        await report("attached")

    stage.do(work)
    assert stage.nodes_of("a") == ["n1"]
    assert stage.events("BindingConditionsPending") == ["waiting for binding conditions for device on node n1"]


def test_devices_that_do_not_become_ready_in_time_are_given_up(stage: Devices) -> None:
    conditions = {"bindsToNode": True, "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    stage.apply(node("n1"), device_class(), slice_of("n1", 1, **conditions), claim("c"))

    async def work() -> None:
        await stage.client.create(PODS, user("a", "c"), "default")
        await asyncio.sleep(590)
        assert stage.devices("c") == ["n1/gpu-0"]
        await asyncio.sleep(60)

    stage.do(work)
    messages = stage.events("FailedScheduling")
    assert any("device binding timeout" in each for each in messages), messages
    assert any("deallocation of ResourceClaim completed" in each for each in messages), messages


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_no_device_is_given_twice(stage: Devices, seed: int) -> None:
    chance = random.Random(seed)
    stage.apply(device_class(), *(node(f"n{number}") for number in range(3)))
    stage.apply(*(slice_of(f"n{number}", 2) for number in range(3)))
    alive: list[str] = []
    for step in range(12):
        match chance.choice(("create", "create", "delete", "fail", "slow", "restart", "republish")):
            case "create":
                names = [f"p{step}-{number}" for number in range(chance.randint(1, 3))]
                stage.apply(*(claim(name, chance.randint(1, 2)) for name in names))
                stage.apply(*(user(name, name) for name in names))
                alive += names
            case "delete" if alive:
                stage.delete(alive.pop(chance.randrange(len(alive))))
            case "fail":
                stage.fault(bind="fail", count=chance.randint(1, 3))
            case "slow":
                stage.fault(bind="slow", count=2, delay=20.0)
            case "restart":
                stage.do(lambda: stage.world.fault(ScenarioFault(restart="scheduler")))
            case "republish":
                stage.apply(slice_of("n0", 2, generation=step + 2))
        assert not stage.used_twice()
        for name in alive:
            bound = stage.pod(name)["spec"].get("nodeName")
            if bound:
                assert {each.split("/")[0] for each in stage.devices(name)} == {bound}
                assert stage.reserved(name) == [name]
