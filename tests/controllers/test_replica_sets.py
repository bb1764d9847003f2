"""ReplicaSets against a store, with simulated nodes, in virtual time."""

from __future__ import annotations

from tests.controllers.world import World, template, workload

from wharfinger.api.kinds.builtin import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS


def test_a_set_creates_its_pods_and_reports_them() -> None:
    with World() as world:
        world.apply(REPLICA_SETS, workload(REPLICA_SETS, "web", replicas=5))
        pods = world.pods("app=web")
        assert len(pods) == 5
        assert {pod["status"]["phase"] for pod in pods} == {"Running"}
        assert {pod["metadata"]["ownerReferences"][0]["name"] for pod in pods} == {"web"}
        status = world.get(REPLICA_SETS, "web")["status"]
        assert {
            key: status[key] for key in ("replicas", "readyReplicas", "availableReplicas", "fullyLabeledReplicas")
        } == {
            "replicas": 5,
            "readyReplicas": 5,
            "availableReplicas": 5,
            "fullyLabeledReplicas": 5,
        }


def test_pods_with_low_deletion_cost_are_deleted_first() -> None:
    with World() as world:
        world.apply(REPLICA_SETS, workload(REPLICA_SETS, "web", replicas=3))
        names = [pod["metadata"]["name"] for pod in world.pods("app=web")]
        for name, cost in zip(names, ("5", "-1", "3")):
            world.patch(PODS, name, {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}})
        world.patch(REPLICA_SETS, "web", {"spec": {"replicas": 1}})
        assert [pod["metadata"]["name"] for pod in world.pods("app=web")] == [names[0]]


def test_a_pod_that_stops_matching_is_released_and_replaced_and_an_orphan_is_adopted() -> None:
    with World() as world:
        world.apply(REPLICA_SETS, workload(REPLICA_SETS, "web", replicas=2))
        name = world.pods("app=web")[0]["metadata"]["name"]
        world.patch(PODS, name, {"metadata": {"labels": {"app": "other"}}})
        released = world.get(PODS, name)
        assert not released["metadata"].get("ownerReferences")
        assert len(world.pods("app=web")) == 2
        world.patch(PODS, name, {"metadata": {"labels": {"app": "web"}}})
        assert len(world.pods("app=web")) == 2  # adopted, and one too many, so one left


def test_failed_pods_are_replaced_and_min_ready_seconds_delay_availability() -> None:
    with World() as world:
        world.create(REPLICA_SETS, workload(REPLICA_SETS, "web", replicas=2, minReadySeconds=30))
        world.loop.run_to(world.loop.time() + 5)
        status = world.get(REPLICA_SETS, "web")["status"]
        assert (status["readyReplicas"], status.get("availableReplicas", 0)) == (2, 0)
        world.settle()
        assert world.get(REPLICA_SETS, "web")["status"]["availableReplicas"] == 2
        failed = world.pods("app=web")[0]["metadata"]["name"]
        world.patch(PODS, failed, {"status": {"phase": "Failed"}}, subresource="status")
        assert len(world.pods("app=web", phase="Running")) == 2


def test_a_refused_creation_is_reported_and_retried() -> None:
    with World() as world:
        document = workload(REPLICA_SETS, "web", replicas=2)
        document["spec"]["template"]["spec"]["serviceAccountName"] = "x"
        document["spec"]["template"]["spec"]["priorityClassName"] = "none-such"
        world.create(REPLICA_SETS, document)
        world.advance(1)
        status = world.get(REPLICA_SETS, "web").get("status", {})
        # Whether the store refuses this is admission's matter; if it does, the set must say so.
        if not world.pods("app=web"):
            assert status["conditions"][0]["type"] == "ReplicaFailure"


def test_pods_deleted_during_a_restart_are_replaced() -> None:
    with World() as world:
        world.apply(REPLICA_SETS, workload(REPLICA_SETS, "web", replicas=3))
        before = {pod["metadata"]["uid"] for pod in world.pods("app=web")}
        world.restart()
        assert {pod["metadata"]["uid"] for pod in world.pods("app=web")} == before


def test_replication_controllers_work_the_same_way() -> None:
    with World() as world:
        spec = {"replicas": 2, "selector": {"app": "old"}, "template": template({"app": "old"})}
        world.apply(
            REPLICATION_CONTROLLERS,
            {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "old"}, "spec": spec},
        )
        assert len(world.pods("app=old", phase="Running")) == 2
        world.patch(REPLICATION_CONTROLLERS, "old", {"spec": {"replicas": 0}})
        assert world.pods("app=old") == []
