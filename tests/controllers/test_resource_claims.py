"""Claims from templates and their end; simulated kubelets wait for claims; eviction by device taints."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api import device_cases as cases
from tests.controllers.world import World

from wharfinger.api.kinds.builtin import (
    DEVICE_TAINT_RULES,
    EVENTS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.controllers.devices.taints import RuleEffect, rule_condition
from wharfinger.devices.claims import FINALIZER
from wharfinger.devices.pod_claims import POD_CLAIM, name_prefix


def pod(name: str = "p", *claims: Document, **spec: Any) -> Document:
    entries = list(claims) or [{"name": "gpu", "resourceClaimTemplateName": "x"}]
    container = {"name": "c", "image": "i"}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "resourceClaims": entries, **spec}}


def only(world: World) -> Document:
    (claim,) = world.list(RESOURCE_CLAIMS)
    return claim


def allocate(world: World, claim: Document, *pods: Document, **result: Any) -> None:
    """What a scheduler writes: the finalizer, the allocation, and the pods that may use it."""
    name = claim["metadata"]["name"]
    world.patch(RESOURCE_CLAIMS, name, {"metadata": {"finalizers": [FINALIZER]}})
    reserved = [{"resource": "pods", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]} for each in pods]
    status: Document = {"allocation": cases.allocation(cases.result(**result))}
    if reserved:
        status["reservedFor"] = reserved
    world.patch(RESOURCE_CLAIMS, name, {"status": status}, subresource="status")


def test_a_claim_is_made_from_the_template_and_recorded() -> None:
    with World() as world:
        world.apply(RESOURCE_CLAIM_TEMPLATES, cases.template(labels={"a": "b"}, annotations={"c": "d"}))
        world.apply(PODS, pod())
        world.settle()
        claim, made = only(world), world.get(PODS, "p")
        metadata = claim["metadata"]
        assert metadata["generateName"] == "p-gpu-" and metadata["name"].startswith("p-gpu-")
        assert metadata["labels"] == {"a": "b"}
        assert metadata["annotations"] == {"c": "d", POD_CLAIM: "gpu"}
        assert metadata["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"], "controller": True}
        ]
        assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
        assert made["status"]["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": metadata["name"]}]


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (("p", "gpu"), "p-gpu-"),
        (("p" * 50, "g" * 20), f"{'p' * 39}-{'g' * 15}"),
        (("p" * 60, "gpu"), f"{'p' * 52}-gp"),
    ],
)
def test_long_names_are_shortened_in_proportion(names: tuple[str, str], prefix: str) -> None:
    assert name_prefix(*names) == prefix


def test_a_missing_template_is_reported_and_awaited() -> None:
    with World() as world:
        world.apply(PODS, pod())
        world.settle()
        assert world.list(RESOURCE_CLAIMS) == []
        messages = [each["message"] for each in world.list(EVENTS) if each["reason"] == "FailedResourceClaimCreation"]
        assert messages == [
            'PodResourceClaim gpu: resource claim template "x": resourceclaimtemplate.resource.k8s.io "x" not found'
        ]
        world.apply(RESOURCE_CLAIM_TEMPLATES, cases.template())
        world.settle()
        assert only(world)["metadata"]["generateName"] == "p-gpu-"


def test_one_claim_is_made_even_if_writes_fail() -> None:
    for _ in range(3):
        with World(failing=0.4) as world:
            world.apply(RESOURCE_CLAIM_TEMPLATES, cases.template())
            for number in range(4):
                world.apply(PODS, pod(f"p{number}"))
            world.advance(600)
            claims = world.list(RESOURCE_CLAIMS)
            recorded = [world.get(PODS, f"p{n}")["status"]["resourceClaimStatuses"][0] for n in range(4)]
            names = {each["resourceClaimName"] for each in recorded}
            assert len(names) == 4 and names <= {claim["metadata"]["name"] for claim in claims}


def test_a_pod_starts_once_its_claims_are_allocated_and_reserved() -> None:
    with World() as world:
        world.apply(RESOURCE_CLAIM_TEMPLATES, cases.template())
        world.apply(PODS, pod())
        world.advance(30)
        bound = world.get(PODS, "p")
        assert bound["spec"]["nodeName"] and bound["status"].get("phase") == "Pending"
        allocate(world, only(world))
        world.advance(30)
        # Nobody reserved it, so the controller does for a pod that is bound already.
        assert [each["name"] for each in only(world)["status"]["reservedFor"]] == ["p"]
        assert world.get(PODS, "p")["status"]["phase"] == "Running"


def test_a_shared_claim_is_released_by_its_last_pod() -> None:
    with World() as world:
        world.apply(RESOURCE_CLAIMS, cases.claim())
        entry = {"name": "gpu", "resourceClaimName": "x"}
        for name in ("a", "b"):
            world.apply(PODS, pod(name, entry))
        world.settle()
        allocate(world, only(world), *(world.get(PODS, name) for name in ("a", "b")))
        world.settle()
        world.delete(PODS, "a")
        world.advance(60)
        status = only(world)["status"]
        assert [each["name"] for each in status["reservedFor"]] == ["b"] and status["allocation"]
        world.delete(PODS, "b")
        world.advance(60)
        claim = only(world)
        assert not claim.get("status") and not claim["metadata"].get("finalizers")


def test_the_claim_of_a_finished_pod_is_deleted_before_the_pod() -> None:
    with World() as world:
        world.apply(RESOURCE_CLAIM_TEMPLATES, cases.template())
        world.apply(PODS, pod(restartPolicy="Never"))
        world.settle()
        allocate(world, only(world), world.get(PODS, "p"))
        world.settle()
        world.patch(PODS, "p", {"status": {"phase": "Succeeded"}}, subresource="status")
        world.settle()
        assert world.list(RESOURCE_CLAIMS) == [] and world.get(PODS, "p")


def test_a_deleted_claim_waits_for_its_pods() -> None:
    with World() as world:
        world.apply(RESOURCE_CLAIMS, cases.claim())
        world.apply(PODS, pod("a", {"name": "gpu", "resourceClaimName": "x"}))
        world.settle()
        allocate(world, only(world), world.get(PODS, "a"))
        world.delete(RESOURCE_CLAIMS, "x")
        world.settle()
        assert only(world)["metadata"]["deletionTimestamp"]
        world.delete(PODS, "a")
        world.advance(60)
        assert world.list(RESOURCE_CLAIMS) == []


def test_a_reservation_of_a_pod_that_never_existed_is_removed() -> None:
    with World() as world:
        world.apply(RESOURCE_CLAIMS, cases.claim())
        ghost = {"metadata": {"name": "ghost", "uid": "1"}}
        allocate(world, only(world), ghost)
        world.settle()
        assert not only(world).get("status")


TAINT = {"key": "broken", "effect": "NoExecute"}


def running(world: World, **result: Any) -> None:
    """A running pod with a device of a published slice."""
    world.apply(RESOURCE_SLICES, cases.slice_of())
    world.apply(RESOURCE_CLAIMS, cases.claim())
    world.apply(PODS, pod("a", {"name": "gpu", "resourceClaimName": "x"}))
    world.settle()
    allocate(world, only(world), world.get(PODS, "a"), **result)
    world.advance(5)
    assert world.get(PODS, "a")["status"]["phase"] == "Running"


def taint(world: World, *taints: Document) -> None:
    devices = [{"name": "gpu-0", "taints": list(taints)}]
    world.patch(RESOURCE_SLICES, "x", {"spec": {"devices": devices}})


def test_a_pod_leaves_a_tainted_device() -> None:
    with World() as world:
        running(world)
        taint(world, {"key": "slow", "effect": "NoSchedule"})
        world.settle()
        assert not world.get(PODS, "a")["metadata"].get("deletionTimestamp")
        taint(world, {**TAINT, "timeAdded": "2020-01-01T00:00:00Z"})
        world.settle()
        deleted = [each for each in world.list(EVENTS) if each["reason"] == "DeviceTaintManagerEviction"]
        assert [each["message"] for each in deleted] == ["Marking for deletion"]
        assert deleted[0]["source"]["component"] == "device-taint-eviction-controller"
        world.advance(60)
        assert world.list(PODS) == []


def test_a_toleration_delays_the_eviction_and_may_prevent_it() -> None:
    tolerations = [{"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 100}]
    with World() as world:
        running(world, tolerations=tolerations)
        added = format_time(world.clock.now())
        taint(world, {**TAINT, "timeAdded": added})
        world.advance(90)
        assert not world.get(PODS, "a")["metadata"].get("deletionTimestamp")
        taint(world)
        world.advance(60)
        assert not world.get(PODS, "a")["metadata"].get("deletionTimestamp")
        messages = [each["message"] for each in world.list(EVENTS) if each["reason"] == "DeviceTaintManagerEviction"]
        assert messages == ["Cancelling deletion"]
        taint(world, {**TAINT, "timeAdded": added})
        world.advance(60)
        assert world.list(PODS) == []
    with World() as world:
        running(world, tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
        taint(world, {**TAINT, "timeAdded": "2020-01-01T00:00:00Z"})
        world.advance(600)
        assert world.get(PODS, "a")["status"]["phase"] == "Running"


def test_a_rule_taints_devices_and_says_so() -> None:
    with World() as world:
        running(world)
        selector = {"driver": cases.DRIVER, "device": "gpu-0"}
        world.apply(DEVICE_TAINT_RULES, cases.rule({"key": "broken", "effect": "None"}, deviceSelector=selector))
        world.settle()
        (condition,) = world.get(DEVICE_TAINT_RULES, "x")["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "NoEffect")
        assert condition["message"].startswith(
            "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if"
        )
        world.patch(DEVICE_TAINT_RULES, "x", {"spec": {"taint": {"effect": "NoExecute"}}})
        world.advance(60)
        assert world.list(PODS) == []
        (condition,) = world.get(DEVICE_TAINT_RULES, "x")["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "Completed")
        assert condition["message"] == "1 pod evicted since starting the controller."


@pytest.mark.parametrize(
    ("effect", "found", "expected"),
    [
        ("NoExecute", RuleEffect(0, 0, 0, 0, 0), (False, "NotStarted", "")),
        (
            "NoExecute",
            RuleEffect(3, 3, 2, 1, 3),
            (
                True,
                "PodsPendingEviction",
                "2 pods need to be evicted in 1 namespace. 3 pods evicted since starting the controller.",
            ),
        ),
        ("NoExecute", RuleEffect(3, 3, 1, 1, 0), (True, "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.")),
        ("NoExecute", RuleEffect(3, 3, 5, 2, 0), (True, "PodsPendingEviction", "5 pods need to be evicted in 2 different namespaces.")),
        ("NoSchedule", RuleEffect(0, 0, 0, 0, 0), (False, "OtherEffect", "Eviction only happens for the NoExecute effect.")),
    ],
)  # fmt: skip
def test_the_condition_of_a_rule(effect: str, found: RuleEffect, expected: tuple[bool, str, str]) -> None:
    assert rule_condition(effect, found) == expected
