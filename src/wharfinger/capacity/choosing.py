"""Which nodes to add for the pods that wait: the first that fit, and the cheapest set.

A set of nodes does if the scheduler, with its own scores and in the order of its queue, finds a place for every pod on
them. Sets are tried in the order of what they cost, as long as there are few; larger ones are put together by what a node
holds for its price, and then improved.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.api.views import Pod
from wharfinger.api.wording import counted
from wharfinger.capacity.demand import (
    WaitingDemand,
    cannot_hold,
    cost_of,
    greedy_counts,
    lower_bound,
    measured,
    too_few,
)
from wharfinger.capacity.groups import CapacityGroup, within_limits
from wharfinger.capacity.models import NodeModel
from wharfinger.capacity.new_nodes import NewNodes, pod_title

FIRST_FIT, CHEAPEST, NONE = "first fit", "cheapest", "none"
_SETS = 20_000  # sets of nodes that are looked at in the order of their cost
_MANY = 12  # models above which sets are not tried in order


class NoCapacitySolver(RuntimeError):
    """OR-Tools is not installed."""


@dataclass(slots=True)
class ChosenNode:
    name: str
    model: NodeModel
    pods: list[str] = field(default_factory=list)
    reason: str = ""  # why its first pod fits on no node that exists


@dataclass(slots=True)
class CapacityChoice:
    """A way to serve the pods that wait."""

    title: str
    nodes: list[ChosenNode] = field(default_factory=list)
    unserved: dict[str, str] = field(default_factory=dict)  # pods that get no node, and the reason
    elsewhere: dict[str, str] = field(default_factory=dict)  # pods that go to nodes that exist

    @property
    def cost(self) -> float:
        return sum(node.model.price for node in self.nodes)

    @property
    def worth(self) -> tuple[int, float, int]:
        """The least is the best: first the pods that get no node, then the cost, then the number of nodes."""
        return len(self.unserved), round(self.cost, 9), len(self.nodes)

    def counts(self) -> Counter[tuple[str, str]]:
        """The number of nodes by group and title of the model."""
        return Counter((node.model.group, node.model.title) for node in self.nodes)


@dataclass(frozen=True, slots=True)
class WaitingPod:
    pod: Pod
    reason: str  # why no node that exists takes it


class NodeSearch:
    def __init__(
        self,
        new: NewNodes,
        groups: Sequence[CapacityGroup],
        used: Mapping[str, Mapping[str, int]],
        waiting: Sequence[WaitingPod],
        questions: int = 60_000,
    ) -> None:
        """`used` is what the nodes of each group have, for its limits; `questions` is what the search may spend."""
        self._new = new
        self._groups = groups
        self._used = used
        self._waiting = waiting
        self._reasons = {pod_title(each.pod): each.reason for each in waiting}
        self._questions = questions
        self.models = [model for group in groups for model in group.models]

    # -- the first that fit

    def first_fit(self) -> CapacityChoice:
        """Pod by pod: where there is room already, or else on a new node of the first group that takes it."""
        made = CapacityChoice(FIRST_FIT)
        by_name: dict[str, ChosenNode] = {}
        for each in self._waiting:
            decision = self._new.place(each.pod)
            if decision.node is None:
                chosen = self._open(each.pod, made)
                if chosen is not None:
                    by_name[chosen.name] = chosen
                    made.nodes.append(chosen)
            elif decision.node in by_name:
                by_name[decision.node].pods.append(pod_title(each.pod))
            else:
                made.elsewhere[pod_title(each.pod)] = decision.node
        self._new.clear(0)
        return made

    def _open(self, pod: Pod, made: CapacityChoice) -> ChosenNode | None:
        title, refusals = pod_title(pod), list[str]()
        for group in self._groups:
            for model in group.models:
                what = group.name if len(group.models) == 1 else f"{group.name} {model.title}"
                if not self._allowed(group, [*(node.model for node in made.nodes), model]):
                    refusals.append(f"{what}: at its limit of {_limit(group)}")
                    break
                name = _name(group.name, sum(node.model.group == group.name for node in made.nodes) + 1)
                self._new.add(model, name)
                if self._new.place_on(pod, name):
                    return ChosenNode(name, model, [title], self._reasons[title])
                refusals.append(f"{what}: {self._why(pod, name)}")
                self._new.remove(name)
        made.unserved[title] = "; ".join(refusals) or "no node groups are known"
        return None

    def _why(self, pod: Pod, name: str) -> str:
        if pod.spec.scheduler_name not in self._new.engine.profiles:
            return self._new.decide(pod).error
        explained = self._new.engine.explain(pod)
        refusal = explained.pre_filter or explained.refused.get(name)
        return refusal.message if refusal is not None else "does not help"

    def _allowed(self, group: CapacityGroup, models: Sequence[NodeModel]) -> bool:
        own = [model for model in models if model.group == group.name]
        return within_limits(group, own, self._used.get(group.name, {}))

    # -- the cheapest set

    def cheapest(self, first: CapacityChoice) -> tuple[CapacityChoice, float]:
        """The cheapest set that was found, and what every set costs at least that serves as many pods."""
        demand = self._measured()
        hopeless = {title: why for title, why in first.unserved.items() if title not in self._reasons}
        limited = {title: why for title, why in first.unserved.items() if title not in hopeless}
        best, bound = CapacityChoice(CHEAPEST, first.nodes, limited, first.elsewhere), 0.0
        if demand.classes:
            bound = lower_bound(demand)
            for counts in (greedy_counts(demand, self._room()), self._counts(first)):
                best = self._better(best, counts, demand)
            if len(self.models) <= _MANY:
                best, bound = self._in_order(demand, best, bound)
            best = self._improved(demand, best)
        bound = 0.0 if best.unserved else min(bound, best.cost)
        best.unserved = {**hopeless, **best.unserved}
        return best, bound

    def _measured(self) -> WaitingDemand:
        """What waits. Pods that no model takes are none of the search's concern."""
        demand = measured(self._new, [each.pod for each in self._waiting], self.models)
        self._new.clear(0)
        demand.classes = [each for each in demand.classes if each.models]
        served = {pod_title(pod) for each in demand.classes for pod in each.pods}
        self._waiting = [each for each in self._waiting if pod_title(each.pod) in served]
        self._reasons = {pod_title(each.pod): each.reason for each in self._waiting}
        return demand

    def solved(self, best: CapacityChoice, bound: float, seconds: float, seed: int) -> tuple[CapacityChoice, float]:
        """A cheaper set that CP-SAT finds, or a better bound. Raises NoCapacitySolver."""
        from wharfinger.capacity.cp_sat import cheapest_counts

        if bound >= best.cost - 1e-9:
            return best, bound
        demand = self._measured()
        found = cheapest_counts(demand, self._room(), best.cost, seconds, seed)
        for counts in found.counts:
            best = self._better(best, counts, demand)
        return best, min(max(bound, found.bound), best.cost)

    def _room(self) -> dict[int, int]:
        """How many nodes of each model may be added, as far as a number limits it."""
        room = {group.name: group.room for group in self._groups}
        return {index: most for index, model in enumerate(self.models) if (most := room[model.group]) is not None}

    def _counts(self, choice: CapacityChoice) -> list[int]:
        numbers = Counter(node.model.key for node in choice.nodes)
        return [numbers[model.key] for model in self.models]

    def _permitted(self, counts: Sequence[int]) -> bool:
        for group in self._groups:
            chosen = [model for model, number in zip(self.models, counts, strict=True) for _ in range(number)]
            if not self._allowed(group, chosen):
                return False
        return True

    def apply(self, choice: CapacityChoice) -> None:
        """Leaves the nodes of a choice in the engine, with the pods that they get."""
        self.evaluate(self._counts(choice), kept=True)

    def evaluate(self, counts: Sequence[int], *, kept: bool = False) -> CapacityChoice:
        """What the scheduler does with the pods that wait if there are so many new nodes of each model."""
        made, numbers = CapacityChoice(CHEAPEST), Counter[str]()
        by_name: dict[str, ChosenNode] = {}
        for model, number in zip(self.models, counts, strict=True):
            for _ in range(number):
                numbers[model.group] += 1
                name = _name(model.group, numbers[model.group])
                self._new.add(model, name)
                by_name[name] = ChosenNode(name, model)
        for each in self._waiting:
            self._serve(each, by_name, made)
        if not kept:
            self._new.clear(0)
        made.nodes = [node for node in by_name.values() if node.pods]
        return made

    def _serve(self, waiting: WaitingPod, by_name: Mapping[str, ChosenNode], made: CapacityChoice) -> None:
        title, decision = pod_title(waiting.pod), self._new.place(waiting.pod)
        if decision.node is None:
            made.unserved[title] = decision.message
        elif decision.node not in by_name:
            made.elsewhere[title] = decision.node
        else:
            node = by_name[decision.node]
            node.pods.append(title)
            node.reason = node.reason or waiting.reason

    def _better(self, best: CapacityChoice, counts: Sequence[int], demand: WaitingDemand) -> CapacityChoice:
        """The better of the best choice so far and that with so many nodes."""
        if not self._permitted(counts) or (not best.unserved and cost_of(demand, counts) > best.cost):
            return best
        made = self.evaluate(counts)
        made.unserved = {title: best.unserved.get(title, why) for title, why in made.unserved.items()}
        return made if made.worth < best.worth else best

    def _in_order(self, demand: WaitingDemand, best: CapacityChoice, bound: float) -> tuple[CapacityChoice, float]:
        """Tries sets in the order of their cost. All that are ruled out by numbers alone raise the bound."""
        ruled_out = True
        for counts in _sets([model.price for model in self.models], _SETS):
            cost = cost_of(demand, counts)
            if cost >= best.cost - 1e-9 and not best.unserved:
                return best, max(bound, best.cost) if ruled_out else bound
            if not self._permitted(counts):
                continue
            if not best.unserved and (cost < bound - 1e-9 or too_few(demand, counts)):
                continue
            if not best.unserved and ruled_out and cannot_hold(demand, counts):
                continue
            if ruled_out:
                bound, ruled_out = max(bound, cost), False
            best = self._better(best, counts, demand)
            if self._new.questions > self._questions:
                break
        return best, bound

    def _improved(self, demand: WaitingDemand, best: CapacityChoice) -> CapacityChoice:
        """Leaves out nodes, and replaces one or two by cheaper ones, as long as that helps."""
        while self._new.questions < self._questions:
            for counts in _neighbours(self._counts(best), [model.price for model in self.models]):
                if not best.unserved and too_few(demand, counts):
                    continue
                made = self._better(best, counts, demand)
                if made is not best:
                    best = made
                    break
                if self._new.questions > self._questions:
                    return best
            else:
                return best
        return best


