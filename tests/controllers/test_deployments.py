"""Deployments against a store, with simulated nodes, in virtual time."""

from __future__ import annotations

from typing import Any

from tests.controllers.world import World, workload

from wharfinger.api.kinds.builtin import DEPLOYMENTS, EVENTS, REPLICA_SETS
from wharfinger.api.registry import Document

REVISION = "deployment.kubernetes.io/revision"


def images(world: World) -> list[str]:
    return sorted({pod["spec"]["containers"][0]["image"] for pod in world.pods("app=web")})


def set_image(world: World, image: str, **annotations: str) -> None:
    container = {"name": "main", "image": image}
    template: Document = {"spec": {"containers": [container]}, "metadata": {"annotations": annotations}}
    world.patch(DEPLOYMENTS, "web", {"spec": {"template": template}})


def condition(document: Document, kind: str) -> Any:
    return next((c for c in document["status"].get("conditions", ()) if c["type"] == kind), None)


def test_a_rollout_replaces_all_pods_within_its_limits() -> None:
    with World() as world:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        world.apply(DEPLOYMENTS, workload(DEPLOYMENTS, "web", replicas=4, strategy=strategy))
        assert images(world) == ["app:1"]
        set_loose = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}}
        world.loop.complete(world.client.patch(DEPLOYMENTS, "web", set_loose, "default"))
        most, least = 0, 99
        for _ in range(200):
            world.loop.run_to(world.loop.time() + 0.1)
            pods = [pod for pod in world.pods("app=web") if not pod["metadata"].get("deletionTimestamp")]
            ready = [
                pod
                for pod in pods
                if any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))
            ]
            most, least = max(most, len(pods)), min(least, len(ready))
        assert (most, least) == (5, 4)
        assert images(world) == ["app:2"]
        deployment = world.get(DEPLOYMENTS, "web")
        status = deployment["status"]
        assert (status["updatedReplicas"], status["availableReplicas"], status["replicas"]) == (4, 4, 4)
        assert condition(deployment, "Progressing")["reason"] == "NewReplicaSetAvailable"
        assert condition(deployment, "Available")["status"] == "True"
        assert deployment["metadata"]["annotations"][REVISION] == "2"
        assert status["observedGeneration"] == deployment["metadata"]["generation"]
        messages = [event["message"] for event in world.list(EVENTS) if event["reason"] == "ScalingReplicaSet"]
        assert any("Scaled down replica set" in message for message in messages)


def test_a_rollback_reuses_the_old_set_with_a_new_revision() -> None:
    with World() as world:
        world.apply(DEPLOYMENTS, workload(DEPLOYMENTS, "web", replicas=2))
        first = world.list(REPLICA_SETS)[0]["metadata"]["name"]
        set_image(world, "app:2")
        assert len(world.list(REPLICA_SETS)) == 2
        set_image(world, "app:1")  # what `kubectl rollout undo` patches
        sets = {each["metadata"]["name"]: each for each in world.list(REPLICA_SETS)}
        assert len(sets) == 2
        assert sets[first]["spec"]["replicas"] == 2
        assert sets[first]["metadata"]["annotations"][REVISION] == "3"
        assert sets[first]["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] == "1"
        assert world.get(DEPLOYMENTS, "web")["metadata"]["annotations"][REVISION] == "3"


def test_recreate_deletes_all_old_pods_first() -> None:
    with World() as world:
        document = workload(
            DEPLOYMENTS,
            "web",
            replicas=3,
            strategy={"type": "Recreate"},
            annotations={"wharfinger.dev/shutdown-after": "5s"},
        )
        world.apply(DEPLOYMENTS, document)
        patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}}
        world.loop.complete(world.client.patch(DEPLOYMENTS, "web", patch, "default"))
        for _ in range(100):
            world.loop.run_to(world.loop.time() + 0.2)
            assert len(images(world)) <= 1
        assert images(world) == ["app:2"]
        assert len(world.pods("app=web", phase="Running")) == 3


def test_a_paused_deployment_scales_but_does_not_roll() -> None:
    with World() as world:
        world.apply(DEPLOYMENTS, workload(DEPLOYMENTS, "web", replicas=2))
        world.patch(DEPLOYMENTS, "web", {"spec": {"paused": True}})
        set_image(world, "app:2")
        world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 4}})
        assert images(world) == ["app:1"]
        assert len(world.pods("app=web")) == 4
        assert condition(world.get(DEPLOYMENTS, "web"), "Progressing")["reason"] == "DeploymentPaused"
        world.patch(DEPLOYMENTS, "web", {"spec": {"paused": False}})
        assert images(world) == ["app:2"]


def test_a_rollout_that_cannot_progress_times_out_and_recovers() -> None:
    with World() as world:
        world.apply(DEPLOYMENTS, workload(DEPLOYMENTS, "web", replicas=4, progressDeadlineSeconds=60))
        set_image(world, "app:bad", **{"wharfinger.dev/ready-after": "never"})
        assert condition(world.get(DEPLOYMENTS, "web"), "Progressing")["reason"] != "ProgressDeadlineExceeded"
        world.advance(120)
        failed = condition(world.get(DEPLOYMENTS, "web"), "Progressing")
        assert (failed["status"], failed["reason"]) == ("False", "ProgressDeadlineExceeded")
        ready = [pod for pod in world.pods("app=web") if pod["status"]["containerStatuses"][0]["ready"]]
        assert len(ready) >= 3  # 25 % of 4 may be unavailable
        world.patch(
            DEPLOYMENTS,
            "web",
            {
                "spec": {
                    "template": {
                        "metadata": {"annotations": {"wharfinger.dev/ready-after": None}},
                        "spec": {"containers": [{"name": "main", "image": "app:good"}]},
                    }
                }
            },
        )
        assert images(world) == ["app:good"]
        assert condition(world.get(DEPLOYMENTS, "web"), "Progressing")["reason"] == "NewReplicaSetAvailable"


def test_history_is_limited_even_after_a_crash() -> None:
    with World() as world:
        world.apply(DEPLOYMENTS, workload(DEPLOYMENTS, "web", replicas=1, revisionHistoryLimit=1))
        for number in range(2, 6):
            patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": f"app:{number}"}]}}}}
            world.loop.complete(world.client.patch(DEPLOYMENTS, "web", patch, "default"))
            world.loop.run_to(world.loop.time() + 0.5)
            world.restart()
        assert images(world) == ["app:5"]
        assert len(world.list(REPLICA_SETS)) == 2


def test_deleting_a_deployment_deletes_its_sets_and_pods() -> None:
    with World() as world:
        world.apply(DEPLOYMENTS, workload(DEPLOYMENTS, "web", replicas=3))
        world.delete(DEPLOYMENTS, "web", propagation="Foreground")
        assert (world.list(REPLICA_SETS), world.pods()) == ([], [])


def test_orphaned_sets_stay_and_are_adopted_again() -> None:
    with World() as world:
        world.apply(DEPLOYMENTS, workload(DEPLOYMENTS, "web", replicas=2))
        before = {pod["metadata"]["uid"] for pod in world.pods()}
        world.delete(DEPLOYMENTS, "web", propagation="Orphan")
        orphan = world.list(REPLICA_SETS)[0]
        assert not orphan["metadata"].get("ownerReferences")
        world.apply(DEPLOYMENTS, workload(DEPLOYMENTS, "web", replicas=2))
        assert {pod["metadata"]["uid"] for pod in world.pods()} == before
        assert world.list(REPLICA_SETS)[0]["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
