"""Claims, volumes and pods in virtual time: scheduler, binder and provisioner together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.controllers.storage import (
    DRIVER,
    LOCAL,
    NODES,
    SELECTED,
    ZONE,
    Stage,
    claim,
    close_worlds,
    klass,
    pod,
    pool,
    volume,
)

from wharfinger.api.kinds.builtin import (
    CSI_STORAGE_CAPACITIES,
    EVENTS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
)
from wharfinger.scenario import applying


@pytest.fixture(autouse=True)
def _worlds_are_closed() -> Iterator[None]:
    yield
    close_worlds()


def test_a_local_volume_is_bound_on_the_node_of_the_pod() -> None:
    stage = Stage(*NODES, LOCAL, volume("on-b", on="b"), claim("data", storage_class="local"))
    assert stage.volumes() == {"on-b": "Available"} and stage.claim("data")["status"]["phase"] == "Pending"
    stage.apply(pod("p", "data"))
    assert stage.node_of("p") == "b"
    bound = stage.claim("data")
    assert (bound["spec"]["volumeName"], bound["status"]["phase"]) == ("on-b", "Bound")
    assert bound["status"]["capacity"] == {"storage": "10Gi"}
    assert stage.volumes() == {"on-b": "Bound"}
    assert stage.get(PERSISTENT_VOLUMES, "on-b")["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
    assert stage.assumed() == 0


def test_the_loser_of_a_race_for_a_volume_waits_for_another_volume() -> None:
    claims = [claim("one", storage_class="local"), claim("two", storage_class="local")]
    stage = Stage(*NODES, LOCAL, volume("v", on="b"), *claims)
    stage.apply(pod("first", "one"), pod("second", "two"))
    placed = [name for name in ("first", "second") if stage.node_of(name)]
    assert len(placed) == 1
    (waiting,) = {"first", "second"} - set(placed)
    assert stage.why(waiting).startswith(
        "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
    )
    stage.apply(volume("w", on="a"))
    assert stage.node_of(waiting) == "a" and stage.assumed() == 0


def test_a_volume_is_provisioned_for_the_node_the_scheduler_selects() -> None:
    stage = Stage(*NODES, klass("dynamic", zones=["z2"]), claim("data"))
    assert stage.claim("data")["status"]["phase"] == "Pending" and stage.volumes() == {}
    stage.apply(pod("p", "data"))
    assert stage.node_of("p") == "b"
    data = stage.claim("data")
    assert data["metadata"]["annotations"][SELECTED] == "b" and data["status"]["phase"] == "Bound"
    made = stage.get(PERSISTENT_VOLUMES, data["spec"]["volumeName"])
    assert made["spec"]["csi"]["driver"] == "disk.example.com"
    (term,) = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": ZONE, "operator": "In", "values": ["z2"]}]
    # The next pod with the claim goes where the volume is.
    stage.apply(pod("q", "data"))
    assert stage.node_of("q") == "b"


def test_storage_capacity_is_honoured_used_and_released() -> None:
    stage = Stage(*NODES, klass("dynamic"), DRIVER, pool("z1", "2Gi"), pool("z2", "8Gi"), claim("one"), claim("two"))
    stage.apply(pod("p", "one"))
    assert stage.node_of("p") == "b"
    assert stage.get(CSI_STORAGE_CAPACITIES, "pool-z2")["capacity"] == "3Gi"
    stage.apply(pod("q", "two"))
    assert stage.node_of("q") == ""
    assert "2 node(s) did not have enough free storage" in stage.why("q")
    stage.delete(PODS, "p")
    stage.delete(PERSISTENT_VOLUME_CLAIMS, "one")
    assert stage.node_of("q") == "b"
    assert stage.get(CSI_STORAGE_CAPACITIES, "pool-z2")["capacity"] == "3Gi"


def test_a_volume_created_before_a_restart_is_counted_once() -> None:
    stage = Stage(*NODES, klass("dynamic"), DRIVER, pool("z1", "3Gi"), pool("z2", "8Gi"), claim("one"))
    uid = stage.claim("one")["metadata"]["uid"]
    # It bears the name that the provisioner will give; nothing else tells that it is the claim's.
    stage.apply(volume(f"pvc-{uid}", "5Gi", storage_class="other"))
    stage.apply(pod("p", "one"))
    assert stage.node_of("p") and stage.claim("one")["spec"]["volumeName"] == f"pvc-{uid}"
    assert stage.get(CSI_STORAGE_CAPACITIES, "pool-z2")["capacity"] == "8Gi"


def test_failed_provisioning_requeues_the_pod_and_leaks_nothing() -> None:
    stage = Stage(*NODES, klass("dynamic"), claim("data", provisioning="fail"))
    stage.apply(pod("p", "data"))
    assert stage.node_of("p") == "" and stage.volumes() == {} and stage.assumed() == 0
    assert stage.why("p") == (
        'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "data"'
    )
    assert SELECTED not in stage.claim("data")["metadata"]["annotations"]
    told = [each["reason"] for each in stage.world.objects(EVENTS) if each["involvedObject"]["name"] == "data"]
    assert "ProvisioningFailed" in told
    assert stage.world.scheduler is not None
    assert not stage.world.scheduler.engine.tables.pods  # it takes no room
    stage.patch(PERSISTENT_VOLUME_CLAIMS, "data", {"metadata": {"annotations": {"wharfinger.dev/provisioning": None}}})
    stage.advance(30)
    assert stage.node_of("p") and stage.assumed() == 0


def test_injected_provisioning_failures() -> None:
    stage = Stage(*NODES, klass("dynamic"), claim("data"))
    stage.fault(provision="fail", count=2)
    stage.apply(pod("p", "data"))
    stage.advance(30)
    assert stage.node_of("p")
    reasons = [each["reason"] for each in stage.world.objects(EVENTS) if each["involvedObject"]["name"] == "data"]
    assert "ProvisioningFailed" in reasons and "ProvisioningSucceeded" in reasons


def test_provisioning_times_out() -> None:
    slow = {"pluginConfig": [{"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 60}}]}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", **slow}],
    }
    stage = Stage(*NODES, klass("dynamic"), claim("data", provisioning_time="never"), scheduler=configuration)
    stage.apply(pod("p", "data"))
    assert stage.node_of("p") == "" and stage.why("p") == "" and stage.assumed() == 1
    stage.advance(61)
    assert stage.why("p") == ('running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded')
    # The node stays selected: the provisioner may still be at it.
    selected = stage.claim("data")["metadata"]["annotations"][SELECTED]
    stage.patch(
        PERSISTENT_VOLUME_CLAIMS, "data", {"metadata": {"annotations": {"wharfinger.dev/provisioning-time": None}}}
    )
    stage.advance(30)
    assert stage.node_of("p") == selected


def test_slow_provisioning_does_not_block_other_pods() -> None:
    slow = [claim(f"c{index}", provisioning_time="1h") for index in range(80)]
    stage = Stage(*NODES, klass("dynamic"), *slow)
    stage.start(*(pod(f"p{index}", f"c{index}") for index in range(80)), pod("plain"))
    stage.world.loop.complete(stage.world.advance(stage.world.loop.time() + 60))
    assert stage.node_of("plain") and not stage.node_of("p0")
    stage.world.loop.complete(stage.world.settle())
    assert all(stage.node_of(f"p{index}") for index in range(80))


def test_a_restarted_scheduler_completes_a_binding() -> None:
    for part in ("scheduler", "controllers", "all"):
        stage = Stage(*NODES, klass("dynamic"), LOCAL, claim("data", provisioning_time="1m"))
        stage.apply(volume("v", on="b"), claim("static", storage_class="local"))
        stage.start(pod("p", "data"))
        stage.world.loop.complete(stage.world.advance(stage.world.loop.time() + 10))
        selected = stage.claim("data")["metadata"]["annotations"][SELECTED]
        assert not stage.node_of("p")
        stage.fault(restart=part)
        stage.start(pod("q", "static"))
        stage.world.loop.complete(stage.world.settle())
        stage.advance(120)
        assert stage.node_of("p") == selected and stage.node_of("q") == "b"
        assert stage.assumed() == 0
        assert len(stage.volumes()) == 2  # none was made twice


def test_a_pod_deleted_during_provisioning_leaves_nothing_behind() -> None:
    stage = Stage(*NODES, klass("dynamic"), claim("data", provisioning_time="1h"))
    stage.start(pod("p", "data"))
    stage.world.loop.complete(stage.world.advance(stage.world.loop.time() + 10))
    assert stage.assumed() == 1

    async def replace() -> None:
        await stage.client.delete(PODS, "p", "default", grace_period=0)
        await applying.apply(stage.client, pod("p"), stage.world.registry)

    stage.world.loop.complete(replace())
    stage.world.loop.complete(stage.world.advance(stage.world.loop.time() + 10))
    assert stage.node_of("p") and stage.assumed() == 0


def test_immediate_claims_are_bound_at_once() -> None:
    now = klass("now", waits=False)
    stage = Stage(*NODES, now, volume("big", "20Gi", storage_class=""), volume("small", "6Gi", storage_class=""))
    stage.apply(claim("static", storage_class=""), claim("made", storage_class="now"))
    assert stage.claim("static")["spec"]["volumeName"] == "small"
    made = stage.claim("made")
    assert made["status"]["phase"] == "Bound"
    assert "nodeAffinity" not in stage.get(PERSISTENT_VOLUMES, made["spec"]["volumeName"])["spec"]
    stage.apply(pod("p", "static", "made"))
    assert stage.node_of("p")


def test_pods_wait_for_immediate_claims() -> None:
    stage = Stage(*NODES, claim("data", storage_class=""))
    stage.apply(pod("p", "data"), pod("q", "absent"))
    assert stage.why("p").startswith("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
    assert stage.why("q").startswith('0/2 nodes are available: persistentvolumeclaim "absent" not found.')
    stage.apply(volume("v", storage_class="", on="b"), claim("absent", storage_class=""))
    assert stage.node_of("p") == "b" and stage.node_of("q") == ""
    stage.apply(volume("w", storage_class="", on="a"))
    assert stage.node_of("q") == "a"


def test_a_claim_without_class_gets_the_default_class() -> None:
    stage = Stage(*NODES, claim("early", storage_class=None))
    assert stage.claim("early")["status"]["phase"] == "Pending"
    stage.apply(klass("standard", waits=False, default=True), claim("late", storage_class=None))
    for name in ("early", "late"):
        found = stage.claim(name)
        assert (found["spec"]["storageClassName"], found["status"]["phase"]) == ("standard", "Bound")


def test_volumes_are_reclaimed_when_their_claim_is_deleted() -> None:
    keep = klass("keep", waits=False, reclaimPolicy="Retain")
    stage = Stage(
        *NODES, klass("drop", waits=False), keep, claim("d", storage_class="drop"), claim("k", storage_class="keep")
    )
    kept = stage.claim("k")["spec"]["volumeName"]
    assert len(stage.volumes()) == 2
    stage.delete(PERSISTENT_VOLUME_CLAIMS, "d")
    stage.delete(PERSISTENT_VOLUME_CLAIMS, "k")
    assert stage.volumes() == {kept: "Released"}


def test_a_claim_whose_volume_is_deleted_is_lost() -> None:
    stage = Stage(*NODES, volume("v", storage_class=""), claim("data", storage_class=""))
    stage.delete(PERSISTENT_VOLUMES, "v", "")
    stage.patch(PERSISTENT_VOLUMES, "v", {"metadata": {"finalizers": None}}, "")  # by force: it was protected
    assert stage.claim("data")["status"]["phase"] == "Lost"
    stage.apply(pod("p", "data"))
    assert 'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"' in stage.why("p")


def test_ephemeral_volumes_get_a_claim_that_the_pod_owns() -> None:
    stage = Stage(*NODES, klass("dynamic"))
    stage.apply(pod("p", ephemeral="dynamic"))
    assert stage.node_of("p") and stage.claim("p-scratch")["status"]["phase"] == "Bound"
    stage.delete(PODS, "p")
    stage.advance(120)
    assert stage.world.objects(PERSISTENT_VOLUME_CLAIMS) == [] and stage.volumes() == {}


def test_an_ephemeral_volume_does_not_take_over_a_claim_of_that_name() -> None:
    stage = Stage(*NODES, klass("dynamic"), claim("p-scratch"))
    stage.apply(pod("p", ephemeral="dynamic"))
    assert stage.node_of("p") == ""
    assert "PVC default/p-scratch was not created for pod default/p (pod is not owner)" in stage.why("p")


def test_a_claim_says_what_it_waits_for() -> None:
    stage = Stage(LOCAL, claim("data", storage_class="local"), claim("plain", storage_class=""))

    def said(name: str) -> list[tuple[str, str]]:
        about = [each for each in stage.world.objects(EVENTS) if each["involvedObject"]["name"] == name]
        return [(each["reason"], each["message"]) for each in about]

    assert said("plain")[-1] == (
        "FailedBinding",
        "no persistent volumes available for this claim and no storage class is set",
    )
    assert said("data")[-1] == ("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
    stage.apply(pod("p", "data"))
    assert ("WaitForPodScheduled", "waiting for pod p to be scheduled") in said("data")
    stage.apply(pod("q", "data"))
    assert ("WaitForPodScheduled", "waiting for pods p,q to be scheduled") in said("data")
