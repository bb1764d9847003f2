"""`wharf reserve` and `wharf migrate` against the whole control plane in virtual time: what they make, say and answer."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.scheduler.test_live import Stage, node

from wharfinger.api.kinds.builtin import DEPLOYMENTS, PODS, STATEFUL_SETS
from wharfinger.api.views import view
from wharfinger.systems.reservation.commands import reserving
from wharfinger.systems.reservation.commands.migrate import command as migrate_command
from wharfinger.systems.reservation.commands.reserve import command as reserve_command
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import PodMigrationJob
from wharfinger.systems.reservation.rules.migration import JOB_LABEL, reservation_for


def workload(kind: str, name: str, replicas: int, cpu: str) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {**spec, "serviceName": name}}


@pytest.fixture
def stage() -> Any:
    made = Stage()
    yield made
    made.world.close()


def run(stage: Stage, work: Callable[[], Awaitable[Any]]) -> Any:
    async def go() -> Any:
        return await work()

    return stage.world.loop.complete(go())


def test_reserving_for_a_deployment_waits_and_shows_progress(stage: Stage) -> None:
    deployment = workload("Deployment", "web", 1, "1")
    del deployment["spec"]["serviceName"]
    stage.apply(node("n1", "4"), deployment)
    said: list[str] = []

    async def work() -> bool:
        name = await reserving.reserve(
            stage.client, DEPLOYMENTS, "web", "default", said.append, replicas=3, name="", ttl="2h"
        )
        return await reserving.follow_set(stage.client, name, said.append, 60)

    assert run(stage, work) is True
    assert said[0] == "reservationset deployment.default.web created: 3 for deployment default/web"
    assert said[-1] == "3/3 available"

    async def more() -> bool:
        name = await reserving.reserve(
            stage.client, DEPLOYMENTS, "web", "default", said.append, replicas=5, name="", ttl="2h"
        )
        return await reserving.follow_set(stage.client, name, said.append, 5)

    assert run(stage, more) is False
    assert said[-3] == "3/5 available, 2 pending"
    assert said[-2].startswith("  2: 0/1 nodes are available: 1 Insufficient cpu")
    assert "kubectl delete reservationset deployment.default.web" in said[-1]


def test_reserving_for_what_is_not_there_is_refused(stage: Stage) -> None:
    async def work() -> None:
        await reserving.reserve(stage.client, DEPLOYMENTS, "ghost", "default", print, replicas=1, name="")

    with pytest.raises(reserving.Refused, match="Deployment default/ghost not found"):
        run(stage, work)


def test_a_migration_is_followed_to_its_end(stage: Stage) -> None:
    stage.apply(node("n1", "4"), workload("StatefulSet", "db", 1, "2"))
    stage.apply(node("n2", "4"))
    assert stage.world.store.peek(STATEFUL_SETS, "db", "default") is not None
    said: list[str] = []

    async def work() -> bool:
        job = await reserving.migrate(stage.client, "db-0", "default", said.append, to="n2")
        return await reserving.follow_job(stage.client, job, said.append, 300)

    assert run(stage, work) is True
    assert stage.pod("db-0")["spec"]["nodeName"] == "n2"
    assert said[-1] == "Succeeded: pod default/db-0 runs on node n2"
    assert any("evicted from node n1" in line for line in said)


def bare(name: str, **metadata: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("name", "to", "why"),
    [
        ("ghost", "", "not found; specify it as NAMESPACE/NAME"),
        ("alone", "n1", "is already on node n1"),
        ("alone", "", "has no controller that would recreate it after its eviction; use --force"),
        ("logs", "", "belongs to DaemonSet logs"),
        ("static", "", "is a static pod"),
        ("web-0", "n9", "node n9 not found; list the nodes with `kubectl get nodes`"),
        ("web-0", "n2", "node n2 is cordoned; `kubectl uncordon n2`"),
    ],
)
def test_impossible_migrations_are_refused_with_what_to_do(stage: Stage, name: str, to: str, why: str) -> None:
    cordoned = node("n2", "4")
    cordoned["spec"] = {"unschedulable": True}
    stage.apply(node("n1", "4"), cordoned)
    daemons = workload("DaemonSet", "logs", 1, "100m")
    del daemons["spec"]["serviceName"], daemons["spec"]["replicas"]
    stage.apply(workload("StatefulSet", "web", 1, "100m"), daemons)
    stage.apply(bare("alone"), bare("static", annotations={"kubernetes.io/config.mirror": "hash"}))
    if name == "logs":
        pods = (each["metadata"]["name"] for each in stage.world.objects(PODS))
        name = next(pod for pod in pods if pod.startswith("logs-"))

    async def work() -> None:
        await reserving.migrate(stage.client, name, "default", print, to=to)

    with pytest.raises(reserving.Refused, match=why):
        run(stage, work)


def test_what_nobody_follows_any_more_goes_on_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)

    async def make(*args: Any, **options: Any) -> str:
        assert args[3] == "shop" or args[2] == "shop", "the namespace of the context"
        return "it"

    async def interrupted(*args: Any) -> bool:
        raise KeyboardInterrupt

    for name, value in (("reserve", make), ("migrate", make), ("follow_set", interrupted), ("follow_job", interrupted)):
        monkeypatch.setattr(reserving, name, value)
    kubeconfig = ["--kubeconfig", str(tmp_path / "config")]
    reserved = CliRunner().invoke(reserve_command, ["deployment/web", *kubeconfig])
    assert reserved.exit_code == 130 and "kubectl delete reservationset it" in reserved.output
    migrated = CliRunner().invoke(migrate_command, ["pod/web-0", *kubeconfig])
    assert (
        migrated.exit_code == 130 and "kubectl annotate podmigrationjob it wharfinger.dev/abort=true" in migrated.output
    )


KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u, namespace: shop}}]
users: [{name: u, user: {}}]
current-context: c
"""


