"""Rollout over decision groups, as workload appliers do it: which clusters may take the change now, and when to look again.

A pure function of the strategy, the groups and what is known of each cluster. Nothing is remembered between calls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction


class Type(Enum):
    ALL = "All"
    PROGRESSIVE = "Progressive"
    PROGRESSIVE_PER_GROUP = "ProgressivePerGroup"


class Status(Enum):
    """What an applier knows of one cluster."""

    TO_APPLY = "ToApply"
    PROGRESSING = "Progressing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIME_OUT = "TimeOut"
    SKIP = "Skip"


@dataclass(frozen=True, slots=True)
class Group:
    """A decision group: its index, its name if any, its clusters."""

    index: int
    name: str
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupRef:
    """A mandatory group, by name where one is given, else by index."""

    name: str = ""
    index: int = 0

    def matches(self, group: Group) -> bool:
        return group.name == self.name if self.name else group.index == self.index


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    status: Status = Status.TO_APPLY
    since: float | None = None  # when it came to be so


@dataclass(frozen=True, slots=True)
class Strategy:
    type: Type = Type.ALL
    min_success_time: float = 0.0  # a success holds its slot so long; ignored by All
    progress_deadline: float = math.inf  # Progressing or Failed longer than this is a time-out
    max_failures: int | Fraction = 0  # a number, or a share of the clusters counted
    max_concurrency: int | Fraction | None = None  # Progressive: slots; None: all that remain
    mandatory: tuple[GroupRef, ...] = ()  # run first, group by group, with no failure allowed


@dataclass(slots=True)
class Rollout:
    """The answer. `to_roll_out` are the clusters that are to have the change now, those that have it included."""

    to_roll_out: list[str] = field(default_factory=list)
    timed_out: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)  # known before, selected no more
    breached: bool = False  # more failures than allowed: nothing new starts
    recheck_after: float | None = None  # seconds until time alone may change the answer


def roll_out(strategy: Strategy, groups: Sequence[Group], known: Mapping[str, ClusterStatus], now: float) -> Rollout:
    answer = Rollout()
    selected = {cluster for group in groups for cluster in group.clusters}
    answer.removed = sorted(cluster for cluster in known if cluster not in selected)
    if strategy.type is Type.ALL:
        _Stage(strategy, known, now, answer).run([c for group in groups for c in group.clusters], math.inf, math.inf)
        return answer
    rest = sorted(groups, key=lambda group: group.index)
    for reference in strategy.mandatory:
        for group in [group for group in rest if reference.matches(group)]:
            rest.remove(group)
            stage = _Stage(strategy, known, now, answer)
            stage.run(sorted(group.clusters), len(group.clusters), 0)
            if answer.breached or stage.pending:
                return answer
    if strategy.type is Type.PROGRESSIVE_PER_GROUP:
        for group in rest:
            stage = _Stage(strategy, known, now, answer)
            limit = _count(strategy.max_failures, len(group.clusters))
            stage.run(sorted(group.clusters), len(group.clusters), limit)
            if answer.breached or stage.pending:
                return answer
        return answer
    clusters = sorted(cluster for group in rest for cluster in group.clusters)
    slots = len(clusters) if strategy.max_concurrency is None else _count(strategy.max_concurrency, len(clusters))
    _Stage(strategy, known, now, answer).run(clusters, max(1, slots), _count(strategy.max_failures, len(clusters)))
    return answer


def _count(amount: int | Fraction, total: int) -> int:
    """A number of clusters, at most all of them; a share is rounded up."""
    number = math.ceil(amount * total) if isinstance(amount, Fraction) else amount
    return max(0, min(number, total))


class _Stage:
    """Clusters that roll out together: finished and failed ones are passed over, running ones hold slots, others take them."""

    def __init__(self, strategy: Strategy, known: Mapping[str, ClusterStatus], now: float, answer: Rollout) -> None:
        self._strategy = strategy
        self._known = known
        self._now = now
        self._answer = answer
        self.pending = False  # something other than a failure is still to come

    def run(self, clusters: Sequence[str], slots: float, failures_allowed: float) -> None:
        answer = self._answer
        failures, waiting = 0, []
        for cluster in clusters:
            state = self._state(cluster)
            if state.status is Status.SKIP:
                continue
            if state.status is Status.TIME_OUT:
                failures += 1
                answer.timed_out.append(cluster)
            elif state.status is Status.FAILED:
                failures += 1
                answer.to_roll_out.append(cluster)
            elif state.status is Status.TO_APPLY:
                waiting.append(cluster)
                self.pending = True
            else:
                answer.to_roll_out.append(cluster)
                if state.status is Status.PROGRESSING or self._soaking(state):
                    slots -= 1
                    self.pending = True
        if failures > failures_allowed:
            answer.breached = True
            return
        answer.to_roll_out += waiting[: max(0, int(min(slots, len(waiting))))]

    def _state(self, cluster: str) -> ClusterStatus:
        state = self._known.get(cluster, ClusterStatus())
        if state.status in (Status.PROGRESSING, Status.FAILED) and state.since is not None:
            deadline = state.since + self._strategy.progress_deadline
            if self._now >= deadline:
                return ClusterStatus(Status.TIME_OUT, deadline)
            self._look_again(deadline)
        return state

    def _soaking(self, state: ClusterStatus) -> bool:
        if self._strategy.type is Type.ALL or state.since is None:
            return False
        over = state.since + self._strategy.min_success_time
        if self._now >= over:
            return False
        self._look_again(over)
        return True

    def _look_again(self, moment: float) -> None:
        wait = moment - self._now
        if wait < math.inf and (self._answer.recheck_after is None or wait < self._answer.recheck_after):
            self._answer.recheck_after = wait
