"""Devices on the embedded server: records on bound pods, who may write them, quota by class, and restarts."""

import asyncio
import json
from typing import Any

import pytest
from tests.scheduler.test_live import Stage
from tests.systems.resource_class.device_objects import GPU, expression, klass, machine, pod, resource

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import NODES, PODS, RESOURCE_QUOTAS
from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES, RESOURCE_CLASSES
from wharfinger.systems.resource_class.rules.compute_resources import RECORD

Document = dict[str, Any]
ANY, PRECIOUS = klass("rc1"), klass("rc2", expression("kind", "In", "precious"))
CR1, CR2 = resource("cr1", 2), resource("cr2", 3, kind="precious")


@pytest.fixture
def stage() -> Any:
    made = Stage()
    yield made
    made.world.close()


def quota(**hard: int) -> Document:
    names = {name.replace("_", "-"): str(amount) for name, amount in hard.items()}
    if "raw" in names:
        names[GPU] = names.pop("raw")
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "devices", "namespace": "default"},
        "spec": {"hard": names},
    }


def test_the_record_is_on_the_pod_and_on_its_containers(stage: Stage) -> None:
    stage.apply(machine("n1", CR1, CR2), ANY, PRECIOUS, pod("a", {"rc1": 3}))
    bound = stage.pod("a")
    given = {"rc1": [{"computeResourceName": "cr1", "count": 2}, {"computeResourceName": "cr2", "count": 1}]}
    assert bound["spec"]["nodeName"] == "n1" and bound["status"]["phase"] == "Running"
    assert json.loads(bound["metadata"]["annotations"][RECORD]) == {"c": given}
    assert bound["spec"]["containers"][0]["allocatedComputeResources"] == given


def test_nodes_keep_their_compute_resources(stage: Stage) -> None:
    stage.apply(machine("n1", {"resourceName": GPU, "properties": {"a": "b"}, "devices": ["x"]}))
    found = stage.world.store.peek(NODES, "n1")
    assert found is not None
    assert found.document()["status"]["computeResources"][0]["name"] == "nvidia.com/gpu-db4a7ecb11"


def test_a_restarted_scheduler_counts_the_same(stage: Stage) -> None:
    stage.apply(machine("n1", CR1, CR2), ANY, PRECIOUS, pod("a", {"rc1": 2}), pod("b", {"rc2": 2}))
    stage.apply(klass("rc1", expression("kind", "Exists")))
    stage.fault(restart="scheduler")
    stage.apply(pod("c", {"rc1": 2}), pod("d", {GPU: 1}))
    assert stage.nodes_of("c", "d") == ["", "n1"]


def test_pods_wait_for_classes_and_devices(stage: Stage) -> None:
    stage.apply(machine("n1"), pod("a", {"gold": 1}))
    assert 'unknown class "gold"' in stage.scheduled("a")["message"]
    stage.apply(klass("gold"))
    assert "Insufficient gold" in stage.scheduled("a")["message"]
    published = {
        "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
        "kind": "NodeComputeResources",
        "metadata": {"name": "n1"},
        "spec": {"computeResources": [CR1]},
    }
    stage.apply(published)
    assert stage.nodes_of("a") == ["n1"]


def published(*resources: Document) -> Document:
    return {
        "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
        "kind": "NodeComputeResources",
        "metadata": {"name": "n1"},
        "spec": {"computeResources": list(resources)},
    }


def test_pods_wait_no_longer_when_the_inventory_goes(stage: Stage) -> None:
    """Without it, the capacity that the node itself reports counts again."""
    stage.apply(machine("n1", classic=2), published(resource("cr1", 1)), ANY, pod("a", {"rc1": 2}))
    assert "1 matching, 1 healthy, 1 free" in stage.scheduled("a")["message"]
    stage.do(lambda: stage.client.delete(NODE_COMPUTE_RESOURCES, "n1"))
    assert stage.nodes_of("a") == ["n1"]


def test_the_kubelet_ignores_classic_capacity_beside_an_inventory(stage: Stage) -> None:
    stage.apply(machine("n1", classic=1), published(resource("cr1", 3)), ANY, pod("a", {GPU: 2}))
    assert stage.nodes_of("a") == ["n1"] and stage.pod("a")["status"]["phase"] == "Running"


