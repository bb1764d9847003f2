"""Controllers converge to the same state even if a fifth of all writes fail or time out, and across restarts."""

from __future__ import annotations

from tests.controllers.test_jobs import conditions, job
from tests.controllers.world import World, workload

from wharfinger.api.kinds.builtin import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)


def test_workloads_converge_despite_failing_writes() -> None:
    with World(nodes=4, failing=0.2) as world:
        world.create(DEPLOYMENTS, workload(DEPLOYMENTS, "web", replicas=6))
        world.create(STATEFUL_SETS, workload(STATEFUL_SETS, "db", replicas=3))
        world.create(DAEMON_SETS, workload(DAEMON_SETS, "agent"))
        world.advance(120)
        patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}}
        for kind, name in ((DEPLOYMENTS, "web"), (STATEFUL_SETS, "db"), (DAEMON_SETS, "agent")):
            world.loop.complete(world.client.patch(kind, name, patch, "default"))
        world.loop.run_to(world.loop.time() + 1)
        world.restart()
        world.advance(300)
        assert [len(world.pods(f"app={name}", phase="Running")) for name in ("web", "db", "agent")] == [6, 3, 4]
        assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} == {"app:2"}
        assert len(world.list(REPLICA_SETS)) == 2
        deployment = world.get(DEPLOYMENTS, "web")["status"]
        assert (deployment["updatedReplicas"], deployment["availableReplicas"]) == (6, 6)
        stateful = world.get(STATEFUL_SETS, "db")["status"]
        assert stateful["currentRevision"] == stateful["updateRevision"]


def test_jobs_count_every_pod_once_despite_failing_writes() -> None:
    with World(nodes=4, failing=0.2) as world:
        world.create(JOBS, job("plain", run="3s", completions=12, parallelism=4))
        world.create(JOBS, job("indexed", run="3s", completions=7, parallelism=3, completionMode="Indexed"))
        world.create(JOBS, job("bad", run="1s", code="1", backoffLimit=3))
        for _ in range(20):
            world.loop.run_to(world.loop.time() + 7)
            world.restart()
        world.advance(600)
        plain, indexed, bad = (world.get(JOBS, name) for name in ("plain", "indexed", "bad"))
        assert "Complete" in conditions(plain)
        assert plain["status"]["succeeded"] == 12
        assert (indexed["status"]["succeeded"], indexed["status"]["completedIndexes"]) == (7, "0-6")
        assert conditions(bad)["Failed"]["reason"] == "BackoffLimitExceeded"
        assert bad["status"]["failed"] == 4
        assert not any("job-tracking" in str(pod["metadata"].get("finalizers")) for pod in world.pods())


def test_deletions_complete_despite_failing_writes() -> None:
    with World(nodes=2, failing=0.2) as world:
        world.create(NAMESPACES, {"metadata": {"name": "team"}})
        world.create(DEPLOYMENTS, workload(DEPLOYMENTS, "web", replicas=5), "team")
        budget = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1}
        world.create(POD_DISRUPTION_BUDGETS, {"metadata": {"name": "b"}, "spec": budget}, "team")
        world.advance(60)
        status = world.get(POD_DISRUPTION_BUDGETS, "b", "team")["status"]
        assert (status["expectedPods"], status["disruptionsAllowed"]) == (5, 1)
        world.loop.complete(world.client.delete(DEPLOYMENTS, "web", "team", propagation="Foreground"))
        world.advance(120)
        assert world.list(PODS, "team") == []
        world.loop.complete(world.client.delete(NAMESPACES, "team"))
        world.advance(300)
        assert not world.exists(NAMESPACES, "team")
