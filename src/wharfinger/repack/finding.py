"""Finds a plan for a goal, in an engine that holds the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.api.keys import ObjectKey
from wharfinger.api.selectors import BadSelector, matches, parse_label_selector
from wharfinger.api.views import Pod
from wharfinger.engine import Engine
from wharfinger.repack.cp_sat import free_nodes_optimally
from wharfinger.repack.freeing import Effort, free_nodes
from wharfinger.repack.improving import Improvement, defragment, even_zones, restore_order
from wharfinger.repack.movable import as_new, sort_pods
from wharfinger.repack.plans import BudgetUse, RepackGoal, RepackMove, RepackPlan
from wharfinger.repack.room import fitting, make_room, start_on
from wharfinger.repack.saving import free_dearest
from wharfinger.repack.trial import Step, Trial

_ORDER = "resourcepolicy"  # the plugin whose scores say which of two nodes is the better unit


Progress = Callable[[str, int, int], None]
"""Called with the current activity, how much of it is done, and the total."""


class BadGoal(ValueError):
    """The goal names something that does not exist; `problems` has a line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


@dataclass(slots=True)
class RepackOptions:
    seed: int = 0
    effort: Effort = field(default_factory=Effort)
    proof: bool = True
    alone: bool = True  # also move pods that no controller creates again
    solver_seconds: float | None = None  # let CP-SAT improve the plan for at most that long
    prices: Mapping[str, float] = field(default_factory=dict)  # per hour, by node
    start: float | None = None
    progress: Progress | None = None


def find_plan(engine: Engine, pods: Iterable[Pod], goal: RepackGoal, options: RepackOptions) -> RepackPlan:
    """The plan for the goal. The engine holds the cluster, `pods` are all pods of it, and it is used up afterwards.
    Raises BadGoal if nodes or pods that the goal names do not exist, and BadCost."""
    trial = Trial(engine, sort_pods(engine, alone=options.alone))
    if goal.room:
        found = _room(trial, pods, goal, options)
    else:
        found = _improve(trial, goal) if goal.improves else _free(trial, goal, options)
        found.started = found.at_once = _starting(trial, pods, found)
    found.budgets = _budgets(trial, found.moves)
    return found


def _budgets(trial: Trial, moves: Iterable[RepackMove]) -> list[BudgetUse]:
    """The budgets that cover pods of the moves, those first that allow the fewest of theirs at a time."""
    moved = {move.pod for move in moves}
    allowed, counts = dict[str, int](), Counter[str]()
    for pod in trial.pods.movable.values():
        if pod.name in moved and pod.budget is not None:
            name = f"{pod.budget.metadata.namespace}/{pod.budget.metadata.name}"
            allowed[name] = pod.budget.status.disruptions_allowed
            counts[name] += 1
    found = [BudgetUse(name, count, allowed[name]) for name, count in counts.items()]
    return sorted(found, key=lambda each: (-each.moves / each.allowed, each.name))


def _starting(trial: Trial, pods: Iterable[Pod], plan: RepackPlan) -> dict[str, str]:
    """The pods that wait and fit already, with nodes where they are not in the way of the plan."""
    waiting, _ = _waiting(trial.engine, pods, (), strict=True)
    if not waiting:
        return {}
    keys = {pod.name: key for key, pod in trial.pods.movable.items()}
    steps = [(keys[move.pod], move.source, move.target) for move in plan.moves]
    trial.back(0)
    nodes = fitting(trial, waiting, plan.freed, steps)
    return _titled(start_on(trial, [pod for pod in waiting if pod.metadata.key in nodes], nodes, steps))


def _titled(nodes: Mapping[ObjectKey, str]) -> dict[str, str]:
    return {f"{namespace}/{name}": node for (namespace, name), node in nodes.items()}


def _free(trial: Trial, goal: RepackGoal, options: RepackOptions) -> RepackPlan:
    names = _selected(trial, goal.nodes)
    if goal.save_cost:
        return _save(trial, goal, names, options)
    number = len(names) if goal.all_selected else goal.free_nodes or 0
    if number > len(names):
        return RepackPlan(goal, blocked=[f"{number} nodes are to be freed, but there are only {len(names)}"])
    found = free_nodes(trial, number, names, options.effort)
    if options.solver_seconds is not None:
        found = free_nodes_optimally(trial, number, names, options.solver_seconds, options.seed, found)
    moves = _freeing_moves(trial, found.steps, found.freed)
    return RepackPlan(goal, moves, sorted(found.freed), {}, found.cost, found.bound, blocked=found.blocked)