def test_devices_of_a_pod_that_ends_are_given_again(stage: Stage) -> None:
    stage.apply(machine("n1", CR1), ANY, pod("a", {"rc1": 2}), pod("b", {"rc1": 1}))
    assert stage.nodes_of("b") == [""]
    stage.delete("a")
    assert stage.nodes_of("b") == ["n1"]


def test_preemption_takes_the_pod_that_holds_the_devices(stage: Stage) -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    stage.apply(high, machine("n1", CR1, CR2), ANY, PRECIOUS)
    stage.apply(pod("one", {"rc1": 2}), pod("two", {"rc1": 2}))
    stage.apply(pod("vip", {"rc2": 3}, spec={"priorityClassName": "high"}))
    stage.do(lambda: asyncio.sleep(60))
    assert stage.nodes_of("vip", "one") == ["n1", "n1"]
    assert stage.world.store.peek(PODS, "two", "default") is None


def test_only_schedulers_write_records_of_existing_pods(stage: Stage) -> None:
    stage.apply(machine("n1", CR1), ANY, pod("a", {"rc1": 1}))
    with pytest.raises(ApiError, match="only schedulers"):
        stage.do(lambda: stage.client.patch(PODS, "a", {"metadata": {"annotations": {RECORD: "{}"}}}, "default"))
    with pytest.raises(ApiError):
        stage.do(lambda: stage.client.patch(PODS, "a", {"metadata": {"annotations": {RECORD: None}}}, "default"))
    stage.do(lambda: stage.client.patch(PODS, "a", {"metadata": {"annotations": {"x": "y"}}}, "default"))


def test_an_alias_belongs_to_one_class(stage: Stage) -> None:
    stage.apply(klass("gold", alias="example.com/gold"))
    for second in (klass("other", alias="example.com/gold"), klass("raw", raw="example.com/gold")):
        with pytest.raises(ApiError, match=r"example\.com/gold"):
            stage.apply(second)
    with pytest.raises(ApiError, match="raw resource of a class"):
        stage.apply(klass("own", alias=GPU))


def test_groups_have_a_switch(stage: Stage) -> None:
    with pytest.raises(ApiError, match="switched off"):
        stage.apply(klass("pair", groupBy="nvlink", groupSize=2))


def test_quota_counts_class_and_alias_as_one_and_raw_names_apart(stage: Stage) -> None:
    alias = "resourceclass.scheduling.sigs.x-k8s.io/silver"
    stage.apply(klass("silver"), quota(silver=6, raw=2), pod("by-alias", {alias: 6}), pod("raw", {GPU: 2}))
    with pytest.raises(
        ApiError, match=r"exceeded quota: devices, requested: silver=1, used: silver=6, limited: silver=6"
    ):
        stage.apply(pod("more", {"silver": 1}))
    with pytest.raises(ApiError, match="exceeded quota"):
        stage.apply(pod("more", {GPU: 1}))
    found = stage.world.store.peek(RESOURCE_QUOTAS, "devices", "default")
    assert found is not None
    assert found.document()["status"]["used"] == {"silver": "6", GPU: "2"}


def test_quota_counts_what_a_pod_needs_at_once(stage: Stage) -> None:
    alias = "resourceclass.scheduling.sigs.x-k8s.io/silver"
    stage.apply(klass("silver"), quota(silver=6), pod("a", {"silver": 3}, init={alias: 5}))
    stage.apply(pod("b", {"silver": 1}))
    with pytest.raises(ApiError, match="exceeded quota"):
        stage.apply(pod("c", {"silver": 1}))


def test_of_two_requests_for_the_last_unit_one_is_refused(stage: Stage) -> None:
    stage.apply(klass("gold"), quota(gold=1))

    async def both() -> None:
        done = await asyncio.gather(
            *(stage.client.create(PODS, pod(name, {"gold": 1}), "default") for name in ("a", "b")),
            return_exceptions=True,
        )
        assert sum(isinstance(each, ApiError) for each in done) == 1

    stage.do(both)


def test_a_quota_counts_anew_when_an_alias_changes(stage: Stage) -> None:
    stage.apply(klass("gold", alias="example.com/gold"), quota(gold=2), pod("a", {"example.com/gold": 2}))
    with pytest.raises(ApiError, match="exceeded quota"):
        stage.apply(pod("b", {"gold": 1}))
    stage.do(lambda: stage.client.delete(RESOURCE_CLASSES, "gold"))
    stage.apply(pod("b", {"gold": 1}))
