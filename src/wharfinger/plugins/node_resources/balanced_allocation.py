"""NodeResourcesBalancedAllocation: prefers nodes where the pod makes the utilization of resources more even."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import sqrt
from typing import Self

import numpy as np

from wharfinger.api.fields import FieldError, duplicate, invalid
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.framework.columns import Bools, Floats, Ints, Rows
from wharfinger.framework.plugin import MAX_SCORE, Args, Plugin, Prepared, RowFunctions, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status
from wharfinger.framework.tables import Tables
from wharfinger.plugins.node_resources.jointly import JointBalance
from wharfinger.plugins.node_resources.scoring import DEFAULT_RESOURCES, ResourceSpec, Used, key_of, measured


class NodeResourcesBalancedAllocationArgs(Args, frozen=True):
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES

    def faults(self, kubernetes: KubernetesVersion) -> list[FieldError]:
        found, seen = [], set()
        for index, spec in enumerate(self.resources):
            if spec.name in seen:
                found.append(duplicate(f"resources[{index}].name", spec.name))
            seen.add(spec.name)
            if spec.weight not in (0, 1):
                found.append(invalid(f"resources[{index}].weight", spec.weight, "must be 1"))
        return found


class NodeResourcesBalancedAllocation(Plugin):
    name = "NodeResourcesBalancedAllocation"
    points = frozenset({"preScore", "score"})
    position = 160
    args_type = NodeResourcesBalancedAllocationArgs

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        resources = self.args.resources or DEFAULT_RESOURCES
        if not any(shape.requests.get(spec.name) for spec in resources):
            return None  # as upstream: best-effort pods would all go to the same node
        return _Balance(measured(self.tables, resources, shape.requests, nonzero=False), self.tables)


class _Balance(Prepared):
    scope = Scope.ROW
    scores = bounded = True

    def __init__(self, used: list[Used], tables: Tables) -> None:
        super().__init__()
        self._used = used
        self._tables = tables
        self._steps = [np.array([[0], [each.amount]]) for each in used]

    def score(self, rows: Rows) -> Ints:
        capacities = [each.allocatable.take(rows) for each in self._used]
        if len(self._used) == 2 and self._used[0].everywhere and self._used[1].everywhere:
            return self._score_pairs(rows, capacities[0], capacities[1])
        without = [each.requested.take(rows) for each in self._used]
        with_pod = [used + each.amount for used, each in zip(without, self._used, strict=True)]
        half = MAX_SCORE // 2
        # Go truncates towards zero, but this sum is never negative.
        return half + (half + _evenness(with_pod, capacities) - _evenness(without, capacities)) // 2

    def score_row(self, row: int) -> int:
        before = []
        after = []
        for each in self._used:
            capacity = each.allocatable.cells[row]
            if capacity:
                used = each.requested.cells[row]
                before.append(min(used / capacity, 1.0))
                after.append(min((used + each.amount) / capacity, 1.0))
        half = MAX_SCORE // 2
        return half + (half + _evenness_of_one(after) - _evenness_of_one(before)) // 2

    def row_functions(self) -> RowFunctions:
        score = self.score_row if len(self._used) != 2 else _pair_scorer(*self._used)
        return RowFunctions(self.filter_row, score, [each.requested for each in self._used])

    def joint_key(self) -> Hashable | None:
        return key_of(self._used) if len(self._used) == 2 else None

    @classmethod
    def jointly(cls, answers: Sequence[Self]) -> JointBalance:
        return JointBalance(answers[0]._tables, [each._used for each in answers])

    def _score_pairs(self, rows: Rows, capacity: Ints, other_capacity: Ints) -> Ints:
        """The usual case: two resources that every node has."""
        # [without the pod, with the pod][row]
        first, second = self._used
        apart: Floats = (first.requested.take(rows) + self._steps[0]) / capacity
        np.minimum(apart, 1.0, out=apart)
        fraction: Floats = (second.requested.take(rows) + self._steps[1]) / other_capacity
        np.minimum(fraction, 1.0, out=fraction)
        apart -= fraction
        apart /= 2
        np.abs(apart, out=apart)
        np.subtract(1.0, apart, out=apart)
        apart *= float(MAX_SCORE)
        scores = apart.astype(np.int64)
        after: Ints = scores[1]
        after -= scores[0]
        after += MAX_SCORE // 2
        after >>= 1
        after += MAX_SCORE // 2
        return after


def _pair_scorer(first: Used, second: Used) -> Callable[[int], int]:
    """Unrolled for two resources, the usual case, since it runs for every pod that is placed."""
    capacities, other_capacities = first.allocatable.cells, second.allocatable.cells
    used_by, other_used_by = first.requested.cells, second.requested.cells
    amount, other_amount = first.amount, second.amount

    def score(row: int) -> int:
        capacity, other_capacity = capacities[row], other_capacities[row]
        if not capacity or not other_capacity:
            return 75
        used, other_used = used_by[row], other_used_by[row]
        fraction, other_fraction = used / capacity, other_used / other_capacity
        then, other_then = (used + amount) / capacity, (other_used + other_amount) / other_capacity
        if then > 1.0 or other_then > 1.0:
            fraction, other_fraction = min(fraction, 1.0), min(other_fraction, 1.0)
            then, other_then = min(then, 1.0), min(other_then, 1.0)
        gained = int((1 - abs((then - other_then) / 2)) * 100.0) - int(
            (1 - abs((fraction - other_fraction) / 2)) * 100.0
        )
        return 50 + (50 + gained) // 2

    return score


def _evenness_of_one(fractions: list[float]) -> int:
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        total = 0.0
        for fraction in fractions:
            total += fraction
        mean, squares = total / len(fractions), 0.0
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = sqrt(squares / len(fractions))
    return int((1 - deviation) * float(MAX_SCORE))


def _evenness(requested: list[Ints], capacities: list[Ints]) -> Ints:
    """100 if the utilization of all resources is equal, less the more it differs. Ignores resources that a node lacks."""
    present = [capacity != 0 for capacity in capacities]
    fractions = [
        np.where(there, np.minimum(used / np.where(there, capacity, 1), 1.0), 0.0)
        for used, capacity, there in zip(requested, capacities, present, strict=True)
    ]
    number = np.sum(present, axis=0)
    # For two resources upstream takes half the distance, which rounds differently from the general formula.
    if len(fractions) == 2:
        deviation = np.where(number == 2, np.abs((fractions[0] - fractions[1]) / 2), 0.0)
    else:
        deviation = np.where(number == 2, _distance_of_two(fractions, present), _deviation(fractions, present, number))
    return ((1 - deviation) * float(MAX_SCORE)).astype(np.int64)


def _deviation(fractions: list[Floats], present: list[Bools], number: Ints) -> Floats:
    total = np.zeros(len(number))
    for fraction in fractions:
        total += fraction
    mean = total / np.maximum(number, 1)
    squares = np.zeros(len(number))
    for fraction, there in zip(fractions, present, strict=True):
        squares += np.where(there, (fraction - mean) * (fraction - mean), 0.0)
    return np.where(number > 2, np.sqrt(squares / np.maximum(number, 1)), 0.0)


def _distance_of_two(fractions: list[Floats], present: list[Bools]) -> Floats:
    """Half the distance between the utilization of the first two resources that a node has."""
    first = np.full(len(fractions[0]), np.nan)
    second = np.full(len(fractions[0]), np.nan)
    for fraction, there in zip(fractions, present, strict=True):
        fill_second = there & ~np.isnan(first) & np.isnan(second)
        second = np.where(fill_second, fraction, second)
        first = np.where(there & np.isnan(first), fraction, first)
    distance: Floats = np.nan_to_num(np.abs((first - second) / 2))
    return distance


plugins = (NodeResourcesBalancedAllocation,)
