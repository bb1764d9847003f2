"""The cheapest set of nodes by OR-Tools' CP-SAT, which also says what every set costs at least.

The model knows what pods request, how many of a kind a node takes, and which models take them at all. Sets that it finds
are tried with the scheduler afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from wharfinger.capacity.choosing import NoCapacitySolver
from wharfinger.capacity.demand import PodClass, WaitingDemand

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_SCALE = 1_000_000  # prices are whole numbers in the model


@dataclass(slots=True)
class SolvedCounts:
    counts: list[list[int]] = field(default_factory=list)  # of each model, the best set last
    bound: float = 0.0


def cheapest_counts(
    demand: WaitingDemand, room: Mapping[int, int], known: float, seconds: float, seed: int
) -> SolvedCounts:
    """Sets of nodes that cost less than the one that is known. Raises NoCapacitySolver if OR-Tools is not installed."""
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise NoCapacitySolver("install it with `pip install 'wharfinger[solver]'`") from error

    problem = _Purchase(cp_model.CpModel(), demand, room, known)
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = 1  # with several, which of equal solutions is found depends on timing
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(problem.model)
    exact = all(each.exact for each in problem.waiting)
    if status == cp_model.INFEASIBLE:
        return SolvedCounts([], known if exact else 0.0)
    found = SolvedCounts([], solver.best_objective_bound / _SCALE if exact else 0.0)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found.counts.append(problem.counts(solver))
    return found


class _Purchase:
    """Nodes of each model that may be bought, and how many pods of each class go to each."""

    def __init__(self, model: cp_model.CpModel, demand: WaitingDemand, room: Mapping[int, int], known: float) -> None:
        self.model = model
        self.demand = demand
        self.waiting = [each for each in demand.classes if each.models and not each.elsewhere]
        self._nodes: list[tuple[int, Any]] = []
        for index, each in enumerate(demand.models):
            most = min(room.get(index, 10**9), int(known / each.price) if each.price else demand.pods, demand.pods)
            variables = [model.new_bool_var(f"{each.group} {index} {number}") for number in range(most)]
            for one, other in pairwise(variables):
                model.add_implication(other, one)  # nodes of a model are alike
            self._nodes += [(index, variable) for variable in variables]
        held = [self._places(each) for each in self.waiting]
        for place, (index, used) in enumerate(self._nodes):
            self._limit(place, index, used, held)
        cost = sum(round(demand.models[index].price * _SCALE) * variable for index, variable in self._nodes)
        model.add(cost <= round(known * _SCALE) - 1)
        model.minimize(cost)

    def _limit(self, place: int, index: int, used: Any, held: Sequence[Mapping[int, Any]]) -> None:
        for number, amount in self.demand.room[index].items():
            parts = [
                each.needs[number] * places[place]
                for each, places in zip(self.waiting, held, strict=True)
                if place in places and each.needs.get(number)
            ]
            if parts:
                self.model.add(sum(parts) <= max(amount, 0) * used)

    def _places(self, each: PodClass) -> dict[int, Any]:
        """How many pods of a class each node gets, by the place of the node."""
        found: dict[int, Any] = {}
        for place, (index, used) in enumerate(self._nodes):
            most = min(each.most[index], len(each.pods))
            if most:
                found[place] = self.model.new_int_var(0, most, "")
                self.model.add(found[place] <= most * used)
        self.model.add(sum(found.values()) == len(each.pods))
        return found

    def counts(self, solver: cp_model.CpSolver) -> list[int]:
        counts = [0] * len(self.demand.models)
        for index, variable in self._nodes:
            counts[index] += int(solver.boolean_value(variable))
        return counts
