"""Changes of pods, summed up by the workload that they belong to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.api.registry import Document
from wharfinger.contributions import ComparedKey
from wharfinger.simulate.plan_state import ComparedState

if TYPE_CHECKING:
    from wharfinger.simulate.planning import PlannedChange

_ENDED = ("Succeeded", "Failed")


class WorkloadChange(msgspec.Struct):
    """What happens to the pods of one workload; a pod without a controller is its own.

    A pod that ends and a new one that starts in its place have moved; if the new one waits, the old one has not ended but
    become pending.
    """

    kind: str
    namespace: str
    name: str
    existed: bool = True
    exists: bool = True
    wanted: tuple[int | None, int | None] = (None, None)  # before and after; None if the workload does not say
    ready: tuple[int, int] = (0, 0)
    moved: int = 0
    started: int = 0
    ended: int = 0
    pending: int = 0
    preempted: int = 0
    phases: dict[str, int] = msgspec.field(default_factory=dict)  # pods that are in another phase, such as Failed
    left: list[str] = msgspec.field(default_factory=list)  # the nodes of pods that move or end, one for each
    reached: list[str] = msgspec.field(default_factory=list)  # the nodes of pods that move or start
    reasons: list[str] = msgspec.field(default_factory=list)  # why pods wait
    refusal: str = ""  # why the API refuses more pods, if it did not before

    @property
    def bad(self) -> bool:
        """Whether pods wait, are preempted, fail or are not created, or fewer are ready than wanted."""
        falls = (
            self.exists and self.ready[1] < self.ready[0] and (self.wanted[1] is None or self.ready[1] < self.wanted[1])
        )
        return bool(self.pending or self.preempted or self.refusal or self.phases.get("Failed") or falls)

    def document(self) -> Document:
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "wanted": {"before": self.wanted[0], "after": self.wanted[1]},
            "ready": {"before": self.ready[0], "after": self.ready[1]},
            "pods": {
                "moved": self.moved,
                "started": self.started,
                "ended": self.ended,
                "pending": self.pending,
                "preempted": self.preempted,
            },
            "reasons": self.reasons,
            "refusal": self.refusal or None,
        }


def by_workload(before: ComparedState, after: ComparedState, changes: Iterable[PlannedChange]) -> list[WorkloadChange]:
    """The workloads whose number of pods or whose pods change; the bad news first. Workloads of which only deletion
    costs change are not among them."""
    found: dict[ComparedKey, list[PlannedChange]] = {}
    named = {key[0] for state in (before, after) for key in state.facts if "wanted" in state.facts[key]}
    for change in changes:
        key = (change.kind, change.namespace, change.name)
        if change.kind == "Pod":
            found.setdefault(after.workload_of.get(key) or before.workload_of.get(key) or key, []).append(change)
        elif change.kind in named:
            found.setdefault(key, [])
    ready_before, ready_after = _running(before, found), _running(after, found)
    workloads = [
        _summed_up(key, before, after, (ready_before[key], ready_after[key]), pods) for key, pods in found.items()
    ]
    return sorted(
        (each for each in workloads if _says_something(each)),
        key=lambda each: (not each.bad, each.namespace, each.name, each.kind),
    )


def _says_something(each: WorkloadChange) -> bool:
    pods = each.moved or each.started or each.ended or each.pending or each.preempted or each.phases
    return bool(pods or each.refusal or each.ready[0] != each.ready[1] or each.wanted[0] != each.wanted[1])


def _running(state: ComparedState, wanted: Mapping[ComparedKey, Any]) -> Counter[ComparedKey]:
    """How many pods of each workload run."""
    found: Counter[ComparedKey] = Counter()
    for key, facts in state.facts.items():
        if key[0] == "Pod" and facts["phase"] == "Running":
            workload = state.workload_of.get(key, key)
            if workload in wanted:
                found[workload] += 1
    return found


def _summed_up(
    key: ComparedKey,
    before: ComparedState,
    after: ComparedState,
    running: tuple[int, int],
    pods: Sequence[PlannedChange],
) -> WorkloadChange:
    old, new = before.facts.get(key), after.facts.get(key)
    summed = WorkloadChange(*key)
    if key[0] == "Pod" or (
        old is None and new is None
    ):  # a pod, or a workload that is not compared itself, such as a Job
        summed.existed = old is not None or any(change.before is not None for change in pods) or running[0] > 0
        summed.exists = new is not None or any(change.after is not None for change in pods) or running[1] > 0
        summed.ready = running
    else:
        summed.existed, summed.exists = old is not None, new is not None
        summed.wanted = (old["wanted"] if old else None, new["wanted"] if new else None)
        summed.ready = (old["ready"] if old else 0, new["ready"] if new else 0)
        if new and new.get("message") and not (old and old.get("message")):
            summed.refusal = new["message"]
    _count(summed, pods)
    return summed


def _count(summed: WorkloadChange, pods: Sequence[PlannedChange]) -> None:
    lost = gained = waiting = 0
    reasons: dict[str, None] = {}
    for change in pods:
        old, new = change.before or {}, change.after or {}
        if change.what == "preempted":
            summed.preempted += 1
        elif change.what == "gone":
            if old.get("node") and old.get("phase") not in _ENDED:
                lost += 1
                summed.left.append(old["node"])
            else:
                summed.ended += 1
        elif change.what in ("new", "pending") and not new.get("node") and new.get("phase") == "Pending":
            summed.pending += 1
            waiting += change.what == "new"
            reasons[new.get("message") or "not tried yet"] = None
        elif change.what in ("new", "scheduled"):
            gained += 1
            if new.get("node"):
                summed.reached.append(new["node"])
        elif change.what == "moved":
            summed.moved += 1
            summed.left.append(old["node"])
            summed.reached.append(new["node"])
        elif old.get("phase") != new.get("phase"):
            summed.phases[new["phase"]] = summed.phases.get(new["phase"], 0) + 1
    replaced = min(lost, gained)
    summed.moved += replaced
    summed.started, summed.ended = gained - replaced, summed.ended + max(lost - replaced - waiting, 0)
    summed.reasons = list(reasons)