@pytest.mark.parametrize("arguments", [["web"], ["nonsense/web"], ["deployment/web", "--ttl", "soon"]])
def test_bad_arguments_are_told_before_anything_is_sent(arguments: list[str]) -> None:
    assert CliRunner().invoke(reserve_command, arguments).exit_code == 2


@pytest.mark.parametrize("arguments", [["node", "n1"], ["n1"], ["pod"], ["node/n1"], ["pod", "a", "b"]])
def test_only_pods_are_migrated(arguments: list[str]) -> None:
    answer = CliRunner().invoke(migrate_command, arguments)
    assert answer.exit_code == 2 and "pod NAMESPACE/NAME" in answer.output


@pytest.mark.parametrize("name", ["a.b", "x" * 39 + ".y", "x" * 38 + "-y" + "z" * 20, "1" * 63 + "." + "p" * 63])
def test_a_pod_of_any_name_is_migrated(stage: Stage, name: str) -> None:
    stage.apply(node("n1", "4"), node("n2", "4"), bare(name))
    said: list[str] = []

    async def work() -> bool:
        job = await reserving.migrate(stage.client, name, "default", said.append, force=True, ttl="1m")
        return await reserving.follow_job(stage.client, job, said.append, 90)

    assert run(stage, work) is False, "nobody recreates the pod"
    assert any("evicted from node n1" in line for line in said)


def test_a_job_of_any_name_gets_its_reservation() -> None:
    job = view({"metadata": {"name": "j" * 62 + "-" + "x" * 100, "uid": "u"}, "spec": {}}, PodMigrationJob)
    found = reservation_for(job, {"metadata": {"name": "p", "namespace": "d"}, "spec": {"nodeName": "n1"}})
    assert found["metadata"]["labels"][JOB_LABEL] == "j" * 62


def test_reserving_again_reserves_again_after_use_and_after_expiry(stage: Stage) -> None:
    deployment = workload("Deployment", "web", 0, "1")
    del deployment["spec"]["serviceName"]
    stage.apply(node("n1", "8"), deployment)
    said: list[str] = []

    async def reserve() -> bool:
        name = await reserving.reserve(
            stage.client,
            DEPLOYMENTS,
            "web",
            "default",
            said.append,
            replicas=2,
            name="",
            now=stage.world.clock.now,
            ttl="1h",
        )
        return await reserving.follow_set(stage.client, name, said.append, 60)

    def available() -> int:
        return sum(each["status"]["phase"] == "Available" for each in stage.world.objects(RESERVATIONS))

    assert run(stage, reserve) is True and available() == 2
    stage.apply({**deployment, "spec": {**deployment["spec"], "replicas": 2}})
    run(stage, stage.world.settle)
    assert available() == 0, "both are used"
    assert run(stage, reserve) is True and available() == 2
    assert said[-1] == "2/2 available, 2 used"
    run(stage, lambda: stage.world.advance(stage.world.loop.time() + 3 * 3600))
    assert available() == 0, "they have expired"
    assert run(stage, reserve) is True and available() == 2
    run(stage, lambda: stage.world.advance(stage.world.loop.time() + 3000))
    assert available() == 2, "the hour counts from the last call"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((DEPLOYMENTS, "default", "web"), (STATEFUL_SETS, "default", "web")),
        ((DEPLOYMENTS, "a", "b-c"), (DEPLOYMENTS, "a-b", "c")),
        ((DEPLOYMENTS, "a", "b.c"), (DEPLOYMENTS, "a-b", "c")),
        ((DEPLOYMENTS, "n" * 63, "x" * 100), (DEPLOYMENTS, "n" * 63, "x" * 99)),
    ],
)
def test_sets_of_different_workloads_have_different_names(one: Any, other: Any) -> None:
    names = {reserving.set_name(*one), reserving.set_name(*other)}
    assert len(names) == 2 and all(len(name) <= 63 for name in names)