def _save(trial: Trial, goal: RepackGoal, names: Sequence[str], options: RepackOptions) -> RepackPlan:
    found = free_dearest(trial, options.prices, names, options.effort)
    plan = RepackPlan(goal, _freeing_moves(trial, found.steps, found.freed), sorted(found.freed), cost=found.cost)
    plan.saved, plan.most_saved, plan.blocked = found.saved, found.most, found.blocked
    return plan


def _freeing_moves(trial: Trial, steps: Sequence[Step], freed: Collection[str]) -> list[RepackMove]:
    moves = []
    for key, source, target in steps:
        pod = trial.pods.movable[key]
        why = f"frees {source}" if source in freed else f"makes room on {source}"
        moves.append(RepackMove(pod.name, source, target, why, pod.recreated))
    return moves


def _improve(trial: Trial, goal: RepackGoal) -> RepackPlan:
    if goal.restore_order:
        found: Improvement | None = restore_order(trial, _ORDER)
    else:
        found = even_zones(trial) if goal.even_zones else defragment(trial, goal.defragment)
    if found is None:
        raise BadGoal(
            [f"--defragment: no node and no pod has {goal.defragment}, as a resource or as a class of devices"]
        )
    moves, cost = [], 0.0
    for (key, source, target), why in zip(found.steps, found.reasons, strict=True):
        pod = trial.pods.movable[key]
        moves.append(RepackMove(pod.name, source, target, why, pod.recreated))
        cost += pod.cost
    return RepackPlan(goal, moves, cost=cost, measure=found.measure, before=found.before, after=found.after)


def _selected(trial: Trial, selector: str) -> list[str]:
    try:
        requirements = parse_label_selector(selector)
    except BadSelector as error:
        raise BadGoal([f"--nodes: {error}"]) from error
    tables = trial.tables
    names = [
        name
        for name, row in sorted(tables.row_of.items())
        if (node := tables.nodes[row]) is not None and matches(requirements, node.metadata.labels)
    ]
    if not names:
        raise BadGoal([f"--nodes: no node has the labels {selector}" if selector else "there are no nodes"])
    return names


def _room(trial: Trial, pods: Iterable[Pod], goal: RepackGoal, options: RepackOptions) -> RepackPlan:
    waiting, held = _waiting(trial.engine, pods, goal.room_for)
    found = make_room(trial, waiting, options.effort)
    started = _titled(found.started)
    by_node: dict[str, list[str]] = {}
    for name, node in started.items():
        by_node.setdefault(node, []).append(name)
    moves = [_room_move(trial, step, by_node) for step in found.steps]
    plan = RepackPlan(goal, moves, [], started, found.cost, found.bound, blocked=[*held, *found.blocked])
    plan.at_once = _titled(found.at_once)
    return plan


def _room_move(trial: Trial, step: Step, by_node: dict[str, list[str]]) -> RepackMove:
    key, source, target = step
    pod = trial.pods.movable[key]
    return RepackMove(pod.name, source, target, f"makes room for {', '.join(by_node.get(source, ()))}", pod.recreated)


def _waiting(
    engine: Engine, pods: Iterable[Pod], names: Sequence[str], *, strict: bool = False
) -> tuple[list[Pod], list[str]]:
    """The pods without a node, and why some of the named ones must not be scheduled yet. Pods of other schedulers count
    as pods of our first profile, or not at all if `strict`."""
    found: dict[str, Pod] = {}
    for pod in pods:
        ours = not strict or pod.spec.scheduler_name in engine.profiles
        if not pod.spec.node_name and not pod.terminal and not pod.terminating and ours:
            found[f"{pod.metadata.namespace}/{pod.metadata.name}"] = as_new(pod, (), engine)
    unknown = [name for name in names if name not in found]
    if unknown:
        raise BadGoal([f"--room-for: no pod {name} waits for a node" for name in unknown])
    waiting, held = list[Pod](), list[str]()
    for name in names or sorted(found):
        status = engine.pre_enqueue(found[name])
        if status.ok:
            waiting.append(found[name])
        elif names:
            held.append(f"{name}: {status.message}")
    return waiting, held
