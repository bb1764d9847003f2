"""Scores for how full a node would be: LeastAllocated, MostAllocated and RequestedToCapacityRatio."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

import msgspec
import numpy as np

from wharfinger.api.fields import FieldError, invalid, required
from wharfinger.api.resources import CPU, EPHEMERAL_STORAGE, MEMORY, NONZERO, in_units, requests_nano
from wharfinger.framework.columns import IntColumn, Ints, Rows
from wharfinger.framework.node_table import is_scalar
from wharfinger.framework.plugin import MAX_SCORE
from wharfinger.framework.shapes import Shape
from wharfinger.framework.tables import Tables

MAX_CUSTOM_SCORE = 10  # the largest score of a point of RequestedToCapacityRatio


class ResourceSpec(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    name: str = ""
    weight: int = 0  # 0 means 1


DEFAULT_RESOURCES = (ResourceSpec(CPU, 1), ResourceSpec(MEMORY, 1))


class UtilizationPoint(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    utilization: int = 0
    score: int = 0


class RequestedToCapacityRatio(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    shape: tuple[UtilizationPoint, ...] = ()


def shape_faults(shape: tuple[UtilizationPoint, ...], path: str) -> list[FieldError]:
    if not shape:
        return [required(path, "at least one point must be specified")]
    found = []
    for index in range(1, len(shape)):
        if shape[index - 1].utilization >= shape[index].utilization:
            where, given = f"{path}[{index}].utilization", shape[index].utilization
            found.append(invalid(where, given, "values must be sorted in increasing order"))
            break
    for index, point in enumerate(shape):
        if not 0 <= point.utilization <= 100:
            where = f"{path}[{index}].utilization"
            found.append(invalid(where, point.utilization, "not in valid range [0, 100]"))
        if not 0 <= point.score <= MAX_CUSTOM_SCORE:
            detail = f"not in valid range [0, {MAX_CUSTOM_SCORE}]"
            found.append(invalid(f"{path}[{index}].score", point.score, detail))
    return found


class ScoringStrategy(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    type: str = "LeastAllocated"
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = None


def weight_faults(resources: tuple[ResourceSpec, ...], path: str) -> list[FieldError]:
    return [
        invalid(f"{path}[{index}].weight", spec.weight, f"resource weight of {spec.name} not in valid range (0, 100]")
        for index, spec in enumerate(resources)
        if not 0 <= spec.weight <= 100
    ]


class Used:
    """One resource: the amount that a pod requests, and the columns of allocatable and requested amounts."""

    __slots__ = ("allocatable", "amount", "requested", "tables", "weight")

    def __init__(self, tables: Tables, name: str, amount: int, weight: int, *, nonzero: bool) -> None:
        number = tables.resource(name)
        self.tables = tables
        self.amount = amount
        self.weight = weight
        self.allocatable: IntColumn = tables.allocatable[number]
        self.requested: IntColumn = tables.requested[number]
        if nonzero and name in (CPU, MEMORY):
            self.requested = tables.nonzero_cpu if name == CPU else tables.nonzero_memory

    @property
    def everywhere(self) -> bool:
        """Whether every node has the resource."""
        return self.tables.everywhere(self.allocatable)


def measured(
    tables: Tables, resources: tuple[ResourceSpec, ...], amounts: dict[str, int], *, nonzero: bool
) -> list[Used]:
    """The resources that are scored: all except unknown ones, and extended ones that the pod does not request."""
    found = []
    for spec in resources:
        amount = amounts.get(spec.name, 0)
        if is_scalar(spec.name):
            if amount == 0:
                continue
        elif spec.name not in (CPU, MEMORY, EPHEMERAL_STORAGE):
            continue
        found.append(Used(tables, spec.name, amount, spec.weight or 1, nonzero=nonzero))
    return found


def key_of(used: Sequence[Used]) -> Hashable:
    """Equal for shapes that are scored by the same columns with the same weights."""
    return tuple((id(each.allocatable), id(each.requested), each.weight) for each in used)


class ResourceScorer(Protocol):
    used: list[Used]

    def score(self, rows: Rows) -> Ints: ...
    def score_row(self, row: int) -> int: ...
    def row_scorer(self) -> Callable[[int], int]: ...


def scorer(tables: Tables, shape: Shape, strategy: ScoringStrategy) -> ResourceScorer:
    # Upstream's scorer ignores pod-level resources of the pending pod (noderesources/fit.go builds it without the
    # feature), and containers without requests count with default amounts.
    pod = shape.pod
    if pod.spec.resources is not None:
        pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=None))
    amounts = in_units(requests_nano(pod, missing=NONZERO))
    used = measured(tables, strategy.resources or DEFAULT_RESOURCES, amounts, nonzero=True)
    if strategy.type == "MostAllocated":
        return _Most(used)
    if strategy.type == "RequestedToCapacityRatio":
        assert strategy.requested_to_capacity_ratio is not None
        return _Ratio(used, strategy.requested_to_capacity_ratio)
    return Least(used)


class _Weighted:
    """The weighted mean of the scores of the resources that a node has."""

    def __init__(self, used: list[Used]) -> None:
        self.used = used
        self._weights = sum(each.weight for each in used)

    def of(self, requested: Ints, capacity: Ints) -> Ints:
        """The score of one resource. `capacity` is above zero; `requested` may be overwritten."""
        raise NotImplementedError

    def score(self, rows: Rows) -> Ints:
        capacities = [each.allocatable.take(rows) for each in self.used]
        if not all(each.everywhere for each in self.used):
            return self._score_partly(rows, capacities)
        total: Ints | None = None
        for each, capacity in zip(self.used, capacities, strict=True):
            requested = each.requested.take(rows)
            requested += each.amount
            part = self.of(requested, capacity)
            if each.weight != 1:
                part *= each.weight
            total = part if total is None else total + part
        if total is None:
            return np.zeros(len(rows), dtype=np.int64)
        total //= self._weights
        return total

    def _score_partly(self, rows: Rows, capacities: list[Ints]) -> Ints:
        """`score` when some nodes lack a resource."""
        total = np.zeros(len(rows), dtype=np.int64)
        weights = np.zeros(len(rows), dtype=np.int64)
        for each, capacity in zip(self.used, capacities, strict=True):
            there = capacity != 0
            part = self.of(each.requested.take(rows) + each.amount, np.where(there, capacity, 1))
            total += np.where(there, part * each.weight, 0)
            weights += np.where(there, each.weight, 0)
        return np.where(weights != 0, total // np.maximum(weights, 1), 0)

    def score_row(self, row: int) -> int:
        return int(self.score(np.array([row]))[0])

    def row_scorer(self) -> Callable[[int], int]:
        """`score_row` as a function that may hold on to the cells of columns."""
        return self.score_row


class Least(_Weighted):
    def of(self, requested: Ints, capacity: Ints) -> Ints:
        free = np.subtract(capacity, requested, out=requested)
        np.maximum(free, 0, out=free)
        free *= MAX_SCORE
        free //= capacity
        return free

    def score_row(self, row: int) -> int:
        return self.row_scorer()(row)

    def row_scorer(self) -> Callable[[int], int]:
        used = [(each.allocatable.cells, each.requested.cells, each.amount, each.weight) for each in self.used]

        def score(row: int) -> int:
            total = weights = 0
            for allocatable, requested, amount, weight in used:
                capacity = allocatable[row]
                if capacity:
                    free = capacity - requested[row] - amount
                    if free > 0:
                        total += free * MAX_SCORE // capacity * weight
                    weights += weight
            return total // weights if weights else 0

        return score


class _Most(_Weighted):
    def of(self, requested: Ints, capacity: Ints) -> Ints:
        return np.minimum(requested, capacity) * MAX_SCORE // capacity

    def score_row(self, row: int) -> int:
        total = weights = 0
        for each in self.used:
            capacity = each.allocatable.cells[row]
            if capacity:
                used = min(each.requested.cells[row] + each.amount, capacity)
                total += used * MAX_SCORE // capacity * each.weight
                weights += each.weight
        return total // weights if weights else 0


class _Ratio:
    """Linear interpolation between the points of the shape. Resources that score 0 do not count; the mean is rounded."""

    def __init__(self, used: list[Used], ratio: RequestedToCapacityRatio) -> None:
        self.used = used
        self._by_percent = scores_by_percent(ratio.shape)

    def score(self, rows: Rows) -> Ints:
        total = np.zeros(len(rows), dtype=np.int64)
        weights = np.zeros(len(rows), dtype=np.int64)
        for each in self.used:
            capacity = each.allocatable.view[rows]
            there = capacity != 0
            capacity = np.where(there, capacity, 1)
            requested = np.minimum(each.requested.view[rows] + each.amount, capacity)
            part = self._by_percent[requested * 100 // capacity]
            counts = there & (part > 0)
            total += np.where(counts, part * each.weight, 0)
            weights += np.where(counts, each.weight, 0)
        divisor = np.maximum(weights, 1)
        return np.where(weights != 0, (2 * total + divisor) // (2 * divisor), 0)  # rounds half up, as math.Round

    def score_row(self, row: int) -> int:
        return int(self.score(np.array([row]))[0])

    def row_scorer(self) -> Callable[[int], int]:
        return self.score_row


def scores_by_percent(shape: tuple[UtilizationPoint, ...]) -> Ints:
    """The score for each utilization from 0 to 100 percent."""
    line = [(point.utilization, point.score * (MAX_SCORE // MAX_CUSTOM_SCORE)) for point in shape]
    return np.array([_on_line(line, percent) for percent in range(101)], dtype=np.int64)


def _on_line(line: list[tuple[int, int]], percent: int) -> int:
    for index, (utilization, score) in enumerate(line):
        if percent <= utilization:
            if index == 0:
                return score
            before, from_score = line[index - 1]
            rise = (score - from_score) * (percent - before)
            # Go truncates towards zero.
            step = abs(rise) // (utilization - before)
            return from_score + (step if rise >= 0 else -step)
    return line[-1][1]
