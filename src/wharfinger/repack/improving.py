"""Moves pods to places that are better by some measure: units of a policy, zones, or nodes that share a resource.

Each search takes the moves that gain most first and ends when no move gains anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from wharfinger.engine.evaluation import final_scores
from wharfinger.repack.movable import MovablePod
from wharfinger.repack.trial import Step, Trial

ZONE = "topology.kubernetes.io/zone"


@dataclass(slots=True)
class Improvement:
    """The moves, each with its reason, and the measure before and after them; less is better."""

    steps: list[Step] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    measure: str = ""
    before: int = 0
    after: int = 0


def restore_order(trial: Trial, plugin: str) -> Improvement:
    """Moves pods to nodes that the plugin prefers, such as those of a better unit."""
    found = Improvement(measure="pods on a less wanted node than they could be")
    closed = trial.mask(())
    for pod in sorted(trial.pods.movable.values(), key=lambda each: each.key):
        scores = _scores(trial, pod, plugin)
        here = scores.get(trial.at[pod.key], 0)
        rows = trial.targets(pod, closed) if any(score > here for score in scores.values()) else ()
        better = {trial.tables.name(int(row)): scores.get(trial.tables.name(int(row)), 0) for row in rows}
        best = max(better.values(), default=here)
        if best <= here:
            continue
        found.before += 1
        names = [name for name, score in better.items() if score == best]
        trial.move(pod, min(names, key=lambda name: (_left(trial, pod, name), name)))
        found.reasons.append("goes to a better unit")
    found.steps = list(trial.steps)
    return found


def _scores(trial: Trial, pod: MovablePod, plugin: str) -> dict[str, int]:
    """The plugin's score of every node that the pod could run on, its own included."""
    if all(each.plugin != plugin for each in trial.prepared(pod.pod).scorers):
        return {}  # it has nothing to say about pods of this shape
    here = trial.at[pod.key]
    trial.engine.remove_pod(*pod.key)
    try:
        rows = trial.rows_for(pod.pod)
        prepared = trial.prepared(pod.pod)
        for name, scores in final_scores(prepared, rows):
            if name == plugin:
                return {trial.tables.name(int(row)): int(score) for row, score in zip(rows, scores, strict=True)}
        return {}
    finally:
        trial.put_back(pod, here)


def _left(trial: Trial, pod: MovablePod, name: str) -> float:
    rows = trial.tables.rows[trial.tables.rows == trial.tables.row_of[name]]
    return float(trial.left_over(pod.pod, rows)[0])


def even_zones(trial: Trial) -> Improvement:
    """Moves pods of workloads from zones that have more of them to zones that have fewer."""
    found = Improvement(measure="pods that are out of balance between zones")
    zones = _zones(trial)
    for workload, pods in sorted(_workloads(trial).items()):
        found.before += _unevenness(trial, pods, zones)
        while (move := _evening(trial, pods, zones)) is not None:
            pod, target = move
            trial.move(pod, target)
            found.reasons.append(f"evens out the zones of {workload}")
        found.after += _unevenness(trial, pods, zones)
    found.steps = list(trial.steps)
    return found


def _zones(trial: Trial) -> dict[str, str]:
    """The zones of nodes that take pods."""
    tables = trial.tables
    return {
        name: zone
        for name, row in sorted(tables.row_of.items())
        if (node := tables.nodes[row]) is not None
        and not tables.unschedulable[row]
        and (zone := node.metadata.labels.get(ZONE))
    }


def _workloads(trial: Trial) -> dict[str, list[MovablePod]]:
    found: dict[str, list[MovablePod]] = defaultdict(list)
    for pod in trial.pods.movable.values():
        owner = next((each for each in pod.pod.metadata.owner_references if each.controller), None)
        if owner is not None:
            found[f"{owner.kind} {pod.key[0]}/{owner.name}"].append(pod)
    return found


def _per_zone(trial: Trial, pods: list[MovablePod], zones: dict[str, str]) -> Counter[str]:
    counts = Counter(dict.fromkeys(zones.values(), 0))
    counts.update(zones[trial.at[pod.key]] for pod in pods if trial.at[pod.key] in zones)
    return counts


def _unevenness(trial: Trial, pods: list[MovablePod], zones: dict[str, str]) -> int:
    counts = _per_zone(trial, pods, zones)
    return max(0, max(counts.values()) - min(counts.values()) - 1) if counts else 0


def _evening(trial: Trial, pods: list[MovablePod], zones: dict[str, str]) -> tuple[MovablePod, str] | None:
    """A move from a zone with more of the pods to one with at least two fewer."""
    counts = _per_zone(trial, pods, zones)
    for full, most in counts.most_common():
        for empty, least in reversed(counts.most_common()):
            if most - least < 2:
                break
            closed = trial.mask(name for name in trial.tables.row_of if zones.get(name) != empty)
            for pod in sorted(pods, key=lambda each: (each.cost, each.strain, each.key)):
                if zones.get(trial.at[pod.key]) == full and len(rows := trial.targets(pod, closed)):
                    return pod, trial.fullest(pod.pod, rows)
    return None


def defragment(trial: Trial, resource: str) -> Improvement:
    """Empties nodes of which a resource is used in part, into others that are used in part, so that whole nodes of it are
    free for large pods."""
    found = Improvement(measure=f"nodes on which {resource} is used in part")
    number = trial.tables.resources.get(resource)
    if number is None:
        return found
    found.before = sum(1 for _ in _partly(trial, number))
    settled: set[str] = set()
    while True:
        order = sorted(_partly(trial, number), key=lambda each: each[::-1])
        chosen = next((name for name, _ in order if name not in settled), None)
        if chosen is None:
            break
        settled.add(chosen)
        if _empty_into(trial, number, chosen, {name for name, _ in order} - {chosen}):
            found.reasons += [f"frees the {resource} of {chosen}"] * (len(trial.steps) - len(found.reasons))
    found.after = sum(1 for _ in _partly(trial, number))
    found.steps = list(trial.steps)
    return found


def _partly(trial: Trial, number: int) -> Iterator[tuple[str, int]]:
    """Nodes on which some of the resource is used and some is free, with what is used."""
    tables = trial.tables
    for name, row in tables.row_of.items():
        used, most = int(tables.requested[number].cells[row]), int(tables.allocatable[number].cells[row])
        if 0 < used < most:
            yield name, used


def _empty_into(trial: Trial, number: int, name: str, others: set[str]) -> bool:
    """Moves all pods that use the resource from the node to the others; nothing if one of them cannot leave."""
    users = [pod for pod in trial.on[name].values() if dict(trial.charge(pod.pod)).get(number)]
    used = sum(dict(trial.charge(pod.pod))[number] for pod in users)
    if used < int(trial.tables.requested[number].cells[trial.tables.row_of[name]]):
        return False  # a fixed pod uses it, too
    closed = trial.mask(each for each in trial.tables.row_of if each not in others)
    return trial.move_all(sorted(users, key=lambda each: (-trial.size(each), each.key)), closed)
