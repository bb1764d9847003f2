"""StatefulSets and DaemonSets against a store, with simulated nodes, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.world import World, workload

from wharfinger.api.kinds.builtin import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
)
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.registry import Resource
from wharfinger.api.views import ObjectMeta, Pod, StatefulSet, view
from wharfinger.api.views.meta import OwnerReference
from wharfinger.controllers.stateful_set.claims import owners as claim_owners
from wharfinger.controllers.stateful_set.rules import plan
from wharfinger.node.samples import NodeSample, sample_node


def names(world: World) -> list[str]:
    return [pod["metadata"]["name"] for pod in world.pods()]


def image(world: World, image: str, kind: Any = STATEFUL_SETS, name: str = "db") -> None:
    world.patch(kind, name, {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})


def shown_images(world: World) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in world.pods()}


def claim_template() -> dict[str, Any]:
    resources = {"requests": {"storage": "1Gi"}}
    return {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}


def test_ordered_pods_are_created_one_after_the_other_with_claims() -> None:
    with World() as world:
        document = workload(STATEFUL_SETS, "db", replicas=3, serviceName="db", volumeClaimTemplates=[claim_template()])
        world.create(STATEFUL_SETS, document)
        most = 0
        for _ in range(60):
            world.loop.run_to(world.loop.time() + 0.1)
            waiting = [pod for pod in world.pods() if pod.get("status", {}).get("phase") != "Running"]
            most = max(most, len(waiting))
        assert most == 1
        assert names(world) == ["db-0", "db-1", "db-2"]
        claims = [claim["metadata"]["name"] for claim in world.list(PERSISTENT_VOLUME_CLAIMS)]
        assert claims == ["data-db-0", "data-db-1", "data-db-2"]
        pod = world.pods()[1]
        assert pod["spec"]["hostname"] == "db-1"
        assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
        world.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}})
        assert names(world) == ["db-0"]
        assert len(world.list(PERSISTENT_VOLUME_CLAIMS)) == 3


def test_a_rolling_update_honours_the_partition_and_completes() -> None:
    with World() as world:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
        world.apply(STATEFUL_SETS, workload(STATEFUL_SETS, "db", replicas=3, updateStrategy=strategy))
        image(world, "app:2")
        assert shown_images(world) == {"db-0": "app:1", "db-1": "app:1", "db-2": "app:2"}
        status = world.get(STATEFUL_SETS, "db")["status"]
        assert (status["updatedReplicas"], status["currentReplicas"]) == (1, 2)
        assert status["currentRevision"] != status["updateRevision"]
        world.patch(STATEFUL_SETS, "db", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
        assert set(shown_images(world).values()) == {"app:2"}
        status = world.get(STATEFUL_SETS, "db")["status"]
        assert status["currentRevision"] == status["updateRevision"]
        assert len(world.list(CONTROLLER_REVISIONS)) == 2


def test_parallel_pods_are_created_together_from_the_start_ordinal() -> None:
    with World() as world:
        document = workload(STATEFUL_SETS, "db", replicas=3, podManagementPolicy="Parallel", ordinals={"start": 5})
        world.create(STATEFUL_SETS, document)
        world.loop.run_to(world.loop.time() + 0.5)
        assert names(world) == ["db-5", "db-6", "db-7"]


def replica(number: int, revision: str, *, ready: bool = True) -> Pod:
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    metadata = {"name": f"db-{number}", "labels": {"controller-revision-hash": revision}}
    return view({"metadata": metadata, "status": {"phase": "Running", "conditions": conditions}}, Pod)


BEFORE, NOW = KubernetesVersion.V1_36, KubernetesVersion.V1_37


@pytest.mark.parametrize(
    ("version", "policy", "rolling", "pods", "deleted"),
    [
        (BEFORE, "Parallel", {}, ["old", "old down", "old"], ["db-2"]),
        (BEFORE, "Parallel", {}, ["old", "old", "old down"], ["db-2"]),
        (BEFORE, "Parallel", {}, ["old", "old", "new down"], []),
        (BEFORE, "Parallel", {}, ["old down", "old", "new"], ["db-1"]),
        (BEFORE, "Parallel", {"partition": 2, "maxUnavailable": 1}, ["old", "old", "new"], []),
        (BEFORE, "OrderedReady", {}, ["old", "old down", "old"], []),
        (NOW, "Parallel", {}, ["old", "old down", "old"], ["db-1"]),
        (NOW, "Parallel", {}, ["old down", "old", "old down"], ["db-2", "db-0"]),
        (NOW, "Parallel", {}, ["old", "old", "new down"], []),
        (NOW, "Parallel", {"partition": 2}, ["old down", "old", "new"], []),
        (NOW, "OrderedReady", {}, ["old", "old down", "old"], []),
        (NOW, "OrderedReady", {"maxUnavailable": 2}, ["old", "old", "old"], ["db-2", "db-1"]),
        (NOW, "Parallel", {"maxUnavailable": 1}, ["old", "old", "old"], ["db-2"]),
        (NOW, "Parallel", {"maxUnavailable": 2}, ["old", "old down", "old"], ["db-1", "db-2"]),
        (NOW, "Parallel", {"maxUnavailable": 3}, ["old", "old down", "old"], ["db-1", "db-2", "db-0"]),
    ],
)
def test_which_outdated_pods_a_rolling_update_replaces_while_others_are_unavailable(
    version: KubernetesVersion, policy: str, rolling: dict[str, Any], pods: list[str], deleted: list[str]
) -> None:
    spec = {"replicas": 3, "podManagementPolicy": policy, "updateStrategy": {"type": "RollingUpdate"}}
    if rolling:
        spec["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}
    made = [replica(n, text.split()[0], ready="down" not in text) for n, text in enumerate(pods)]
    found = plan(
        view({"metadata": {"name": "db"}, "spec": spec}, StatefulSet), made, "new", 1767225600.0 + 100, version
    )
    assert [pod.metadata.name for pod in found.delete] == deleted


def test_the_retention_policy_deletes_claims_with_their_pods() -> None:
    with World() as world:
        world.apply(
            STATEFUL_SETS,
            workload(
                STATEFUL_SETS,
                "db",
                replicas=2,
                volumeClaimTemplates=[claim_template()],
                persistentVolumeClaimRetentionPolicy={"whenScaled": "Delete", "whenDeleted": "Delete"},
            ),
        )
        world.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}})
        assert [c["metadata"]["name"] for c in world.list(PERSISTENT_VOLUME_CLAIMS)] == ["data-db-0"]
        world.delete(STATEFUL_SETS, "db", propagation="Background")
        world.advance(1)
        assert world.list(PERSISTENT_VOLUME_CLAIMS) == []


def owners(world: World) -> list[list[tuple[str, str]]]:
    return [
        [(owner["kind"], owner["name"]) for owner in claim["metadata"].get("ownerReferences") or ()]
        for claim in world.list(PERSISTENT_VOLUME_CLAIMS)
    ]


def test_a_changed_retention_policy_applies_to_existing_claims() -> None:
    with World() as world:
        world.apply(STATEFUL_SETS, workload(STATEFUL_SETS, "db", replicas=2, volumeClaimTemplates=[claim_template()]))
        assert owners(world) == [[], []]
        world.patch(
            PERSISTENT_VOLUME_CLAIMS,
            "data-db-0",
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}]}},
        )
        policy = {"whenScaled": "Retain", "whenDeleted": "Delete"}
        world.patch(STATEFUL_SETS, "db", {"spec": {"persistentVolumeClaimRetentionPolicy": policy}})
        assert owners(world) == [[("ConfigMap", "c"), ("StatefulSet", "db")], [("StatefulSet", "db")]]
        policy = {"whenScaled": "Retain", "whenDeleted": "Retain"}
        world.patch(STATEFUL_SETS, "db", {"spec": {"persistentVolumeClaimRetentionPolicy": policy}})
        assert owners(world) == [[("ConfigMap", "c")], []]


def reference(resource: Resource, name: str, uid: str, *, controller: bool = True) -> OwnerReference:
    return OwnerReference(resource.api_version, resource.kind, name, uid, controller, controller)


SET, OLD_SET = reference(STATEFUL_SETS, "db", "set"), reference(STATEFUL_SETS, "db", "former")
POD, OLD_POD = reference(PODS, "db-1", "pod"), reference(PODS, "db-1", "former")
OTHER = reference(CONTROLLER_REVISIONS, "x", "x")


@pytest.mark.parametrize(
    ("scaled", "deleted", "leaving", "having", "expected"),
    [
        ("Retain", "Retain", False, [], None),
        ("Retain", "Retain", False, [SET], []),
        ("Retain", "Retain", True, [POD, OTHER], ["x"]),
        ("Retain", "Delete", False, [], ["db"]),
        ("Retain", "Delete", True, [], ["db"]),
        ("Retain", "Delete", True, [SET], None),
        ("Delete", "Retain", False, [], None),
        ("Delete", "Retain", True, [], ["db-1"]),
        ("Delete", "Retain", False, [POD], []),
        ("Delete", "Delete", False, [], ["db"]),
        ("Delete", "Delete", True, [SET], ["db-1"]),
        ("Delete", "Delete", False, [POD], ["db"]),
        ("Delete", "Delete", False, [reference(STATEFUL_SETS, "db", "set", controller=False)], ["db"]),
        ("Delete", "Delete", True, [OLD_SET], None),  # from before the set was replaced: not ours to touch
        ("Delete", "Delete", True, [OLD_POD], None),
        ("Delete", "Delete", False, [OTHER], None),  # another controller has it
        ("Delete", "Delete", False, [OTHER, SET], ["x"]),
    ],
)
def test_who_owns_a_claim(
    scaled: str, deleted: str, leaving: bool, having: list[OwnerReference], expected: list[str] | None
) -> None:
    policy = {"whenScaled": scaled, "whenDeleted": deleted}
    document = workload(STATEFUL_SETS, "db", persistentVolumeClaimRetentionPolicy=policy)
    document["metadata"]["uid"] = "set"
    found = claim_owners(
        view(document, StatefulSet), having, ObjectMeta(name="db-1", namespace="default", uid="pod"), leaving=leaving
    )
    assert (None if found is None else [owner["name"] for owner in found]) == expected
    assert all(owner["controller"] for owner in found or ())


def test_the_name_label_and_claim_of_a_pod_are_restored() -> None:
    with World(nodes=0) as world:  # the pod waits, so that nothing protects the claim
        document = workload(STATEFUL_SETS, "db", replicas=1, volumeClaimTemplates=[claim_template()])
        world.apply(STATEFUL_SETS, document)
        first = world.get(PERSISTENT_VOLUME_CLAIMS, "data-db-0")["metadata"]["uid"]
        world.delete(PERSISTENT_VOLUME_CLAIMS, "data-db-0")
        assert [claim["metadata"]["uid"] != first for claim in world.list(PERSISTENT_VOLUME_CLAIMS)] == [True]
        world.patch(PODS, "db-0", {"metadata": {"labels": {"statefulset.kubernetes.io/pod-name": None}}})
        assert world.pods()[0]["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "db-0"


def test_a_revision_has_the_change_cause() -> None:
    with World() as world:
        for resource, name in ((STATEFUL_SETS, "db"), (DAEMON_SETS, "agent")):
            document = workload(resource, name)
            document["metadata"]["annotations"] = {"kubernetes.io/change-cause": name}
            world.apply(resource, document)
        causes = [
            each["metadata"]["annotations"]["kubernetes.io/change-cause"] for each in world.list(CONTROLLER_REVISIONS)
        ]
        assert sorted(causes) == ["agent", "db"]


def test_a_daemon_runs_on_every_eligible_node() -> None:
    with World(nodes=3) as world:
        document = workload(DAEMON_SETS, "agent")
        document["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
        world.apply(DAEMON_SETS, document)
        assert sorted(pod["spec"]["nodeName"] for pod in world.pods()) == ["node-1", "node-2", "node-3"]
        tolerations = {t["key"] for t in world.pods()[0]["spec"]["tolerations"]}
        assert "node.kubernetes.io/unschedulable" in tolerations
        world.apply(NODES, sample_node(NodeSample(), 3))
        assert len(world.pods()) == 4
        world.patch(NODES, "node-2", {"metadata": {"labels": {"kubernetes.io/os": "plan9"}}})
        assert "node-2" not in {pod["spec"]["nodeName"] for pod in world.pods()}
        world.patch(NODES, "node-3", {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
        assert len(world.pods()) == 3  # it may stay where it is
        status = world.get(DAEMON_SETS, "agent")["status"]
        assert (status["desiredNumberScheduled"], status["numberReady"], status["numberMisscheduled"]) == (2, 2, 1)


def test_a_daemon_update_replaces_within_its_limit_and_surge_adds_first() -> None:
    with World(nodes=4) as world:
        world.apply(DAEMON_SETS, workload(DAEMON_SETS, "agent"))
        world.loop.complete(
            world.client.patch(
                DAEMON_SETS,
                "agent",
                {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}},
                "default",
            )
        )
        least = 4
        for _ in range(80):
            world.loop.run_to(world.loop.time() + 0.1)
            ready = [p for p in world.pods(phase="Running") if not p["metadata"].get("deletionTimestamp")]
            least = min(least, len(ready))
        assert least == 3
        assert set(shown_images(world).values()) == {"app:2"}
        surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        world.patch(DAEMON_SETS, "agent", {"spec": {"updateStrategy": surge}})
        image(world, "app:3", DAEMON_SETS, "agent")
        assert len(world.pods()) == 4
        assert set(shown_images(world).values()) == {"app:3"}
        assert world.get(DAEMON_SETS, "agent")["status"]["updatedNumberScheduled"] == 4


def test_on_delete_leaves_pods_alone() -> None:
    with World(nodes=2) as world:
        world.apply(DAEMON_SETS, workload(DAEMON_SETS, "agent", updateStrategy={"type": "OnDelete"}))
        image(world, "app:2", DAEMON_SETS, "agent")
        assert set(shown_images(world).values()) == {"app:1"}
