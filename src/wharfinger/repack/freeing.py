"""Frees nodes: which of them, and where their pods go.

Sets of nodes are tried in the order of what it costs to empty them, so the first set that can be emptied is the best,
and what came before it is a bound. Pods of a set go to the tightest node that takes them. Where that fails, other
orders are tried, then a bounded search through all choices, then moving other pods out of the way.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from wharfinger.framework.columns import Bools
from wharfinger.repack.movable import MovablePod
from wharfinger.repack.trial import Step, Trial

_SHOWN = 10  # pods without room that are named
_CHAIN = 2  # how many other pods may have to leave, one for the other, before a pod finds room


@dataclass(slots=True)
class Effort:
    """What a search may spend, counted in questions to the engine so that equal input gives equal output."""

    questions: int = 60_000
    sets: int = 4_000
    for_a_set: int = 1_500  # questions for choosing among all placements of one set


@dataclass(slots=True)
class FreedNodes:
    """What was found. `bound` is the least that any plan costs; without `freed`, `blocked` says what stands in the way."""

    steps: list[Step] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)
    cost: float = 0.0
    bound: float = 0.0
    blocked: list[str] = field(default_factory=list)


def free_nodes(trial: Trial, number: int, names: Sequence[str], effort: Effort) -> FreedNodes:
    """Frees `number` of the named nodes."""
    if not number:
        return FreedNodes()
    candidates, refusal = why_too_few(trial, number, names)
    if refusal:
        return FreedNodes(blocked=refusal)
    costs = {name: sum(pod.cost for pod in trial.on[name].values()) for name in candidates}
    strains = {name: sum(pod.strain for pod in trial.on[name].values()) for name in candidates}
    candidates.sort(key=lambda name: (costs[name], strains[name], name))
    search = NodeEmptying(trial, costs, effort)
    found = FreedNodes(bound=-1.0)
    for chosen in _sets([(costs[name], strains[name]) for name in candidates], number, effort.sets):
        freed = [candidates[index] for index in chosen]
        cost = sum(costs[name] for name in freed)
        if found.freed and cost >= found.cost:
            break
        if search.too_large(freed):
            continue
        if found.bound < 0:
            found.bound = cost  # all cheaper sets cannot be emptied, whatever else is moved
        most = found.cost - cost if found.freed else float("inf")
        steps = search.empty(freed, most)
        if steps is not None:
            found.steps, found.freed = steps, freed
            found.cost = sum(trial.pods.movable[key].cost for key, _, _ in steps)
        if trial.work > effort.questions:
            break
    if not found.freed:
        found = _greedily(trial, candidates, number, search, max(found.bound, 0.0))
    if not found.freed:
        found.blocked = [*why_no_room(trial, candidates, number), *why_not_free(trial, names).values()]
    found.bound = min(max(found.bound, 0.0), found.cost)
    return found


class NodeEmptying:
    """Finds places for the pods of nodes that are to be emptied."""

    def __init__(self, trial: Trial, costs: dict[str, float], effort: Effort) -> None:
        self.trial = trial
        self.costs = costs
        self.effort = effort
        tables = trial.tables
        self._charges = {key: dict(trial.charge(pod.pod)) for key, pod in trial.pods.movable.items()}
        rows = tables.rows
        usable = rows[~tables.unschedulable[rows]]
        self._free = {
            tables.name(row): {
                number: int(tables.allocatable[number].cells[row]) - int(tables.requested[number].cells[row])
                for number in range(len(tables.resource_names))
            }
            for row in usable.tolist()
        }
        self._total: dict[int, int] = {}
        for free in self._free.values():
            for number, amount in free.items():
                self._total[number] = self._total.get(number, 0) + max(amount, 0)
        self._demand = {name: self._demand_of(name) for name in costs}

    def _demand_of(self, name: str) -> dict[int, int]:
        demand: dict[int, int] = {}
        for key in self.trial.on[name]:
            for number, amount in self._charges[key].items():
                demand[number] = demand.get(number, 0) + amount
        return demand

    def too_large(self, names: Sequence[str]) -> bool:
        """Whether the other nodes together have less room than the pods need, so that no plan can free these."""
        demand: dict[int, int] = {}
        for name in names:
            for number, amount in self._demand[name].items():
                demand[number] = demand.get(number, 0) + amount
        if not demand:
            return False
        for number, amount in demand.items():
            lost = sum(max(self._free[name].get(number, 0), 0) for name in names if name in self._free)
            if amount > self._total.get(number, 0) - lost:
                return True
        return False

    def empty(self, names: Sequence[str], most: float) -> list[Step] | None:
        """Steps after which the nodes are empty, with less than `most` spent on other pods. The trial is as before."""
        trial = self.trial
        mark = len(trial.steps)
        closed = trial.mask(names)
        pods = [pod for name in names for pod in trial.on[name].values()]
        pods.sort(key=lambda pod: (-trial.size(pod), pod.key))
        found = trial.move_all(pods, closed) or self._hardest_first(pods, closed) or self.any_way(pods, closed)
        found = found or (most > 0 and self._with_chains(pods, closed, most))
        steps = trial.taken_back(mark)
        return steps if found else None

    def _hardest_first(self, pods: Sequence[MovablePod], closed: Bools) -> bool:
        """Those first that have the fewest nodes to go to."""
        choices = {pod.key: len(self.trial.targets(pod, closed)) for pod in pods}
        if not all(choices.values()):
            return False
        return self.trial.move_all(sorted(pods, key=lambda pod: choices[pod.key]), closed)

    def any_way(self, pods: Sequence[MovablePod], closed: Bools) -> bool:
        """Searches all choices, within limits: depth first, tightest node first, one of several equal nodes."""
        trial = self.trial
        until = trial.work + self.effort.for_a_set

        def place(index: int) -> bool:
            if index == len(pods):
                return True
            pod, seen = pods[index], set[tuple[int, ...]]()
            for row in trial.tightest(pod, trial.targets(pod, closed)).tolist():
                state = self._room(row)
                if state in seen and not trial.on[trial.tables.name(row)]:
                    continue  # an empty node like one that was tried
                seen.add(state)
                if trial.work > until:
                    return False
                mark = len(trial.steps)
                trial.move(pod, trial.tables.name(row))
                if place(index + 1):
                    return True
                trial.back(mark)
            return False

        return len(pods) <= 200 and place(0)  # deeper than that, the limit is reached without having tried much

    def _room(self, row: int) -> tuple[int, ...]:
        tables = self.trial.tables
        return tuple(
            int(tables.allocatable[number].cells[row]) - int(tables.requested[number].cells[row])
            for number in range(len(tables.resource_names))
        )

    def _with_chains(self, pods: Sequence[MovablePod], closed: Bools, most: float) -> bool:
        trial = self.trial
        mark = len(trial.steps)
        own = {pod.key for pod in pods}
        for pod in pods:
            if not self.settle(pod, closed) or self._spent(mark, own) >= most:
                trial.back(mark)
                return False
        return True

    def _spent(self, mark: int, own: set[tuple[str, str]]) -> float:
        others = {key for key, _, _ in self.trial.steps[mark:]} - own
        return sum(self.trial.pods.movable[key].cost for key in others)

    def settle(self, pod: MovablePod, closed: Bools, depth: int = _CHAIN) -> bool:
        """Moves a pod to an open node, if need be after moving another pod away from there."""
        trial, tables = self.trial, self.trial.tables
        rows = trial.targets(pod, closed)
        if len(rows):
            trial.move(pod, trial.fullest(pod.pod, rows))
            return True
        if not depth or trial.work > self.effort.questions:
            return False
        charge = self._charges[pod.key]
        for lacking, row in self._nearest(pod, closed):
            here = tables.name(row)
            for other in sorted(trial.on[here].values(), key=lambda each: (trial.size(each), each.key)):
                given = self._charges[other.key]
                if any(given.get(number, 0) < amount for number, amount in lacking.items()):
                    continue
                if all(given.get(number, 0) >= amount for number, amount in charge.items()) and depth < _CHAIN:
                    continue  # it needs as much room as the pod itself
                mark = len(trial.steps)
                kept = closed[row]
                closed[row] = True
                settled = self.settle(other, closed, depth - 1)
                closed[row] = kept
                if settled and row in trial.targets(pod, closed):
                    trial.move(pod, here)
                    return True
                trial.back(mark)
                if trial.work > self.effort.questions:
                    return False
        return False

    def _nearest(self, pod: MovablePod, closed: Bools) -> Iterator[tuple[dict[int, int], int]]:
        """Open nodes that lack resources, with what they lack, those that lack least first."""
        tables = self.trial.tables
        found = []
        for row in tables.rows.tolist():
            if closed[row] or tables.unschedulable[row] or tables.name(row) == self.trial.at[pod.key]:
                continue
            short = self.trial.lacking(self._charges[pod.key].items(), row)
            if short is not None:
                found.append((short[0], row, short[1]))
        found.sort(key=lambda each: each[:2])
        for _, row, lacking in found[:32]:
            yield lacking, row


def _greedily(trial: Trial, candidates: Sequence[str], number: int, search: NodeEmptying, bound: float) -> FreedNodes:
    """Empties one node after the other, the cheapest first, until there are enough."""
    mark = len(trial.steps)
    freed: list[str] = []
    used: set[str] = set()  # nodes that took pods: emptying these would move pods twice
    for spare in (2 * number, number, 0):
        kept_free = set(candidates[:spare])
        for name in candidates:
            if len(freed) == number:
                break
            if name in freed or name in used:
                continue
            closed = trial.mask({*freed, *(kept_free - used), name})
            before = len(trial.steps)
            pods = sorted(trial.on[name].values(), key=lambda pod: (-trial.size(pod), pod.key))
            if trial.move_all(pods, closed) or search.any_way(pods, closed):
                freed.append(name)
                used |= {target for _, _, target in trial.steps[before:]}
    steps = trial.taken_back(mark)
    if len(freed) < number:
        return FreedNodes(bound=bound)
    cost = sum(trial.pods.movable[key].cost for key, _, _ in steps)
    return FreedNodes(steps, freed, cost, bound)


def _sets(weights: Sequence[tuple[float, float]], number: int, most: int) -> Iterator[tuple[int, ...]]:
    """Sets of `number` indices in the order of their total cost and then of their strain; `weights`, which has both for
    each index, is sorted."""
    first = tuple(range(number))
    heap = [(sum(cost for cost, _ in weights[:number]), sum(strain for _, strain in weights[:number]), first)]
    seen = {first}
    for _ in range(most):
        if not heap:
            return
        cost, strain, chosen = heapq.heappop(heap)
        yield chosen
        for place, index in enumerate(chosen):
            after = index + 1
            if after == len(weights) or after in chosen:
                continue
            other = (*chosen[:place], after, *chosen[place + 1 :])
            if other not in seen:
                seen.add(other)
                (old_cost, old_strain), (new_cost, new_strain) = weights[index], weights[after]
                heapq.heappush(heap, (cost - old_cost + new_cost, strain - old_strain + new_strain, other))


def why_too_few(trial: Trial, number: int, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The nodes that may be freed, and if these are too few what stands in the way on the others."""
    blocking = why_not_free(trial, names)
    candidates = [name for name in names if name not in blocking]
    if len(candidates) >= number:
        return candidates, []
    head = f"{number} nodes are to be freed, but only {len(candidates)} of {len(names)} could be"
    return candidates, [head, *blocking.values()]


