"""HorizontalPodAutoscalers with a metrics API in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.controllers.world import World, workload

from wharfinger.api.kinds.builtin import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from wharfinger.api.registry import Document, Resource
from wharfinger.apiserver.resource_metrics import provide_metrics

USAGE = "wharfinger.dev/usage"


@pytest.fixture
def world() -> Iterator[World]:
    with World(nodes=20) as made:
        provide_metrics(made.store, made.clock.now)
        yield made


def target(
    world: World, kind: Resource = DEPLOYMENTS, *, replicas: int = 2, usage: str = "cpu=100%", **container: Any
) -> None:
    made = workload(kind, "web", replicas=replicas, annotations={USAGE: usage})
    requests = {"requests": {"cpu": "100m", "memory": "100Mi"}}
    made["spec"]["template"]["spec"]["containers"][0] |= {"resources": requests, **container}
    world.apply(kind, made)
    world.advance(400)  # past the time in which the CPU usage of new pods does not count


def autoscaler(kind: str = "Deployment", version: str = "apps/v1", *, name: str = "web", **spec: Any) -> Document:
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    stated = {"minReplicas": 1, "maxReplicas": 20, "metrics": [metric], **spec}
    return {
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": {"apiVersion": version, "kind": kind, "name": "web"}, **stated},
    }


def watch(world: World, **spec: Any) -> None:
    world.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler(**spec))


def run(world: World, seconds: float) -> None:
    world.loop.run_to(world.loop.time() + seconds)


def status(world: World, name: str = "web") -> Document:
    found: Document = world.get(HORIZONTAL_POD_AUTOSCALERS, name)["status"]
    return found


def condition(world: World, type: str, name: str = "web") -> tuple[str, str, str]:
    found = next(each for each in status(world, name)["conditions"] if each["type"] == type)
    return found["status"], found["reason"], found["message"]


def replicas(world: World, kind: Resource = DEPLOYMENTS) -> int:
    return int(world.get(kind, "web")["spec"]["replicas"])


def use(world: World, text: str) -> None:
    for pod in world.pods("app=web"):
        world.patch(PODS, pod["metadata"]["name"], {"metadata": {"annotations": {USAGE: text}}})


def events(world: World) -> set[tuple[str, str]]:
    assert world.recorder is not None
    world.advance(1)
    found = world.list(EVENTS)
    return {
        (each["reason"], each["message"])
        for each in found
        if each["involvedObject"]["kind"] == "HorizontalPodAutoscaler"
    }


def test_load_above_the_target_scales_up(world: World) -> None:
    target(world, replicas=2, usage="cpu=100%")
    watch(world)
    run(world, 16)
    assert replicas(world) == 4
    found = status(world)
    assert (found["currentReplicas"], found["desiredReplicas"]) == (2, 4) and found["lastScaleTime"]
    current = {"averageUtilization": 100, "averageValue": "100m"}
    assert found["currentMetrics"] == [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]
    text = "the HPA controller was able to update the target scale to 4"
    assert condition(world, "AbleToScale") == ("True", "SucceededRescale", text)
    metric = "cpu resource utilization (percentage of request)"
    text = f"the HPA was able to successfully calculate a replica count from {metric}"
    assert condition(world, "ScalingActive") == ("True", "ValidMetricFound", text)
    assert condition(world, "ScalingLimited")[:2] == ("False", "DesiredWithinRange")
    assert ("SuccessfulRescale", f"New size: 4; reason: {metric} above target") in events(world)


@pytest.mark.parametrize(("usage", "expected"), [("cpu=54%", 2), ("cpu=46%", 2), ("cpu=56%", 3)])
def test_small_deviations_change_nothing(world: World, usage: str, expected: int) -> None:
    target(world, replicas=2, usage=usage)
    watch(world)
    run(world, 16)
    assert replicas(world) == expected


def test_a_tolerance_of_its_own(world: World) -> None:
    target(world, replicas=2, usage="cpu=54%")
    watch(world, behavior={"scaleUp": {"tolerance": "0.05"}})
    run(world, 16)
    assert replicas(world) == 3


def test_scaling_down_waits_for_the_stabilization_window(world: World) -> None:
    target(world, replicas=8, usage="cpu=10%")
    watch(world)
    run(world, 16)
    assert replicas(world) == 8
    text = "recent recommendations were higher than current one, applying the highest recent recommendation"
    assert condition(world, "AbleToScale") == ("True", "ScaleDownStabilized", text)
    run(world, 270)
    assert replicas(world) == 8
    run(world, 60)
    assert replicas(world) == 2
    assert ("SuccessfulRescale", "New size: 2; reason: All metrics below target") in events(world)


def test_a_simulation_goes_on_until_the_window_has_passed(world: World) -> None:
    target(world, replicas=8, usage="cpu=10%")
    watch(world)
    world.settle()
    assert replicas(world) == 1  # to two, and then the two need only one


def test_the_maximum_and_the_default_rate_limit(world: World) -> None:
    target(world, replicas=2, usage="cpu=1000%")
    watch(world, maxReplicas=7)
    run(world, 16)
    assert replicas(world) == 4
    text = "the desired replica count is increasing faster than the maximum scale rate"
    assert condition(world, "ScalingLimited") == ("True", "ScaleUpLimit", text)
    world.settle()
    assert replicas(world) == 7
    text = "the desired replica count is more than the maximum replica count"
    assert condition(world, "ScalingLimited") == ("True", "TooManyReplicas", text)


def test_bounds_apply_without_metrics(world: World) -> None:
    target(world, replicas=9, usage="cpu=50%")
    watch(world, maxReplicas=3)
    run(world, 16)
    assert replicas(world) == 3
    assert any("Current number of replicas above Spec.MaxReplicas" in text for _, text in events(world))
    world.patch(HORIZONTAL_POD_AUTOSCALERS, "web", {"spec": {"minReplicas": 5, "maxReplicas": 6}})
    run(world, 16)
    assert replicas(world) == 5
    assert any("Current number of replicas below Spec.MinReplicas" in text for _, text in events(world))


def test_a_target_with_zero_replicas_is_left_alone(world: World) -> None:
    target(world, replicas=0)
    watch(world)
    run(world, 16)
    assert replicas(world) == 0
    text = "scaling is disabled since the replica count of the target is zero"
    assert condition(world, "ScalingActive") == ("False", "ScalingDisabled", text)


def test_policies_limit_the_rate(world: World) -> None:
    target(world, replicas=10, usage="cpu=5%")
    rules = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}
    watch(world, behavior={"scaleDown": rules})
    run(world, 16)
    assert replicas(world) == 8
    run(world, 30)
    assert replicas(world) == 8
    assert condition(world, "ScalingLimited")[:2] == ("True", "ScaleDownLimit")
    run(world, 45)
    assert replicas(world) == 6


def test_of_several_policies_one_is_selected(world: World) -> None:
    target(world, replicas=10, usage="cpu=5%")
    policies = [
        {"type": "Pods", "value": 1, "periodSeconds": 60},
        {"type": "Percent", "value": 50, "periodSeconds": 60},
    ]
    rules = {"stabilizationWindowSeconds": 0, "policies": policies}
    watch(world, behavior={"scaleDown": {**rules, "selectPolicy": "Min"}})
    run(world, 16)
    assert replicas(world) == 9
    world.patch(HORIZONTAL_POD_AUTOSCALERS, "web", {"spec": {"behavior": {"scaleDown": {"selectPolicy": "Max"}}}})
    run(world, 90)
    assert replicas(world) <= 5


def test_scaling_down_can_be_disabled(world: World) -> None:
    target(world, replicas=10, usage="cpu=5%")
    watch(world, behavior={"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}})
    world.settle()
    run(world, 3600)
    assert replicas(world) == 10
    assert condition(world, "ScalingLimited")[:2] == ("True", "ScaleDownLimit")


def test_scaling_up_can_be_stabilized(world: World) -> None:
    target(world, replicas=4, usage="cpu=50%")
    watch(world, behavior={"scaleUp": {"stabilizationWindowSeconds": 120}})
    run(world, 31)
    use(world, "cpu=100%")
    run(world, 30)
    assert replicas(world) == 4
    assert condition(world, "AbleToScale")[1] == "ScaleUpStabilized"
    run(world, 120)
    assert replicas(world) > 4


def test_an_average_value_of_memory(world: World) -> None:
    target(world, replicas=2, usage="memory=300Mi")
    metric = {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "100Mi"}},
    }
    watch(world, metrics=[metric])
    run(world, 16)
    assert replicas(world) == 4  # six are wanted; twice as many, or four, are allowed at once
    [current] = status(world)["currentMetrics"]
    assert current["resource"]["current"] == {"averageValue": "300Mi"}
    world.settle()
    assert replicas(world) == 20


def test_the_usage_of_one_container(world: World) -> None:
    target(world, replicas=2, usage="main/cpu=100%")
    source = {"name": "cpu", "container": "main", "target": {"type": "Utilization", "averageUtilization": 50}}
    watch(world, metrics=[{"type": "ContainerResource", "containerResource": source}])
    run(world, 16)
    assert replicas(world) == 4
    assert "cpu container resource utilization" in condition(world, "ScalingActive")[2]
    world.patch(
        HORIZONTAL_POD_AUTOSCALERS,
        "web",
        {"spec": {"metrics": [{"type": "ContainerResource", "containerResource": {**source, "container": "other"}}]}},
    )
    run(world, 31)
    assert condition(world, "ScalingActive")[1] == "FailedGetContainerResourceMetric"


def test_metrics_without_an_adapter_are_reported(world: World) -> None:
    target(world, replicas=2, usage="cpu=100%")
    pods = {
        "type": "Pods",
        "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "1"}},
    }
    watch(world, metrics=[pods])
    run(world, 16)
    cause = (
        "unable to get metric hits: unable to fetch metrics from custom metrics API: "
        "no custom metrics API (custom.metrics.k8s.io) registered"
    )
    text = f"the HPA was unable to compute the replica count: {cause}"
    assert condition(world, "ScalingActive") == ("False", "FailedGetPodsMetric", text)
    found = events(world)
    assert ("FailedGetPodsMetric", cause) in found
    first = f"invalid metrics (1 invalid out of 1), first error is: failed to get pods metric value: {cause}"
    assert ("FailedComputeMetricsReplicas", first) in found
    cpu = autoscaler()["spec"]["metrics"]
    world.patch(HORIZONTAL_POD_AUTOSCALERS, "web", {"spec": {"metrics": [pods, *cpu]}})
    run(world, 31)
    assert replicas(world) > 2  # up by the metric that works
    use(world, "cpu=1%")
    before = replicas(world)
    run(world, 900)
    assert replicas(world) == before  # but not down


def test_containers_without_requests(world: World) -> None:
    target(world, replicas=1, resources={})
    watch(world)
    run(world, 16)
    [pod] = world.pods()
    cause = "failed to get cpu utilization: missing request for cpu in container main of Pod " + pod["metadata"]["name"]
    text = f"the HPA was unable to compute the replica count: {cause}"
    assert condition(world, "ScalingActive") == ("False", "FailedGetResourceMetric", text)


def test_a_missing_target(world: World) -> None:
    watch(world)
    world.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler("Thing", "example.com/v1", name="thing"))
    run(world, 16)
    text = 'the HPA controller was unable to get the target\'s current scale: deployments.apps "web" not found'
    assert condition(world, "AbleToScale") == ("False", "FailedGetScale", text)
    assert 'no matches for kind "Thing" in group "example.com"' in condition(world, "AbleToScale", "thing")[2]


def test_two_autoscalers_of_the_same_pods_do_nothing(world: World) -> None:
    target(world, replicas=2, usage="cpu=100%")
    watch(world)
    watch(world, name="other")
    run(world, 31)
    text = "pods by selector app=web are controlled by multiple HPAs: [{other default} {web default}]"
    assert condition(world, "ScalingActive", "other") == ("False", "AmbiguousSelector", text)


def test_pods_that_are_not_ready_do_not_count_for_more(world: World) -> None:
    target(world, replicas=2, usage="cpu=100%")
    watch(world)
    run(world, 16)
    assert replicas(world) == 4
    run(world, 12)  # the new pods have just started, and their usage does not count
    assert replicas(world) == 4
    run(world, 400)
    assert replicas(world) > 4


@pytest.mark.parametrize("kind", [REPLICA_SETS, STATEFUL_SETS])
def test_other_workloads_scale(world: World, kind: Resource) -> None:
    target(world, kind, replicas=2, usage="cpu=100%")
    watch(world, kind=kind.kind)
    run(world, 16)
    assert replicas(world, kind) == 4


def test_custom_resources_scale() -> None:
    import asyncio

    from wharfinger.apiserver.custom_resources import CustomResources

    with World(nodes=5) as world:
        provide_metrics(world.store, world.clock.now)
        world._do(CustomResources(world.store, lambda kind: None).start())
        paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            "subresources": {"status": {}, "scale": {**paths, "labelSelectorPath": ".status.selector"}},
        }
        names = {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"}
        spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
        world.apply(CUSTOM_RESOURCE_DEFINITIONS, {"metadata": {"name": "things.example.com"}, "spec": spec})
        world._do(asyncio.sleep(0))
        world.settle()
        things = Resource("example.com", "v1", "things", "Thing")
        world.apply(things, {"metadata": {"name": "web"}, "spec": {"replicas": 2}})
        world.patch(things, "web", {"status": {"replicas": 2, "selector": "app=web"}}, subresource="status")
        target(world, replicas=2, usage="cpu=100%")
        world.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler("Thing", "example.com/v1"))
        run(world, 16)
        assert world.get(things, "web")["spec"]["replicas"] == 4


def test_conflicts_and_failures_do_not_stop_it() -> None:
    with World(nodes=10, failing=0.2) as world:
        provide_metrics(world.store, world.clock.now)
        target(world, replicas=2, usage="cpu=100%")
        watch(world, maxReplicas=9)
        run(world, 900)
        world.restart()
        run(world, 900)
        assert replicas(world) == 9
