"""Claims in use and bound volumes are kept until they are free."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.controllers.storage import (
    DRIVER,
    LOCAL,
    NODES,
    Document,
    Stage,
    claim,
    close_worlds,
    klass,
    pod,
    pool,
    volume,
)
from tests.controllers.world import World, workload

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import (
    CSI_STORAGE_CAPACITIES,
    EVENTS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STATEFUL_SETS,
)
from wharfinger.api.registry import Resource
from wharfinger.client.events import EventRecorder
from wharfinger.client.informer import InformerSet
from wharfinger.client.local import LocalClient
from wharfinger.client.timers import SystemClock
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.volumes import ClaimProtection
from wharfinger.store import Store

CLAIMS, VOLUMES = PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
NOW = klass("now", waits=False)


@pytest.fixture(autouse=True)
def _worlds_are_closed() -> Iterator[None]:
    yield
    close_worlds()


def names(stage: Stage, resource: Resource) -> list[str]:
    """Names, with a mark for objects that are being deleted."""
    found = (each["metadata"] for each in stage.world.objects(resource))
    return sorted(f"{each['name']}!" if "deletionTimestamp" in each else each["name"] for each in found)


def ended(stage: Stage, name: str) -> None:
    async def run() -> None:
        await stage.client.patch(PODS, name, {"status": {"phase": "Succeeded"}}, "default", subresource="status")
        await stage.world.settle()

    stage.world.loop.complete(run())


def test_new_claims_and_volumes_have_a_finalizer() -> None:
    given = claim("kept", storage_class="now")
    given["metadata"]["finalizers"] = ["example.com/mine"]
    stage = Stage(*NODES, NOW, given)
    assert stage.claim("kept")["metadata"]["finalizers"] == ["example.com/mine", "kubernetes.io/pvc-protection"]
    (made,) = stage.world.objects(VOLUMES)
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    stage.apply(given)  # whoever applies it again does not own what was added
    assert "kubernetes.io/pvc-protection" in stage.claim("kept")["metadata"]["finalizers"]


@pytest.mark.parametrize("restart", ["", "controllers", "all"])
def test_a_claim_is_kept_while_a_scheduled_pod_uses_it(restart: str) -> None:
    stage = Stage(*NODES, NOW, claim("data", storage_class="now"), pod("p", "data"), pod("q", "data"))
    assert stage.node_of("p") and stage.node_of("q")
    stage.delete(CLAIMS, "data")
    assert names(stage, CLAIMS) == ["data!"] and list(stage.volumes().values()) == ["Bound"]
    stage.delete(PODS, "p")
    assert names(stage, CLAIMS) == ["data!"]
    if restart:
        stage.fault(restart=restart)
    ended(stage, "q")
    assert names(stage, CLAIMS) == ["data!"]  # a pod that ended keeps it, as upstream
    stage.delete(PODS, "q")
    assert names(stage, CLAIMS) == [] and stage.volumes() == {}


def test_a_claim_without_its_finalizer_gets_it_back() -> None:
    with World(controllers=["pvc-protection"]) as world:
        bare = claim("bare")  # this world has no admission: stored without the finalizer
        world.create(CLAIMS, bare)
        world.settle()
        assert world.get(CLAIMS, "bare")["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        world.patch(CLAIMS, "bare", {"metadata": {"finalizers": None}})
        assert world.get(CLAIMS, "bare")["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        world.delete(CLAIMS, "bare")
        assert not world.exists(CLAIMS, "bare")


def test_a_pod_missing_from_the_cache_keeps_its_claim() -> None:
    async def run() -> list[bool]:
        store = Store(registry())
        client = LocalClient(store)
        informers = InformerSet(client)
        recorder = EventRecorder(client, "test", SystemClock())
        controller = ClaimProtection(ControllerContext(client, informers, recorder, store.registry))
        seen = next(each for each in informers if each.resource == CLAIMS)
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
        document = claim("data")
        document["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
        await client.create(CLAIMS, document, "default")
        await client.create(PODS, pod("p", "data", nodeName="a"), "default")
        await client.delete(CLAIMS, "data", "default")
        there = []
        seen.start()  # claims alone: of pods this controller has heard nothing
        await seen.wait_synced()
        for _ in range(2):
            await controller.reconcile(await controller.queue.get())
            controller.queue.done("default")
            there.append(store.peek(CLAIMS, "data", "default") is not None)
            if there[-1]:
                await client.delete(PODS, "p", "default", grace_period=0)
                await client.patch(CLAIMS, "data", {"metadata": {"labels": {"look": "again"}}}, "default")
        await informers.stop()
        return there

    assert asyncio.run(asyncio.wait_for(run(), 30)) == [True, False]


def test_an_unscheduled_pod_does_not_keep_its_claim() -> None:
    stage = Stage(*NODES, NOW, claim("data", storage_class="now"), pod("p", "data", nodeSelector={"no": "where"}))
    assert not stage.node_of("p")
    stage.delete(CLAIMS, "data")
    assert names(stage, CLAIMS) == [] and names(stage, PODS) == ["p"]


def test_pods_with_a_terminating_claim_are_not_scheduled() -> None:
    stage = Stage(*NODES, NOW, claim("data", storage_class="now"), pod("p", "data"))
    stage.delete(CLAIMS, "data")
    stage.apply(pod("late", "data"))
    assert not stage.node_of("late") and 'persistentvolumeclaim "data" is being deleted' in stage.why("late")
    stage.delete(PODS, "p")
    assert names(stage, CLAIMS) == []


def test_another_finalizer_keeps_an_unused_claim() -> None:
    held = claim("data", storage_class="now")
    held["metadata"]["finalizers"] = ["example.com/backup"]
    stage = Stage(*NODES, NOW, held)
    stage.delete(CLAIMS, "data")
    assert stage.claim("data")["metadata"]["finalizers"] == ["example.com/backup"]
    stage.patch(CLAIMS, "data", {"metadata": {"finalizers": None}})
    assert names(stage, CLAIMS) == [] and stage.volumes() == {}


def test_an_ephemeral_claim_is_deleted_after_its_pod() -> None:
    stage = Stage(*NODES, klass("dynamic"), pod("p", ephemeral="dynamic"))
    stage.delete(CLAIMS, "p-scratch")
    assert names(stage, CLAIMS) == ["p-scratch!"] and stage.node_of("p")
    stage.delete(PODS, "p")
    stage.advance(60)
    assert names(stage, CLAIMS) == [] and stage.volumes() == {}


def test_a_pod_and_its_ephemeral_claim_do_not_wait_for_each_other() -> None:
    stage = Stage(*NODES, klass("dynamic"), pod("p", ephemeral="dynamic"))

    async def delete() -> None:
        await stage.client.delete(PODS, "p", "default", propagation="Foreground")
        await stage.world.settle()

    stage.world.loop.complete(delete())
    stage.advance(120)
    assert names(stage, PODS) == [] and names(stage, CLAIMS) == [] and stage.volumes() == {}


@pytest.mark.parametrize("restart", ["", "controllers"])
@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_a_bound_volume_is_kept_until_its_claim_is_deleted(policy: str, restart: str) -> None:
    stage = Stage(*NODES, klass("now", waits=False, reclaimPolicy=policy), claim("data", storage_class="now"))
    (name,) = stage.volumes()
    stage.delete(VOLUMES, name, "")
    assert names(stage, VOLUMES) == [f"{name}!"] and stage.claim("data")["status"]["phase"] == "Bound"
    if restart:
        stage.fault(restart=restart)
    stage.apply(pod("p", "data"))
    assert stage.node_of("p")
    stage.delete(CLAIMS, "data")
    assert names(stage, VOLUMES) == [f"{name}!"] and names(stage, CLAIMS) == ["data!"]
    stage.delete(PODS, "p")
    assert names(stage, CLAIMS) == [] and names(stage, VOLUMES) == []


@pytest.mark.parametrize("first", [False, True])
def test_capacity_is_released_once_whoever_deletes_the_volume(first: bool) -> None:
    stage = Stage(*NODES, klass("dynamic"), DRIVER, pool("z1", "8Gi"), pool("z2", "1Gi"), claim("one"), pod("p", "one"))
    assert stage.get(CSI_STORAGE_CAPACITIES, "pool-z1")["capacity"] == "3Gi"
    if first:
        stage.delete(VOLUMES, stage.claim("one")["spec"]["volumeName"], "")
    stage.delete(CLAIMS, "one")
    assert stage.get(CSI_STORAGE_CAPACITIES, "pool-z1")["capacity"] == "3Gi"
    stage.delete(PODS, "p")
    assert stage.volumes() == {} and stage.get(CSI_STORAGE_CAPACITIES, "pool-z1")["capacity"] == "8Gi"


def test_available_and_released_volumes_are_deleted_at_once() -> None:
    keep = klass("keep", waits=False, reclaimPolicy="Retain")
    stage = Stage(*NODES, LOCAL, keep, volume("free", on="a"), claim("data", storage_class="keep"))
    (kept,) = (name for name in stage.volumes() if name != "free")
    stage.delete(CLAIMS, "data")
    assert stage.volumes() == {"free": "Available", kept: "Released"}
    stage.delete(VOLUMES, "free", "")
    stage.delete(VOLUMES, kept, "")
    assert stage.volumes() == {}


def stateful(**policy: str) -> Document:
    template = {"metadata": {"name": "data"}, "spec": claim("x", storage_class="now")["spec"]}
    return workload(
        STATEFUL_SETS, "db", replicas=2, volumeClaimTemplates=[template], persistentVolumeClaimRetentionPolicy=policy
    ) | {"apiVersion": "apps/v1", "kind": "StatefulSet"}


def test_a_stateful_pod_is_recreated_with_a_new_claim() -> None:
    stage = Stage(*NODES, NOW, stateful())
    before = stage.claim("data-db-1")["metadata"]["uid"]
    stage.apply(pod("reader", "data-db-1"))
    stage.delete(CLAIMS, "data-db-1")
    stage.delete(PODS, "db-1")
    assert names(stage, PODS) == ["db-0", "reader"] and names(stage, CLAIMS) == ["data-db-0", "data-db-1!"]
    told = [each["message"] for each in stage.world.objects(EVENTS) if each["reason"] == "FailedCreate"]
    assert told == ["Create Pod db-1 in StatefulSet db failed error: pvc data-db-1 is being deleted"]
    stage.delete(PODS, "reader")
    assert stage.node_of("db-1") and stage.claim("data-db-1")["metadata"]["uid"] != before


def test_claims_deleted_on_scale_in_are_not_reused_on_scale_out() -> None:
    stage = Stage(*NODES, NOW, stateful(whenScaled="Delete", whenDeleted="Delete"))
    before = stage.claim("data-db-1")["metadata"]["uid"]

    async def turn() -> None:
        await stage.client.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}}, "default")
        await stage.world.advance(stage.world.loop.time() + 1)
        await stage.client.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 2}}, "default")
        await stage.world.settle()

    stage.world.loop.complete(turn())
    stage.advance(60)
    assert stage.node_of("db-1") and names(stage, CLAIMS) == ["data-db-0", "data-db-1"]
    assert stage.claim("data-db-1")["metadata"]["uid"] != before

    async def delete() -> None:
        await stage.client.delete(STATEFUL_SETS, "db", "default", propagation="Background")
        await stage.world.settle()

    stage.world.loop.complete(delete())
    stage.advance(60)
    assert names(stage, PODS) == [] and names(stage, CLAIMS) == [] and stage.volumes() == {}


def test_a_pod_waits_for_the_deletion_of_its_predecessors_claim() -> None:
    """The claim is deleted by the garbage collector, which does not run here, after the pod."""
    document = stateful(whenScaled="Delete")
    document["spec"]["podManagementPolicy"] = "Parallel"
    with World(controllers=["statefulset"]) as world:
        world.create(STATEFUL_SETS, document)
        world.settle()
        before = world.get(CLAIMS, "data-db-1")["metadata"]["uid"]
        world.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}})
        world.settle()
        assert not world.exists(PODS, "db-1")
        (owner,) = world.get(CLAIMS, "data-db-1")["metadata"]["ownerReferences"]
        assert owner["kind"] == "Pod"
        world.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 2}})
        world.settle()
        assert not world.exists(PODS, "db-1")
        world.delete(CLAIMS, "data-db-1")
        world.settle()
        assert world.exists(PODS, "db-1")
        assert world.get(CLAIMS, "data-db-1")["metadata"]["uid"] != before


def test_deleting_a_namespace_deletes_pods_claims_and_volumes() -> None:
    there = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    documents = [claim("data", storage_class="now"), pod("p", "data"), pod("q", ephemeral="now")]
    for each in documents:
        each["metadata"]["namespace"] = "team"
    stage = Stage(*NODES, NOW, there, *documents)
    assert stage.get(PODS, "p", "team")["spec"]["nodeName"] and len(stage.volumes()) == 2

    async def delete() -> None:
        await stage.client.delete(CLAIMS, "data", "team")
        await stage.client.delete(NAMESPACES, "team")
        await stage.world.settle()

    stage.world.loop.complete(delete())
    stage.advance(120)
    assert stage.world.store.peek(NAMESPACES, "team") is None
    assert names(stage, CLAIMS) == [] and stage.volumes() == {}
