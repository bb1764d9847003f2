"""What waits, as numbers: pods of equal needs together, and what a new node of each model offers them.

The numbers are necessary conditions: a set of nodes that they rule out cannot run the pods, whatever the scheduler does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wharfinger.api.views import Pod
from wharfinger.capacity.models import NodeModel
from wharfinger.capacity.new_nodes import NewNodes
from wharfinger.engine.evaluation import active_filters
from wharfinger.framework.plugin import Scope

PROBE = "probe"
_MOST = 512  # pods of one kind that are tried on one node
_DEVICES = ("DynamicResources", "resourceclass")  # plugins whose answers do not depend on other new nodes


@dataclass(slots=True)
class PodClass:
    """Pods that are alike. `most` has, for each model by index, how many fit on one new node; the numbers are exact
    unless where the pods may go depends on pods elsewhere."""

    pods: list[Pod]
    needs: dict[int, int]  # by resource number
    most: dict[int, int] = field(default_factory=dict)
    exact: bool = True
    elsewhere: bool = False  # an existing node might take one of them once there are new nodes

    @property
    def models(self) -> list[int]:
        return [index for index, number in self.most.items() if number]


@dataclass(slots=True)
class WaitingDemand:
    models: list[NodeModel]
    classes: list[PodClass]
    room: list[dict[int, int]] = field(default_factory=list)  # of a new node, by model and resource

    @property
    def pods(self) -> int:
        return sum(len(each.pods) for each in self.classes)


def measured(new: NewNodes, pods: Sequence[Pod], models: Sequence[NodeModel]) -> WaitingDemand:
    """Sorts the pods into classes and fills an empty new node of each model with each of them."""
    tables = new.engine.tables
    by_shape: dict[int, PodClass] = {}
    for pod in pods:
        shape = tables.shapes.of(pod)
        if id(shape) not in by_shape:
            by_shape[id(shape)] = PodClass([], dict(tables.charge(shape)))
        by_shape[id(shape)].pods.append(pod)
    found = WaitingDemand(list(models), list(by_shape.values()))
    mark = new.mark()
    for each in found.classes:
        each.exact, each.elsewhere = _is_exact(new, each.pods[0]), _may_go_elsewhere(new, each)
    for index, model in enumerate(models):
        new.add(model, PROBE)
        row = tables.row_of[PROBE]
        found.room.append(
            {
                number: int(tables.allocatable[number].cells[row]) - int(tables.requested[number].cells[row])
                for number in range(len(tables.resource_names))
            }
        )
        for each in found.classes:
            each.most[index] = _fill(new, each)
            new.back(mark)
        new.remove(PROBE)
    return found


def _fill(new: NewNodes, of: PodClass) -> int:
    """How many pods of the class the new node takes, with what is elsewhere."""
    count = 0
    for pod in of.pods[:_MOST]:
        if not new.place_on(pod, PROBE):
            break
        count += 1
    return count


def _is_exact(new: NewNodes, pod: Pod) -> bool:
    profile = new.engine.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        return False
    filters = active_filters(profile.answers_for(pod).prepared)
    return all(each.scope is not Scope.CLUSTER or name in _DEVICES for name, each in filters)


def _may_go_elsewhere(new: NewNodes, of: PodClass) -> bool:
    """Whether only where other pods are keeps the pods from an existing node, as affinities and spread do."""
    tables, pod = new.engine.tables, of.pods[0]
    profile = new.engine.profiles.get(pod.spec.scheduler_name)
    if profile is None or of.exact:
        return False
    prepared = profile.answers_for(pod).prepared
    if prepared.refusal is not None:
        return True
    rows = tables.rows
    for _, each in active_filters(prepared):
        if each.scope is not Scope.CLUSTER and len(rows):
            rows = rows[each.filter(rows) == 0]
    return bool(len(rows))


def too_few(demand: WaitingDemand, counts: Sequence[int]) -> bool:
    """Whether so many nodes of each model cannot hold the pods, whatever the scheduler does."""
    waiting = [each for each in demand.classes if each.models and not each.elsewhere]
    for each in waiting:
        if each.exact and sum(counts[model] * each.most[model] for model in each.models) < _within(each, demand):
            return True
    for models in {tuple(each.models) for each in waiting}:
        inside = set(models)
        held: dict[int, int] = {}
        for each in waiting:
            if inside.issuperset(each.models):
                for number, amount in each.needs.items():
                    held[number] = held.get(number, 0) + amount * len(each.pods)
        for number, amount in held.items():
            if sum(counts[model] * max(demand.room[model].get(number, 0), 0) for model in models) < amount:
                return True
    return False


def _within(each: PodClass, demand: WaitingDemand) -> int:
    """The number of pods, unless a node may take more of them than were tried."""
    return len(each.pods) if all(each.most[model] < _MOST for model in each.models) else 0


def cannot_hold(demand: WaitingDemand, counts: Sequence[int], limit: int = 20_000) -> bool:
    """Whether a search through all ways to put the pods on so many nodes finds none. False if it gives up before."""
    waiting = [each for each in demand.classes if each.models and not each.elsewhere]
    nodes = [model for model, number in enumerate(counts) for _ in range(number)]
    nodes.sort(key=lambda model: sum(bool(each.most[model]) for each in waiting))
    seen: set[tuple[int, tuple[int, ...]]] = set()

    def held(place: int, left: tuple[int, ...]) -> bool | None:
        if not any(left):
            return True
        if place == len(nodes) or (place, left) in seen:
            return False
        seen.add((place, left))
        for taken in _patterns(demand, waiting, nodes[place], left):
            if len(seen) > limit:
                return None
            found = held(place + 1, tuple(number - took for number, took in zip(left, taken, strict=True)))
            if found is not False:
                return found
        return False

    return len(nodes) <= 50 and held(0, tuple(len(each.pods) for each in waiting)) is False


def _patterns(
    demand: WaitingDemand, waiting: Sequence[PodClass], model: int, left: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """How many pods of each class a node can hold together, where no other pod would fit."""

    def fill(index: int, room: dict[int, int]) -> Iterator[tuple[int, ...]]:
        if index == len(waiting):
            yield ()
            return
        each = waiting[index]
        most = min(left[index], _most_in(each, model, room))
        for number in range(most, -1, -1) if index + 1 < len(waiting) else (most,):
            rest = {resource: amount - number * each.needs.get(resource, 0) for resource, amount in room.items()}
            for others in fill(index + 1, rest):
                yield (number, *others)

    yield from fill(0, {number: max(amount, 0) for number, amount in demand.room[model].items()})


def _most_in(each: PodClass, model: int, room: Mapping[int, int]) -> int:
    if not each.most[model]:
        return 0
    most = each.most[model] if each.exact and each.most[model] < _MOST else len(each.pods)
    return min([most, *(room.get(number, 0) // amount for number, amount in each.needs.items() if amount)])


def lower_bound(demand: WaitingDemand) -> float:
    """What every set of nodes that runs the pods costs at least.

    A node that holds pods is filled to at most 1 in each of its resources, so also in every weighted mean of them. A pod
    therefore costs at least its weighted share of the cheapest model for it. The weights, one set for each model, are
    improved step by step; every step gives a bound, and the best of them counts.
    """
    waiting = [each for each in demand.classes if each.models and not each.elsewhere]
    if not waiting:
        return 0.0
    prices = np.array([model.price for model in demand.models])
    shares = _shares(demand, waiting)  # [class, model, measure]
    numbers = np.array([len(each.pods) for each in waiting], dtype=np.float64)
    possible = np.array([[bool(each.most[model]) for model in range(len(prices))] for each in waiting])
    logits = np.zeros(shares.shape[1:])
    best = 0.0
    for step in range(1, 301):
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        costs = np.where(possible, prices * np.einsum("cmr,mr->cm", shares, weights), np.inf)
        chosen = costs.argmin(axis=1)
        best = max(best, float((numbers * costs[np.arange(len(waiting)), chosen]).sum()))
        gradient = np.zeros_like(weights)
        np.add.at(gradient, chosen, shares[np.arange(len(waiting)), chosen] * numbers[:, None])
        largest = gradient.max()
        if largest <= 0:
            break
        logits += gradient / largest * (4.0 / step**0.5)
    return _reachable(best - 1e-9, sorted({float(price) for price in prices}))


def _shares(demand: WaitingDemand, waiting: Sequence[PodClass]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """How much of a node of each model a pod of each class takes, by resource and, where that is exact, by how many of
    the class fit."""
    resources = sorted({number for each in waiting for number in each.needs})
    found = np.zeros((len(waiting), len(demand.models), len(resources) + len(waiting)))
    for index, each in enumerate(waiting):
        for model in each.models:
            for place, number in enumerate(resources):
                room = demand.room[model].get(number, 0)
                found[index, model, place] = each.needs.get(number, 0) / room if room > 0 else 0.0
            if each.exact and each.most[model] < min(_MOST, len(each.pods)):
                found[index, model, len(resources) + index] = 1 / each.most[model]
    return found


def _reachable(bound: float, prices: Sequence[float]) -> float:
    """The least sum of prices that is not below the bound: nodes are bought whole."""
    if bound <= 0 or not prices or prices[0] <= 0:
        return max(bound, 0.0)
    sums, most = {0.0}, bound + prices[-1]
    for price in prices:
        more = set(sums)
        for total in sums:
            while (total := round(total + price, 9)) < most:
                more.add(total)
                if len(more) > 20_000:
                    return bound
        sums = more
    return min((total for total in sums if total >= bound), default=bound)


def cost_of(demand: WaitingDemand, counts: Sequence[int]) -> float:
    return sum(number * model.price for number, model in zip(counts, demand.models, strict=True))


def greedy_counts(demand: WaitingDemand, room: Mapping[int, int]) -> list[int]:
    """A number of nodes of each model that should do: again and again the model that takes most for its price. `room` is
    how many nodes of a model may be added."""
    left = [len(each.pods) if each.models else 0 for each in demand.classes]
    weights = _weights(demand)
    counts = [0] * len(demand.models)
    while any(left):
        best: tuple[float, int, list[int]] | None = None
        for index, model in enumerate(demand.models):
            if counts[index] >= room.get(index, 10**9):
                continue
            taken = _packed(demand, index, left)
            worth = sum(number * weight for number, weight in zip(taken, weights, strict=True))
            if worth and (best is None or (model.price / worth, index) < best[:2]):
                best = (model.price / worth, index, taken)
        if best is None:
            break
        _, index, taken = best
        times = max(1, min(number // took for number, took in zip(left, taken, strict=True) if took))
        times = min(times, room.get(index, 10**9) - counts[index])
        counts[index] += times
        left = [number - times * took for number, took in zip(left, taken, strict=True)]
    return counts


def _weights(demand: WaitingDemand) -> list[float]:
    """What a pod of each class is worth: its largest share of the node of which it takes least."""
    return [min((_share(demand, each, model) for model in each.models), default=0.0) for each in demand.classes]


def _share(demand: WaitingDemand, each: PodClass, model: int) -> float:
    room = demand.room[model]
    shares = [amount / room[number] for number, amount in each.needs.items() if room.get(number, 0) > 0]
    if each.most[model] < len(each.pods):
        shares.append(1 / each.most[model])
    return max(shares, default=0.0) + 1e-6


def _packed(demand: WaitingDemand, index: int, left: Sequence[int]) -> list[int]:
    """How many pods of each class one node takes, the largest first."""
    room, taken = dict(demand.room[index]), [0] * len(left)
    order = sorted(range(len(left)), key=lambda each: demand.classes[each].most.get(index, 0))
    used = 0.0  # of what is counted in pods alone, such as devices
    for each in order:
        of = demand.classes[each]
        most = of.most.get(index, 0)
        if not most or not left[each]:
            continue
        number = min(left[each], int(most * (1.0 - used) + 1e-9) if not of.needs else most)
        for resource, amount in of.needs.items():
            number = min(number, max(room.get(resource, 0), 0) // amount)
        for resource, amount in of.needs.items():
            room[resource] = room.get(resource, 0) - number * amount
        taken[each] = number
        used += number / most if not of.needs else 0.0
    return taken