def why_not_free(trial: Trial, names: Sequence[str]) -> dict[str, str]:
    """Those of the nodes that cannot be freed, each with the first pod that has to stay."""
    found, wanted = dict[str, str](), set(names)
    for pod in trial.pods.fixed.values():
        if pod.node in wanted and pod.node not in found:
            found[pod.node] = f"{pod.node}: {pod.what} cannot be moved: {pod.why}"
    return found


def why_no_room(trial: Trial, candidates: Sequence[str], number: int) -> list[str]:
    """What is lacking if the cheapest nodes are to be freed."""
    costs = {name: sum(pod.cost for pod in trial.on[name].values()) for name in candidates}
    chosen = sorted(candidates, key=lambda name: (costs[name], name))[:number]
    closed = trial.mask(chosen)
    found: list[str] = []
    mark = len(trial.steps)
    for name in chosen:
        for pod in sorted(trial.on[name].values(), key=lambda pod: (-trial.size(pod), pod.key)):
            rows = trial.targets(pod, closed)
            if len(rows):
                trial.move(pod, trial.fullest(pod.pod, rows))
            else:
                found.append(f"{name}: {pod.name} finds no room on another node")
    trial.back(mark)
    if len(found) > _SHOWN:
        found[_SHOWN:] = [f"and {len(found) - _SHOWN} more pods find no room"]
    return found or ["no combination of moves was found"]