def _name(group: str, number: int) -> str:
    return f"{group}-new-{number}"


def _limit(group: CapacityGroup) -> str:
    if group.max_size is not None:
        return counted(group.max_size, "node")
    return ", ".join(sorted(group.limits))


def _sets(prices: Sequence[float], most: int) -> Iterator[tuple[int, ...]]:
    """How many nodes of each model, in the order of the cost, beginning with none at all."""
    heap = [(0.0, (0,) * len(prices))]
    for _ in range(most):
        if not heap:
            return
        cost, counts = heapq.heappop(heap)
        yield counts
        last = max((index for index, number in enumerate(counts) if number), default=0)
        for index in range(last, len(prices)):
            more = (*counts[:index], counts[index] + 1, *counts[index + 1 :])
            heapq.heappush(heap, (cost + prices[index], more))


def _neighbours(counts: Sequence[int], prices: Sequence[float]) -> Iterator[tuple[int, ...]]:
    """Sets that cost less: without a node, with a cheaper one instead, with one instead of two, or two instead of one."""
    present = [index for index, number in enumerate(counts) if number]
    for index in sorted(present, key=lambda index: -prices[index]):
        yield _changed(counts, (index,), ())
    for index in present:
        for other, price in enumerate(prices):
            if price < prices[index]:
                yield _changed(counts, (index,), (other,))
            if 2 * price < prices[index]:
                yield _changed(counts, (index,), (other, other))
    for place, one in enumerate(present):
        for two in present[place:]:
            if one == two and counts[one] < 2:
                continue
            for other, price in enumerate(prices):
                if price < prices[one] + prices[two] and other not in (one, two):
                    yield _changed(counts, (one, two), (other,))


def _changed(counts: Sequence[int], without: Sequence[int], with_: Sequence[int]) -> tuple[int, ...]:
    made = list(counts)
    for index in without:
        made[index] -= 1
    for index in with_:
        made[index] += 1
    return tuple(made)
