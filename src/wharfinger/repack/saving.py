"""Frees the nodes that cost most: as much money per hour as possible, with few moves.

Nodes are emptied one after the other, in several orders, and the best outcome counts. The bound is what could be saved if
pods could be cut into pieces: the nodes that stay must have as much of each resource as all pods need together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.repack.freeing import Effort, NodeEmptying, why_not_free
from wharfinger.repack.trial import Step, Trial

_CLOSE = 1e-9
_SUMS = 20_000  # that are looked at


@dataclass(slots=True)
class SavedNodes:
    """What was found; `most` is what no plan can exceed."""

    steps: list[Step] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)
    saved: float = 0.0  # per hour
    most: float = 0.0
    cost: float = 0.0  # of the moves
    blocked: list[str] = field(default_factory=list)


def free_dearest(trial: Trial, prices: Mapping[str, float], names: Sequence[str], effort: Effort) -> SavedNodes:
    """Frees those of the named nodes that save most; nodes without a price save nothing."""
    blocking = why_not_free(trial, names)
    candidates = [name for name in names if name not in blocking and prices.get(name, 0.0) > 0]
    costs = {name: sum(pod.cost for pod in trial.on[name].values()) for name in candidates}
    search = NodeEmptying(trial, costs, effort)
    found = SavedNodes()
    for order in _orders(prices, costs):
        made = _one_by_one(trial, sorted(candidates, key=order), prices, search, effort)
        if (-made.saved, made.cost) < (-found.saved - _CLOSE, found.cost) or not found.freed:
            found = made
        if trial.work > effort.questions // 6:
            break  # in a large cluster one order has to do
    found.most = max(_most_saved(trial, prices, candidates), found.saved)
    if not found.freed:
        found.blocked = [*_why_nothing(candidates, prices, names), *blocking.values()]
    return found


def _orders(prices: Mapping[str, float], costs: Mapping[str, float]) -> Iterable[Callable[[str], tuple[float, str]]]:
    yield lambda name: (costs[name] / prices[name], name)  # the most money for a move
    yield lambda name: (-prices[name], name)
    yield lambda name: (costs[name], name)


def _one_by_one(
    trial: Trial, candidates: Sequence[str], prices: Mapping[str, float], search: NodeEmptying, effort: Effort
) -> SavedNodes:
    mark = len(trial.steps)
    freed: list[str] = []
    for name in candidates:
        if trial.work > effort.questions // 2:
            break
        if search.too_large([*freed, name]):
            continue
        closed = trial.mask({*freed, name})
        pods = sorted(trial.on[name].values(), key=lambda pod: (-trial.size(pod), pod.key))
        if trial.move_all(pods, closed) or (len(pods) <= 30 and search.any_way(pods, closed)):
            freed.append(name)
    steps = trial.taken_back(mark)
    cost = sum(trial.pods.movable[key].cost for key, _, _ in steps)
    return SavedNodes(steps, freed, sum(prices[name] for name in freed), 0.0, cost)


def _most_saved(trial: Trial, prices: Mapping[str, float], candidates: Sequence[str]) -> float:
    """The least over all resources of what could be saved if only that resource mattered and nodes could be freed in
    part."""
    tables, best = trial.tables, sum(prices[name] for name in candidates)
    rows = [row for row in tables.rows.tolist() if not tables.unschedulable[row]]
    for number in range(len(tables.resource_names)):
        spare = sum(
            max(int(tables.allocatable[number].cells[row]) - int(tables.requested[number].cells[row]), 0)
            for row in rows
        )
        # A freed node takes its room with it, and its movable pods need room elsewhere.
        sizes = {name: _taken_along(trial, number, name) for name in candidates}
        saved = 0.0
        for name in sorted(candidates, key=lambda name: sizes[name] / prices[name]):
            if sizes[name] > spare:
                saved += prices[name] * spare / sizes[name]
                break
            spare -= sizes[name]
            saved += prices[name]
        best = min(best, saved)
    return _reachable(best + _CLOSE, Counter(prices[name] for name in candidates))


def _reachable(bound: float, numbers: Mapping[float, int]) -> float:
    """The largest sum of prices that is not above the bound: nodes are freed as a whole. `numbers` says how many nodes
    have each price."""
    sums = {0.0}
    for price, number in numbers.items():
        sums |= {round(total + count * price, 9) for total in sums for count in range(1, number + 1)}
        sums = {total for total in sums if total <= bound}
        if len(sums) > _SUMS:
            return bound
    return max(sums)


def _taken_along(trial: Trial, number: int, name: str) -> int:
    """What the cluster loses of a resource if a node is freed: the free part of it, and what its pods need again."""
    tables = trial.tables
    row = tables.row_of[name]
    free = int(tables.allocatable[number].cells[row]) - int(tables.requested[number].cells[row])
    needed = sum(dict(trial.charge(pod.pod)).get(number, 0) for pod in trial.on[name].values())
    return max(free, 0) * (not tables.unschedulable[row]) + needed


def _why_nothing(candidates: Sequence[str], prices: Mapping[str, float], names: Sequence[str]) -> list[str]:
    if not any(prices.get(name, 0.0) > 0 for name in names):
        return ["none of the nodes has a price"]
    if not candidates:
        return ["every node with a price has a pod that has to stay"]
    return ["the pods of no node find room on the others"]
