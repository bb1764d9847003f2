"""Finds a plan for a snapshot: loads it, searches in an engine, and proves the moves in the simulated cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wharfinger.api.selectors import BadSelector, matches, parse_label_selector
from wharfinger.api.views import Pod
from wharfinger.repack.cp_sat import free_nodes_optimally
from wharfinger.repack.freeing import Effort, free_nodes
from wharfinger.repack.improving import defragment, even_zones, restore_order
from wharfinger.repack.jobs import KIND
from wharfinger.repack.movable import BadCost, as_new, sort_pods
from wharfinger.repack.plans import RepackGoal, RepackMove, RepackPlan
from wharfinger.repack.proof import prove
from wharfinger.repack.room import make_room
from wharfinger.repack.trial import Step, Trial
from wharfinger.scenario import runner
from wharfinger.scheduler import profiles
from wharfinger.scheduler.scheduler import Scheduler, SchedulerOptions
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.inputs import BadInput, Inputs
from wharfinger.simulate.simulation import Progress, SimulationOptions, apply_manifests, prepare

_ORDER = "resourcepolicy"  # the plugin whose scores say which of two nodes is the better unit


@dataclass(slots=True)
class RepackOptions:
    seed: int = 0
    effort: Effort = field(default_factory=Effort)
    proof: bool = True
    alone: bool = True  # also move pods that no controller creates again
    solver_seconds: float | None = None  # let CP-SAT improve the plan for at most that long
    start: float | None = None
    progress: Progress | None = None


def repack(cluster: Inputs, goal: RepackGoal, options: RepackOptions) -> RepackPlan:
    """The plan for the goal. Raises BadInput if nodes or pods that it names do not exist."""
    begin = cluster.start() if options.start is None else options.start
    world = SimulatedCluster(cluster.configuration, start=begin, seed=options.seed)
    try:
        return world.loop.complete(_repack(world, cluster, goal, options))
    finally:
        world.close()


async def _repack(world: SimulatedCluster, cluster: Inputs, goal: RepackGoal, options: RepackOptions) -> RepackPlan:
    results = runner.Results()
    loading = SimulationOptions(seed=options.seed, progress=options.progress, once=True)
    await apply_manifests(world, await prepare(world, cluster, loading, results), loading, results)
    await world.settle()
    configuration = profiles.load(cluster.configuration.scheduler, settings=cluster.configuration)
    client = world.client("", lambda warning: None)
    scheduler = Scheduler(client, world.clock, configuration, world.registry, SchedulerOptions(seed=options.seed))
    await scheduler.load()
    try:
        trial = Trial(scheduler.engine, sort_pods(scheduler.engine, alone=options.alone))
        if goal.improves:
            found = _improve(trial, goal)
        else:
            found = _room(trial, scheduler, goal, options) if goal.room else _free(trial, goal, options)
    except BadCost as error:
        raise BadInput([str(error)]) from error
    finally:
        await scheduler.stop()
    if options.proof and found.moves and found.reached and world.registry.find(KIND) is not None:
        found.surprise = await prove(world, found.moves, options.progress)
    return found


def _free(trial: Trial, goal: RepackGoal, options: RepackOptions) -> RepackPlan:
    names = _selected(trial, goal.nodes)
    number = len(names) if goal.all_selected else goal.free_nodes or 0
    if number > len(names):
        return RepackPlan(goal, blocked=[f"{number} nodes are to be freed, but there are only {len(names)}"])
    found = free_nodes(trial, number, names, options.effort)
    if options.solver_seconds is not None:
        found = free_nodes_optimally(trial, number, names, options.solver_seconds, options.seed, found)
    whose = {pod.key: pod for pod in trial.pods.movable.values()}
    moves = []
    for key, source, target in found.steps:
        why = f"frees {source}" if source in found.freed else f"makes room on {source}"
        moves.append(RepackMove(whose[key].name, source, target, why, whose[key].recreated))
    return RepackPlan(goal, moves, sorted(found.freed), {}, found.cost, found.bound, blocked=found.blocked)


def _improve(trial: Trial, goal: RepackGoal) -> RepackPlan:
    if goal.defragment and goal.defragment not in trial.tables.resources:
        raise BadInput([f"--defragment: no node and no pod has the resource {goal.defragment}"])
    if goal.restore_order:
        found = restore_order(trial, _ORDER)
    else:
        found = even_zones(trial) if goal.even_zones else defragment(trial, goal.defragment)
    moves, cost = [], 0.0
    for (key, source, target), why in zip(found.steps, found.reasons, strict=True):
        pod = trial.pods.movable[key]
        moves.append(RepackMove(pod.name, source, target, why, pod.recreated))
        cost += pod.cost
    return RepackPlan(goal, moves, [], {}, cost, 0.0, found.measure, found.before, found.after)


def _selected(trial: Trial, selector: str) -> list[str]:
    try:
        requirements = parse_label_selector(selector)
    except BadSelector as error:
        raise BadInput([f"--nodes: {error}"]) from error
    tables = trial.tables
    names = [
        name
        for name, row in sorted(tables.row_of.items())
        if (node := tables.nodes[row]) is not None and matches(requirements, node.metadata.labels)
    ]
    if not names:
        raise BadInput([f"--nodes: no node has the labels {selector}" if selector else "there are no nodes"])
    return names


def _room(trial: Trial, scheduler: Scheduler, goal: RepackGoal, options: RepackOptions) -> RepackPlan:
    waiting = _waiting(scheduler, goal.room_for)
    found = make_room(trial, waiting, options.effort.questions)
    started = {f"{namespace}/{name}": node for (namespace, name), node in found.started.items()}
    by_node: dict[str, list[str]] = {}
    for name, node in started.items():
        by_node.setdefault(node, []).append(name)
    moves = [_room_move(trial, step, by_node) for step in found.steps]
    return RepackPlan(goal, moves, [], started, found.cost, found.bound, blocked=found.blocked)


def _room_move(trial: Trial, step: Step, by_node: dict[str, list[str]]) -> RepackMove:
    key, source, target = step
    pod = trial.pods.movable[key]
    return RepackMove(pod.name, source, target, f"makes room for {', '.join(by_node.get(source, ()))}", pod.recreated)


def _waiting(scheduler: Scheduler, names: Sequence[str]) -> list[Pod]:
    """The pods without a node, of our profiles."""
    found: dict[str, Pod] = {}
    for pod in scheduler.pods():
        if not pod.spec.node_name and not pod.terminal:
            found[f"{pod.metadata.namespace}/{pod.metadata.name}"] = pod
    unknown = [name for name in names if name not in found]
    if unknown:
        raise BadInput([f"--room-for: no pod {name} waits for a node" for name in unknown])
    chosen = [found[name] for name in names] if names else [found[name] for name in sorted(found)]
    return [as_new(pod, (), scheduler.engine) for pod in chosen]
