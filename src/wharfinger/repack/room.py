"""Makes room for pods that wait: the fewest moves after which each has a node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import msgspec

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views import Pod
from wharfinger.engine.evaluation import active_filters
from wharfinger.framework.plugin import Scope
from wharfinger.repack.freeing import Effort, NodeEmptying
from wharfinger.repack.movable import MovablePod
from wharfinger.repack.trial import Step, Trial, replay

_MOST = 4  # pods that leave one node, of which all combinations are tried
_TRIED = 400  # combinations of pods on one node
_NODES = 32  # from which any number of pods may leave

_NearNode = tuple[float, str, dict[int, int]]
"""The share of a node that is lacking, its name, and the resources that it lacks."""
_Moved = tuple[MovablePod, str]
"""A pod and its target."""
_Cleared = tuple[tuple[float, float], str, list[_Moved]]
"""What a way costs, the node, and the moves."""


@dataclass(slots=True)
class RoomMade:
    """`started` has the node of each pod that starts, with and without moves; `blocked` the pods that do not."""

    steps: list[Step] = field(default_factory=list)
    started: dict[ObjectKey, str] = field(default_factory=dict)
    at_once: dict[ObjectKey, str] = field(default_factory=dict)  # those that need no move
    cost: float = 0.0
    bound: float = 0.0
    blocked: list[str] = field(default_factory=list)


def make_room(trial: Trial, waiting: Sequence[Pod], effort: Effort) -> RoomMade:
    """Places the waiting pods: the most important and then the largest first, or all that fit at once before the others,
    whichever is better."""
    bound = max((_least(trial, pod, alone=len(waiting) == 1) for pod in waiting), default=0.0)
    order = sorted(waiting, key=lambda pod: (-(pod.spec.priority or 0), -_size(trial, pod), pod.metadata.key))
    best: RoomMade | None = None
    for fitting_first in (True, False):
        found = _made(trial, order, effort, fitting_first=fitting_first)
        if best is None or (len(found.blocked), found.cost) < (len(best.blocked), best.cost):
            best = found
        if not best.blocked and best.cost <= bound:
            break
    assert best is not None
    best.at_once = start_on(trial, [pod for pod in order if pod.metadata.key in best.started], best.started, best.steps)
    best.bound = min(bound, best.cost)
    return best


def _made(trial: Trial, order: Sequence[Pod], effort: Effort, *, fitting_first: bool) -> RoomMade:
    """One way to place the pods; the trial is as before."""
    found, search = RoomMade(), NodeEmptying(trial, {}, effort)
    if fitting_first:
        found.started = _start_fitting(trial, order)
    for pod in order:
        if pod.metadata.key in found.started:
            continue
        rows = trial.rows_for(pod)
        if len(rows):
            _start(trial, pod, trial.fullest(pod, rows), found)
            continue
        if not _clear(trial, pod, search, found):
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            possible = "no combination of moves was found that clears a node for it"
            found.blocked.append(
                f"{name}: {possible if _nearest(trial, pod) else 'it fits on no node, even an empty one'}"
            )
    found.steps = list(trial.steps)
    found.cost = sum(trial.pods.movable[key].cost for key, _, _ in found.steps)
    trial.back(0)
    for pod in order:
        if pod.metadata.key in found.started:
            _take_off(trial, pod)
    return found


def start_on(
    trial: Trial, pods: Sequence[Pod], nodes: Mapping[ObjectKey, str], steps: Sequence[Step]
) -> dict[ObjectKey, str]:
    """Those of the pods that can start on their nodes before the steps are made, with these possible all the same. The
    trial is as before."""
    found: dict[ObjectKey, str] = {}
    for pod in pods:
        key = pod.metadata.key
        if trial.fits(pod, nodes[key]):
            _put(trial, pod, nodes[key])
            found[key] = nodes[key]
            possible = not steps or replay(trial, steps) is None
            trial.back(0)
            if not possible:
                _take_off(trial, pod)
                del found[key]
    for pod in pods:
        if pod.metadata.key in found:
            _take_off(trial, pod)
    return found


def _take_off(trial: Trial, pod: Pod) -> None:
    trial.engine.forget(pod)
    if pod.metadata.key in trial.tables.pods:
        trial.engine.remove_pod(*pod.metadata.key)


def _least(trial: Trial, pod: Pod, *, alone: bool) -> float:
    """What making room for a pod costs at least, whatever is done with the others that wait; `alone`: there are none."""
    if len(trial.rows_for(pod)):
        return 0.0
    nodes = _nearest(trial, pod)
    any_move = min((each.cost for each in trial.pods.movable.values()), default=0.0) if alone else 0.0
    return min((_least_on(trial, node, lacking) or any_move for _, node, lacking in nodes), default=0.0)


def _least_on(trial: Trial, node: str, lacking: dict[int, int]) -> float:
    """What pods cost at least that leave a node and give back what it lacks."""
    least = 0.0
    for number, need in lacking.items():
        givers = [
            (given, pod.cost) for pod in trial.on[node].values() if (given := dict(trial.charge(pod.pod)).get(number))
        ]
        left, pods = need, 0
        for given, _ in sorted(givers, reverse=True):
            if left > 0:
                left, pods = left - given, pods + 1
        if left > 0:
            return float("inf")  # pods that stay take too much of it
        left, shared = need, 0.0
        for given, cost in sorted(givers, key=lambda each: each[1] / each[0]):
            shared += cost * min(left / given, 1.0)
            left = max(left - given, 0)
        least = max(least, shared, pods * min(cost for _, cost in givers))
    return least


def _size(trial: Trial, pod: Pod) -> float:
    return trial.size(MovablePod(pod.metadata.key, pod, ""))


def fitting(trial: Trial, pods: Iterable[Pod], closed: Collection[str], steps: Iterable[Step]) -> dict[ObjectKey, str]:
    """Nodes that are not closed for pods that fit when the steps have been made. The trial is as before."""
    replay(trial, list(steps))
    found = _start_fitting(trial, pods, closed)
    for pod in pods:
        if pod.metadata.key in found:
            _take_off(trial, pod)
    trial.back(0)
    return found


def _start_fitting(trial: Trial, pods: Iterable[Pod], closed: Collection[str] = ()) -> dict[ObjectKey, str]:
    """Places the pods that fit on a node that is not closed, one after the other, and leaves them there."""
    found: dict[ObjectKey, str] = {}
    mask = trial.mask(closed)
    for pod in pods:
        rows = trial.rows_for(pod)
        rows = rows[~mask[rows]]
        if len(rows):
            found[pod.metadata.key] = node = trial.fullest(pod, rows)
            _put(trial, pod, node)
    return found


def _put(trial: Trial, pod: Pod, node: str) -> None:
    if not trial.engine.assume(pod, node).ok:
        trial.engine.set_pod(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node)))


def _start(trial: Trial, pod: Pod, node: str, found: RoomMade) -> None:
    _put(trial, pod, node)
    found.started[pod.metadata.key] = node


def _clear(trial: Trial, pod: Pod, search: NodeEmptying, found: RoomMade) -> bool:
    """Moves as few pods as possible from one node, so that the pod fits there."""
    nodes = _nearest(trial, pod)
    cheapest = min((each.cost for each in trial.pods.movable.values()), default=0.0)
    best: _Cleared | None = None
    for count in range(1, _MOST + 1):
        if best is not None and best[0][0] <= count * cheapest:
            break  # so many pods cost as much
        for node, leaving in _ways(trial, nodes, count):
            weight = _weight((each, "") for each in leaving)
            if best is not None and weight >= best[0]:
                continue
            moved = _try(trial, pod, node, leaving)
            if moved is not None:
                best = (weight, node, moved)
            if trial.work > search.effort.questions:
                break
    if best is None:
        best = _clear_many(trial, pod, [node for _, node, _ in nodes], search)
    if best is None:
        return False
    for each, target in best[2]:
        trial.move(each, target)
    _start(trial, pod, best[1], found)
    return True


def _ways(trial: Trial, nodes: Sequence[_NearNode], count: int) -> Iterator[tuple[str, tuple[MovablePod, ...]]]:
    """Nodes with combinations of so many pods whose leaving gives back what is lacking."""
    for _, node, lacking in nodes:
        for leaving in _leaving(trial, node, lacking, count):
            yield node, leaving


def _clear_many(trial: Trial, pod: Pod, nodes: Sequence[str], search: NodeEmptying) -> _Cleared | None:
    """The same with any number of pods, for which others may have to move: those that cost least for their size leave
    first."""
    best: _Cleared | None = None
    for node in nodes[:_NODES]:
        if trial.work > search.effort.questions:
            break
        leaving = sorted(trial.on[node].values(), key=lambda each: (each.cost / (trial.size(each) or 1.0), each.key))
        left, moved = _until_fits(trial, pod, node, leaving, search)
        for each in left:  # what left first may not have been needed
            fewer, instead = _until_fits(trial, pod, node, [other for other in left if other is not each], search)
            if instead and _weight(instead) < _weight(moved):
                left, moved = fewer, instead
        if moved and (best is None or _weight(moved) < best[0]):
            best = (_weight(moved), node, moved)
    return best


def _until_fits(
    trial: Trial, pod: Pod, node: str, leaving: Sequence[MovablePod], search: NodeEmptying
) -> tuple[list[MovablePod], list[_Moved]]:
    """The first of the pods after whose leaving the pod fits, without those that find no place, and all moves; nothing if
    it does not fit. The trial is as before."""
    mark, closed, left, fits = len(trial.steps), trial.mask((node,)), list[MovablePod](), False
    for each in leaving:
        if not fits and search.settle(each, closed):
            left.append(each)
            fits = trial.fits(pod, node)
    steps = trial.taken_back(mark)
    return (left, [(trial.pods.movable[key], target) for key, _, target in steps]) if fits else ([], [])


def _weight(moved: Iterable[_Moved]) -> tuple[float, float]:
    pods = [pod for pod, _ in moved]
    return sum(pod.cost for pod in pods), sum(pod.strain for pod in pods)


def _nearest(trial: Trial, pod: Pod) -> list[_NearNode]:
    """Nodes that the pod may use, with the resources that they lack; those that lack least first."""
    tables = trial.tables
    prepared = trial.prepared(pod)
    if prepared.refusal is not None:
        return []
    rows = tables.rows
    for _, each in active_filters(prepared):
        if each.scope is Scope.NODE:
            rows = rows[each.filter(rows) == 0]
    charge = trial.charge(pod)
    found = []
    for row in rows.tolist():
        short = trial.lacking(charge, row)
        if short is not None:
            found.append((short[0], tables.name(row), short[1]))
    return sorted(found, key=lambda each: each[:2])


def _leaving(trial: Trial, node: str, lacking: dict[int, int], count: int) -> Iterator[tuple[MovablePod, ...]]:
    """Combinations of pods on the node that give back what is lacking, the smallest pods first."""
    pods = sorted(trial.on[node].values(), key=lambda each: (each.cost, each.strain, trial.size(each), each.key))
    charges = {each.key: dict(trial.charge(each.pod)) for each in pods}
    for tried, leaving in enumerate(combinations(pods, count)):
        if tried > _TRIED:
            return
        if all(sum(charges[each.key].get(number, 0) for each in leaving) >= need for number, need in lacking.items()):
            yield leaving


def _try(trial: Trial, pod: Pod, node: str, leaving: Sequence[MovablePod]) -> list[_Moved] | None:
    """Where the leaving pods go, if all find a place and the pod then fits; the trial is as before."""
    mark, moved = len(trial.steps), list[_Moved]()
    closed = trial.mask((node,))
    for each in sorted(leaving, key=lambda each: -trial.size(each)):
        rows = trial.targets(each, closed)
        if not len(rows):
            break
        target = trial.fullest(each.pod, rows)
        trial.move(each, target)
        moved.append((each, target))
    fits = len(moved) == len(leaving) and trial.fits(pod, node)
    trial.back(mark)
    return moved if fits else None
