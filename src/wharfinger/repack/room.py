"""Makes room for pods that wait: the fewest moves after which each has a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import msgspec

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views import Pod
from wharfinger.engine.evaluation import active_filters
from wharfinger.framework.plugin import Scope
from wharfinger.repack.movable import MovablePod
from wharfinger.repack.trial import Step, Trial

_MOST = 4  # pods that leave one node
_TRIED = 400  # combinations of pods on one node


@dataclass(slots=True)
class RoomMade:
    """`started` has the node of each pod that starts, with and without moves; `blocked` the pods that do not."""

    steps: list[Step] = field(default_factory=list)
    started: dict[ObjectKey, str] = field(default_factory=dict)
    cost: float = 0.0
    bound: float = 0.0
    blocked: list[str] = field(default_factory=list)


def make_room(trial: Trial, waiting: Sequence[Pod], questions: int) -> RoomMade:
    """Places the waiting pods, the most important and then the largest first."""
    found = RoomMade()
    order = sorted(waiting, key=lambda pod: (-(pod.spec.priority or 0), -_size(trial, pod), pod.metadata.key))
    for pod in order:
        rows = trial.rows_for(pod)
        if len(rows):
            _start(trial, pod, trial.fullest(pod, rows), found)
            continue
        found.bound += 1.0  # at least one pod has to move for this one
        if not _clear(trial, pod, questions, found):
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            possible = f"no node can be cleared for it by moving up to {_MOST} pods"
            found.blocked.append(
                f"{name}: {possible if _nearest(trial, pod) else 'it fits on no node, even an empty one'}"
            )
    found.steps = list(trial.steps)
    costs = [trial.pods.movable[key].cost for key, _, _ in found.steps]
    found.cost = sum(costs)
    found.bound = min(found.bound * min(costs, default=0.0), found.cost)
    return found


def _size(trial: Trial, pod: Pod) -> float:
    return trial.size(MovablePod(pod.metadata.key, pod, ""))


def _start(trial: Trial, pod: Pod, node: str, found: RoomMade) -> None:
    trial.engine.set_pod(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node)))
    found.started[pod.metadata.key] = node


def _clear(trial: Trial, pod: Pod, questions: int, found: RoomMade) -> bool:
    """Moves as few pods as possible from one node, so that the pod fits there."""
    nodes = _nearest(trial, pod)
    best: tuple[tuple[float, float], str, list[tuple[MovablePod, str]]] | None = None
    for count in range(1, _MOST + 1):
        for _, node, lacking in nodes:
            for leaving in _leaving(trial, node, lacking, count):
                weight = (sum(each.cost for each in leaving), sum(each.strain for each in leaving))
                if best is not None and weight >= best[0]:
                    continue
                moved = _try(trial, pod, node, leaving)
                if moved is not None:
                    best = (weight, node, moved)
                    break
                if trial.work > questions:
                    break
            if trial.work > questions:
                break
        if best is not None or trial.work > questions:
            break
    if best is None:
        return False
    for each, target in best[2]:
        trial.move(each, target)
    _start(trial, pod, best[1], found)
    return True


def _nearest(trial: Trial, pod: Pod) -> list[tuple[float, str, dict[int, int]]]:
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


def _try(trial: Trial, pod: Pod, node: str, leaving: Sequence[MovablePod]) -> list[tuple[MovablePod, str]] | None:
    """Where the leaving pods go, if all find a place and the pod then fits; the trial is as before."""
    mark, moved = len(trial.steps), list[tuple[MovablePod, str]]()
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
