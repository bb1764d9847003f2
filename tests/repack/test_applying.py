"""Plans that are carried out, in a simulated cluster and virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tests.repack.worlds import inputs, node, pod, replica_set

from wharfinger.api.errors import ServiceUnavailable
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.repack.applying import CORDONED, abort, apply_plan
from wharfinger.repack.finding import RepackOptions
from wharfinger.repack.jobs import migration_jobs
from wharfinger.repack.plans import RepackGoal, RepackPlan
from wharfinger.scenario import runner
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.repacking import repack
from wharfinger.simulate.simulation import SimulationOptions, apply_manifests, prepare

OBJECTS = [
    *(node("a", 4000, 8000), node("b", 4000, 8000), node("c", 4000, 8000)),
    replica_set("web", 3, 1000, 100),
    *(pod(f"web-{index}", where, 1000, 100, owner="web") for index, where in enumerate("aab")),
    *(replica_set("db", 1, 3000, 100), pod("db-0", "c", 3000, 100, owner="db")),
]


def on_cluster(script: Callable[[SimulatedCluster, RepackPlan], Coroutine[Any, Any, None]]) -> None:
    found = repack(inputs(OBJECTS), RepackGoal(1), RepackOptions(alone=False))
    assert found.reached
    cluster = inputs(OBJECTS)
    world = SimulatedCluster(cluster.configuration, start=cluster.start())

    async def run() -> None:
        options, results = SimulationOptions(), runner.Results()
        await apply_manifests(world, await prepare(world, cluster, options, results), options, results)
        await world.settle()
        await script(world, found)

    try:
        world.loop.complete(run())
    finally:
        world.close()


def nodes_of_pods(world: SimulatedCluster) -> list[str]:
    return sorted(str((each.get("spec") or {}).get("nodeName")) for each in world.objects(PODS))


def test_moves_are_made_and_the_node_is_left_cordoned() -> None:
    async def script(world: SimulatedCluster, found: RepackPlan) -> None:
        client = world.client("", lambda warning: None)
        said: list[str] = []
        made = await apply_plan(client, migration_jobs(world.registry), found, said.append)
        assert not made.surprise and not made.remaining
        assert found.freed[0] not in nodes_of_pods(world)
        assert len(nodes_of_pods(world)) == 4
        assert (await client.get(NODES, found.freed[0]))["spec"]["unschedulable"] is True
        assert said[-1] == f"moved {found.moves[-1].pod} to {found.moves[-1].target}"

    on_cluster(script)


def test_a_lost_target_ends_it_and_nothing_is_half_moved() -> None:
    async def script(world: SimulatedCluster, found: RepackPlan) -> None:
        client = world.client("", lambda warning: None)
        move = found.moves[0]
        await client.delete(NODES, move.target)
        made = await apply_plan(client, migration_jobs(world.registry), found, lambda line: None)
        assert move.pod in made.surprise
        assert made.remaining[0] == move
        stays = await client.get(PODS, move.pod.partition("/")[2], "default")
        assert stays["spec"]["nodeName"] == move.source

    on_cluster(script)


def test_an_api_server_that_restarts_does_not_end_it() -> None:
    async def script(world: SimulatedCluster, found: RepackPlan) -> None:
        client, jobs = world.client("", lambda warning: None), migration_jobs(world.registry)
        send, failures = client.get, [3]

        async def failing(resource: Any, *arguments: Any, **more: Any) -> Any:
            if resource == jobs and failures[0]:
                failures[0] -= 1
                raise ServiceUnavailable("connection refused")
            return await send(resource, *arguments, **more)

        client.get = failing  # type: ignore[method-assign]
        made = await apply_plan(client, jobs, found, lambda line: None)
        assert not made.surprise and len(made.done) == len(found.moves) and not failures[0]

    on_cluster(script)


def test_what_was_made_already_is_not_repeated() -> None:
    async def script(world: SimulatedCluster, found: RepackPlan) -> None:
        client, jobs = world.client("", lambda warning: None), migration_jobs(world.registry)
        first = await apply_plan(client, jobs, found, lambda line: None)
        again = await apply_plan(client, jobs, RepackPlan(found.goal, freed=found.freed), lambda line: None)
        assert len(first.done) == len(found.moves) and not again.done and not again.surprise

    on_cluster(script)


def test_an_abort_leaves_pods_and_nodes_as_they_were() -> None:
    async def script(world: SimulatedCluster, found: RepackPlan) -> None:
        client, jobs = world.client("", lambda warning: None), migration_jobs(world.registry)
        before = nodes_of_pods(world)
        from wharfinger.repack import applying

        for name in found.freed:
            await applying.cordon(client, name, "repack")
        held = applying.job_of(found.moves[0], applying.job_name(found.moves[0]))
        held["metadata"]["labels"] = {applying.REPACK_LABEL: "true"}
        held["spec"]["paused"] = True
        await client.create(jobs, held)
        await world.settle()
        assert await abort(client, jobs, lambda line: None) == 1
        assert nodes_of_pods(world) == before
        freed = await client.get(NODES, found.freed[0])
        assert not freed["spec"].get("unschedulable")
        assert CORDONED not in (freed["metadata"].get("annotations") or {})

    on_cluster(script)
