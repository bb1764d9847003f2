"""What nodes could be removed, now or once pods that run have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.engine import Engine
from wharfinger.framework.stand_ins import StandIn
from wharfinger.repack.freeing import Effort
from wharfinger.repack.movable import sort_pods
from wharfinger.repack.plans import RepackMove
from wharfinger.repack.saving import free_dearest
from wharfinger.repack.trial import Trial

Ends = Mapping[tuple[str, str], float]
"""When pods and stand-ins end, by key."""


@dataclass(slots=True)
class RemovableNode:
    node: str
    price: float
    at: float | None = None  # None: now
    moves: list[RepackMove] = field(default_factory=list)  # of its pods, before it can be removed


@dataclass(slots=True)
class Removal:
    nodes: list[RemovableNode] = field(default_factory=list)
    saved: float = 0.0  # per hour, by what can be removed now
    most: float = 0.0  # what no plan can exceed


def find_removable(
    engine: Engine, names: Sequence[str], prices: Mapping[str, float], ends: Ends, effort: Effort
) -> Removal:
    """Those of the nodes that can be emptied now, and those that empty by themselves later."""
    trial = Trial(engine, sort_pods(engine))
    found = free_dearest(trial, prices, names, effort)
    moves: dict[str, list[RepackMove]] = {}
    for key, source, target in found.steps:
        pod = trial.pods.movable[key]
        moves.setdefault(source, []).append(RepackMove(pod.name, source, target, f"frees {source}", pod.recreated))
    made = Removal(saved=found.saved, most=found.most)
    for name in sorted(found.freed):
        made.nodes.append(RemovableNode(name, prices.get(name, 0.0), None, moves.get(name, [])))
    later = _emptied_later(engine, trial, set(names) - set(found.freed), ends)
    for name, moment in sorted(later.items(), key=lambda each: (each[1], each[0])):
        made.nodes.append(RemovableNode(name, prices.get(name, 0.0), moment))
    return made


def _emptied_later(engine: Engine, trial: Trial, names: set[str], ends: Ends) -> dict[str, float]:
    """When the last pod of a node ends, for nodes on which the ends of all are known."""
    last: dict[str, float] = {}
    endless: set[str] = set()
    for placed in engine.tables.placed():
        node = placed.node_name
        known = placed.key in trial.pods.movable or placed.key in trial.pods.fixed
        if node not in names or not known:
            continue
        key = (placed.pod.kind, placed.pod.object_name) if isinstance(placed.pod, StandIn) else placed.key
        end = ends.get(key)
        if end is None:
            endless.add(node)
        else:
            last[node] = max(last.get(node, 0.0), end)
    return {node: end for node, end in last.items() if node not in endless}
