"""Watches the decisions of a replay and explains where they differ from those that were expected: the recorded ones, or
those of another replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from wharfinger.api.keys import ObjectKey
from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.engine import Engine
from wharfinger.engine.outcome import Decision, Explanation
from wharfinger.scheduler.scheduler import Scheduler
from wharfinger.simulate.processes import ProcessRun

EXPLANATIONS = 200_000  # nodes that explanations look at, all together; each looks at all nodes again


@dataclass(frozen=True, slots=True)
class DecisionCause:
    """Why a pod did not get the expected node. `cause` groups equal ones."""

    cause: str
    detail: str = ""
    feasible: bool = False  # the expected node would do, but another one is better


@dataclass(slots=True)
class DecisionDifference:
    """A pod that got another node than expected, or got one only here, or only there."""

    pod: str
    time: float  # seconds since the start
    expected: str  # empty: it had no node there
    node: str  # empty: it has no node here
    cause: str
    detail: str = ""

    def document(self) -> Document:
        return {
            "pod": self.pod,
            "seconds": round(self.time, 3),
            "expected": self.expected or None,
            "node": self.node or None,
            "cause": self.cause,
            **({"detail": self.detail} if self.detail else {}),
        }


@dataclass(slots=True)
class DecisionWatch:
    """Sees every decision of the schedulers of one replay. With `ties`, a pod goes to the expected node if that is as
    good as the one chosen: which of equal nodes comes first depends on what happened before the trace began. With
    `check`, it goes there if it fits at all, so that the next decision is made in the recorded state; the difference is
    noted, unless the scheduler would have decided so at some moment since it knew the pod: a decision is made some time
    before the binding that tells of it."""

    expected: Mapping[ObjectKey, str]
    ties: bool = True
    check: bool = False
    choices: dict[ObjectKey, str] = field(default_factory=dict)  # with `check`: the nodes of decisions that differ
    causes: dict[ObjectKey, DecisionCause] = field(default_factory=dict)  # of the first decision that differs
    order: dict[ObjectKey, int] = field(default_factory=dict)  # of the first decision about each pod
    agreed: set[ObjectKey] = field(default_factory=set)  # pods that would have got the expected node before
    explained: int = 0  # nodes that explanations have looked at

    _engine: Engine | None = None
    _schedule: Callable[[Pod, str | None], Decision] | None = None

    def probe(self, pod: Pod) -> None:
        """Notes whether a pod that is not submitted yet would get the expected node now."""
        key = (pod.metadata.namespace, pod.metadata.name)
        wanted, engine = self.expected.get(key), self._engine
        if not wanted or key in self.agreed or engine is None or self._schedule is None:
            return
        node = self._schedule(pod, None).node
        if node is not None and (node == wanted or engine.ties(pod, node, wanted)):
            self.agreed.add(key)

    def follow(self, scheduler: Scheduler, run: ProcessRun) -> None:
        engine, schedule = scheduler.engine, scheduler.engine.schedule
        self._engine, self._schedule = engine, schedule

        def watched(pod: Pod, profile: str | None = None) -> Decision:
            decision = schedule(pod, profile)
            key = (pod.metadata.namespace, pod.metadata.name)
            self.order.setdefault(key, len(self.order))
            wanted = self.expected.get(key)
            if not wanted or decision.node == wanted:
                return decision
            if self.ties and decision.node is not None and engine.ties(pod, decision.node, wanted):
                return msgspec.structs.replace(decision, node=wanted, row=engine.tables.row_of[wanted])
            if key not in self.causes and self.explained < EXPLANATIONS:
                self.explained += engine.tables.node_count
                cause = why_not(engine, pod, decision, wanted)
                followed = self.check and decision.node is not None and cause.feasible
                if not (followed and key in self.agreed):
                    self.causes[key] = cause
                if followed:
                    if key in self.causes:
                        self.choices[key] = decision.node or ""
                    return msgspec.structs.replace(decision, node=wanted, row=engine.tables.row_of[wanted])
            return decision

        engine.schedule = watched  # type: ignore[method-assign]  # the same decision, watched


def why_not(engine: Engine, pod: Pod, decision: Decision, wanted: str) -> DecisionCause:
    """Why a pod does not get the wanted node now."""
    if decision.error:
        return DecisionCause(decision.error)
    if wanted not in engine.tables.row_of:
        return DecisionCause("the expected node is not there", wanted)
    found = engine.explain(pod)
    if found.pre_filter is not None:
        return DecisionCause(f"{found.pre_filter.plugin}: {found.pre_filter.message}")
    refused = found.refused.get(wanted)
    if refused is not None:
        return DecisionCause(f"{refused.plugin}: {'; '.join(refused.reasons)}", f"on {wanted}")
    if decision.node is None or decision.node not in found.scores or wanted not in found.scores:
        return DecisionCause("the expected node was not considered", wanted)
    return _score_cause(found, decision.node, wanted)


def _score_cause(found: Explanation, node: str, wanted: str) -> DecisionCause:
    mine, theirs = found.scores[node], found.scores[wanted]
    gains = {name: mine[name] - theirs.get(name, 0) for name in mine}
    plugin = max(gains, key=lambda name: (gains[name], name))
    total = found.total(node) - found.total(wanted)
    if total == 0:
        return DecisionCause("equal scores", f"{node} and {wanted} both have {found.total(node)}", feasible=True)
    parts = ", ".join(f"{name} {gain:+d}" for name, gain in sorted(gains.items(), key=lambda each: -each[1]) if gain)
    return DecisionCause(f"score of {plugin}", f"{node} is ahead of {wanted} by {total}: {parts}", feasible=True)
