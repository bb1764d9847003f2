"""Plans moves for a snapshot: loads it, finds a plan, and proves the moves in the simulated cluster."""

from __future__ import annotations

from dataclasses import replace

from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document
from wharfinger.client.interface import Client
from wharfinger.client.memory import gc_rare
from wharfinger.repack.finding import BadGoal, RepackOptions, find_plan
from wharfinger.repack.jobs import KIND
from wharfinger.repack.movable import BadCost
from wharfinger.repack.plans import RepackGoal, RepackPlan
from wharfinger.scenario import runner
from wharfinger.scheduler import profiles
from wharfinger.scheduler.scheduler import Scheduler, SchedulerOptions
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.inputs import BadInput, Inputs
from wharfinger.simulate.repack_proof import prove
from wharfinger.simulate.simulation import SimulationOptions, apply_manifests, prepare
from wharfinger.simulate.workloads import pods_of_workload


def repack(cluster: Inputs, goal: RepackGoal, options: RepackOptions) -> RepackPlan:
    """The plan for the goal. Raises BadInput if nodes or pods that it names do not exist."""
    begin = cluster.start() if options.start is None else options.start
    world = SimulatedCluster(cluster.configuration, start=begin, seed=options.seed, events=False)
    world.store.forget_read_changes()  # without faults, nobody reads them again
    try:
        with gc_rare():
            return world.loop.complete(_repack(world, cluster, goal, options))
    finally:
        world.close()


async def _repack(world: SimulatedCluster, cluster: Inputs, goal: RepackGoal, options: RepackOptions) -> RepackPlan:
    results = runner.Results()
    loading = SimulationOptions(seed=options.seed, progress=options.progress, once=True)
    # Pods that wait already start where the plan says, so that it moves none of them.
    waiting = goal.room or any(_waits(manifest.document) for manifest in cluster.manifests)
    rest = await prepare(world, cluster, loading, results, scheduler=not waiting)
    await apply_manifests(world, rest, loading, results)
    await (world.loop.still() if waiting else world.settle())
    configuration = profiles.load(cluster.configuration.scheduler, settings=cluster.configuration)
    client = world.client("", lambda warning: None)
    scheduler = Scheduler(client, world.clock, configuration, world.registry, SchedulerOptions(seed=options.seed))
    await scheduler.load()
    try:
        goal = await _with_pods(world, client, goal)
        found = find_plan(scheduler.engine, scheduler.pods(), goal, options)
    except BadGoal as error:
        raise BadInput(error.problems) from error
    except BadCost as error:
        raise BadInput([str(error)]) from error
    finally:
        await scheduler.stop()
    if options.proof and found.moves and found.reached and world.registry.find(KIND) is not None:
        found.surprise = await _proved(world, client, found, options)
    return found


def _waits(document: Document) -> bool:
    return document.get("kind") == "Pod" and not (document.get("spec") or {}).get("nodeName")


async def _proved(world: SimulatedCluster, client: Client, plan: RepackPlan, options: RepackOptions) -> str:
    """What goes otherwise than planned; empty if nothing does."""
    for title, node in plan.at_once.items():
        namespace, _, name = title.partition("/")
        binding = {"metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        await client.create(PODS, binding, namespace, name=name, subresource="binding")
    world.start()
    await world.settle()
    return await prove(world, plan.moves, options.progress)


async def _with_pods(world: SimulatedCluster, client: Client, goal: RepackGoal) -> RepackGoal:
    """The goal with the pods that wait in place of workloads. Raises BadInput."""
    names: list[str] = []
    for text in goal.room_for:
        word, _, rest = text.partition("/")
        namespace, slash, name = rest.partition("/")
        if not slash:
            names.append(text)
            continue
        kind = world.registry.find(word)
        if kind is None or not kind.pod_template or not namespace or not name:
            form = "NAMESPACE/POD, or KIND/NAMESPACE/NAME of a workload such as deployment/shop/web"
            raise BadInput([f"--room-for: want {form}, not {text!r}"])
        workload = world.store.peek(kind.storage, name, namespace)
        if workload is None:
            raise BadInput([f"--room-for: there is no {kind.kind} {namespace}/{name}"])
        pods = await pods_of_workload(client, workload.document())
        waiting = [f"{namespace}/{pod.metadata.name}" for pod in pods if not pod.spec.node_name]
        if not waiting:
            raise BadInput([f"--room-for: no pod of {kind.kind} {namespace}/{name} waits for a node"])
        names += waiting
    return replace(goal, room_for=tuple(dict.fromkeys(names)))
