"""Frees nodes with OR-Tools' CP-SAT, which proves how far from the best a plan is.

The model knows requests, taints, selectors and affinities to nodes. What depends on other pods (anti-affinity, spread,
ports, volumes) is asked of the engine when the moves are put in order; a set of moves that it refuses is excluded, and
the model is solved again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wharfinger.engine.evaluation import active_filters
from wharfinger.framework.plugin import Scope
from wharfinger.repack.freeing import FreedNodes, why_no_room, why_too_few
from wharfinger.repack.movable import MovablePod
from wharfinger.repack.trial import Step, Trial

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_SCALE = 1000  # costs are whole numbers in the model
_ROUNDS = 50


class NoSolver(RuntimeError):
    """OR-Tools is not installed."""


def free_nodes_optimally(
    trial: Trial, number: int, names: Sequence[str], seconds: float, seed: int, known: FreedNodes
) -> FreedNodes:
    """Frees `number` of the named nodes, at less cost than the plan that is `known` if that is possible. Raises NoSolver
    if OR-Tools is not installed."""
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise NoSolver("install it with `pip install 'wharfinger[solver]'`") from error

    candidates, refusal = why_too_few(trial, number, names)
    if refusal or (known.freed and known.cost <= known.bound):
        return known
    problem = _Problem(cp_model.CpModel(), trial, number, candidates)
    problem.start_from(known)
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = 1  # with several, which of equal solutions is found depends on timing
    end = time.monotonic() + seconds
    bound = known.bound
    for _ in range(_ROUNDS):
        left = end - time.monotonic()
        if left <= 0:
            break
        solver.parameters.max_time_in_seconds = left
        status = solver.solve(problem.model)
        if status == cp_model.INFEASIBLE:
            if known.freed:  # nothing is better
                return replace(known, bound=known.cost)
            return FreedNodes(blocked=why_no_room(trial, candidates, number))
        bound = max(bound, solver.best_objective_bound / _SCALE)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            break
        moved = problem.moved(solver)
        steps = _ordered(trial, moved)
        if steps is not None:
            cost = sum(pod.cost for pod, _ in moved)
            return FreedNodes(steps, problem.freed(solver), cost, min(bound, cost))
        problem.exclude(moved)
    if known.freed:
        return replace(known, bound=min(bound, known.cost))
    return FreedNodes(bound=bound, blocked=["no plan was found in time"])


class _Problem:
    def __init__(self, model: cp_model.CpModel, trial: Trial, number: int, candidates: Sequence[str]) -> None:
        self.model = model
        self.trial = trial
        self._freed = {name: model.new_bool_var(f"free {name}") for name in candidates}
        self._at: dict[tuple[str, str], dict[str, Any]] = {}
        for key, pod in trial.pods.movable.items():
            places = {*self._allowed(pod), pod.node}
            self._at[key] = {name: model.new_bool_var(f"{pod.name} on {name}") for name in sorted(places)}
            model.add_exactly_one(self._at[key].values())
        self._limit_nodes()
        model.add(sum(self._freed.values()) == number)
        stays = [(round(pod.cost * _SCALE), self._at[key][pod.node]) for key, pod in trial.pods.movable.items()]
        self._cost = sum(cost * (1 - variable) for cost, variable in stays)
        model.minimize(self._cost)

    def start_from(self, known: FreedNodes) -> None:
        """Only what is better than the known plan is of interest; what it costs at least is known, too."""
        if known.freed:
            self.model.add(self._cost <= round(known.cost * _SCALE) - 1)
        self.model.add(self._cost >= round(known.bound * _SCALE))

    def _allowed(self, pod: MovablePod) -> list[str]:
        trial, tables = self.trial, self.trial.tables
        with trial.without(pod):
            prepared = trial.prepared(pod.pod)
            rows = tables.rows if prepared.refusal is None else tables.rows[:0]
            for _, each in active_filters(prepared):
                if each.scope is Scope.NODE:
                    rows = rows[each.filter(rows) == 0]
        return [tables.name(row) for row in rows.tolist()]

    def _limit_nodes(self) -> None:
        tables, trial = self.trial.tables, self.trial
        charges = {key: dict(trial.charge(pod.pod)) for key, pod in trial.pods.movable.items()}
        on: dict[str, list[tuple[tuple[str, str], Any]]] = {}
        for key, places in self._at.items():
            for name, variable in places.items():
                on.setdefault(name, []).append((key, variable))
        for name, there in on.items():
            row = tables.row_of[name]
            for resource in range(len(tables.resource_names)):
                taken = [(charges[key].get(resource, 0), variable) for key, variable in there]
                if any(amount for amount, _ in taken):
                    own = sum(charges[key].get(resource, 0) for key in trial.on[name])
                    room = int(tables.allocatable[resource].cells[row]) - int(tables.requested[resource].cells[row])
                    self.model.add(sum(amount * variable for amount, variable in taken) <= max(room, 0) + own)
            room = int(tables.pod_limit.cells[row]) - int(tables.pod_count.cells[row]) + len(trial.on[name])
            self.model.add(sum(variable for _, variable in there) <= room)
            if name in self._freed:
                for _, variable in there:
                    self.model.add_implication(self._freed[name], ~variable)

    def moved(self, solver: cp_model.CpSolver) -> list[tuple[MovablePod, str]]:
        found = []
        for key, places in self._at.items():
            pod = self.trial.pods.movable[key]
            target = next(name for name, variable in places.items() if solver.boolean_value(variable))
            if target != pod.node:
                found.append((pod, target))
        return found

    def freed(self, solver: cp_model.CpSolver) -> list[str]:
        return [name for name, variable in self._freed.items() if solver.boolean_value(variable)]

    def exclude(self, moved: Sequence[tuple[MovablePod, str]]) -> None:
        self.model.add_bool_or([~self._at[pod.key][target] for pod, target in moved])


def _ordered(trial: Trial, moved: Sequence[tuple[MovablePod, str]]) -> list[Step] | None:
    """The moves in an order in which each is possible; None if there is none. The trial is as before."""
    mark, nothing = len(trial.steps), trial.mask(())
    waiting = list(moved)
    while waiting:
        left = []
        for pod, target in waiting:
            if trial.tables.row_of[target] in trial.targets(pod, nothing):
                trial.move(pod, target)
            else:
                left.append((pod, target))
        if len(left) == len(waiting):
            break
        waiting = left
    steps = trial.taken_back(mark)
    return None if waiting else steps
