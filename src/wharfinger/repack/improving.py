"""Moves pods to places that are better by some measure: units of a policy, zones, or nodes that share a resource.

Each search takes the moves that gain most first and ends when no move gains anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from wharfinger.api.registry import Document
from wharfinger.api.resources import requests
from wharfinger.api.views import Pod, view
from wharfinger.devices.pod_claims import claim_keys
from wharfinger.engine.evaluation import final_scores
from wharfinger.repack.movable import CLAIM, MovablePod
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
    with trial.without(pod):
        rows = trial.rows_for(pod.pod)
        for name, scores in final_scores(trial.prepared(pod.pod), rows):
            if name == plugin:
                return {trial.tables.name(int(row)): int(score) for row, score in zip(rows, scores, strict=True)}
    return {}


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


def defragment(trial: Trial, name: str) -> Improvement | None:
    """Empties nodes of which a resource or a device class is used in part, into others that are used in part, so that
    whole nodes of it are free for large pods. None if nothing has it."""
    use = _Use(trial, name)
    if not use.known():
        return None
    found = Improvement(measure=f"nodes on which {name} is used in part")
    found.before = len(use.partly())
    settled: set[str] = set()
    while True:
        order = sorted(use.partly(), key=lambda each: each[::-1])
        chosen = next((node for node, _ in order if node not in settled), None)
        if chosen is None:
            break
        settled.add(chosen)
        if use.gather(chosen, {node for node, _ in order} - {chosen}):
            found.reasons += [f"frees the {name} of {chosen}"] * (len(trial.steps) - len(found.reasons))
    found.after = len(use.partly())
    found.steps = list(trial.steps)
    return found


class _Use:
    """What is used and free of a resource that nodes have an amount of, or of a class of devices: a DeviceClass, or what
    pods request by name and the scheduler finds devices for."""

    def __init__(self, trial: Trial, name: str) -> None:
        self._trial = trial
        self._name = name
        tables = trial.tables
        number = tables.resources.get(name)
        amounts = None if number is None else tables.allocatable[number].take(tables.rows)
        self._number = number if amounts is not None and amounts.max(initial=0) > 0 else None
        self._probe = None if self._number is not None else self._made_probe()
        users = {placed.key: self._amount(placed.pod) for placed in tables.placed()}
        self._users = {key: amount for key, amount in users.items() if amount}

    def known(self) -> bool:
        return self._probe is None or bool(self._users) or len(self._trial.rows_for(self._probe)) > 0

    def partly(self) -> list[tuple[str, int]]:
        """Nodes on which some is used and some is free, with what is used."""
        tables = self._trial.tables
        if self._probe is None:
            assert self._number is not None
            requested, allocatable = tables.requested[self._number], tables.allocatable[self._number]
            amounts = [
                (name, int(requested.cells[row]), int(allocatable.cells[row])) for name, row in tables.row_of.items()
            ]
            return [(name, used) for name, used, most in amounts if 0 < used < most]
        free = {tables.name(row) for row in self._trial.rows_for(self._probe).tolist()}
        return [(name, used) for name, used in self._by_node().items() if name in free]

    def gather(self, node: str, others: set[str]) -> bool:
        """Moves all pods that use it from the node to the others; nothing if one of them cannot leave."""
        trial, tables = self._trial, self._trial.tables
        leaving = [pod for key, pod in trial.on[node].items() if key in self._users]
        if self._number is None:
            used = self._by_node()[node]
        else:
            used = int(tables.requested[self._number].cells[tables.row_of[node]])
        if sum(self._users[pod.key] for pod in leaving) < used:
            return False  # a fixed pod uses it, too
        closed = trial.mask(each for each in tables.row_of if each not in others)
        return trial.move_all(sorted(leaving, key=lambda each: (-trial.size(each), each.key)), closed)

    def _by_node(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for key, amount in self._users.items():
            found[self._trial.tables.pods[key].node_name] += amount
        return found

    def _amount(self, pod: Pod) -> int:
        claims = (self._trial.engine.known(CLAIM, *key) for key in claim_keys(pod))
        return requests(pod).get(self._name, 0) + sum(
            _asked(claim, self._name) for claim in claims if claim is not None
        )

    def _made_probe(self) -> Pod:
        """A pod that needs one device and nothing else."""
        engine, name = self._trial.engine, "repack-probe"
        container: Document = {"name": "probe"}
        spec: Document = {
            "schedulerName": next(iter(engine.profiles)),
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        }
        if engine.known("DeviceClass", "", self._name) is None:
            container["resources"] = {"requests": {self._name: "1"}, "limits": {self._name: "1"}}
        else:
            one = {
                "name": "one",
                "exactly": {"deviceClassName": self._name, "allocationMode": "ExactCount", "count": 1},
            }
            claim = {"metadata": {"name": name, "namespace": "", "uid": name}, "spec": {"devices": {"requests": [one]}}}
            engine.apply(CLAIM, claim)
            spec["resourceClaims"] = [{"name": "one", "resourceClaimName": name}]
        return view({"metadata": {"name": name, "namespace": "", "uid": name}, "spec": spec}, Pod)


def _asked(claim: Document, name: str) -> int:
    """How many devices of a class a claim asks for; where it leaves a choice, by its first alternative."""
    found = 0
    for request in (claim["spec"].get("devices") or {}).get("requests") or ():
        exactly: Document = request.get("exactly") or next(iter(request.get("firstAvailable") or ()), {})
        if exactly.get("deviceClassName") == name:
            found += exactly.get("count") or 1
    return found
