"""Rollouts over decision groups, as workload appliers do them: which clusters may take a change now, when to evaluate the
rollout again, and the waves in which a change reaches all clusters.

Pure functions of the strategy, the groups and the status of each cluster; no state is kept between calls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction


class RolloutType(Enum):
    ALL = "All"
    PROGRESSIVE = "Progressive"
    PROGRESSIVE_PER_GROUP = "ProgressivePerGroup"


class RolloutStatus(Enum):
    """The progress of one cluster, as the applier reports it."""

    TO_APPLY = "ToApply"
    PROGRESSING = "Progressing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIME_OUT = "TimeOut"
    SKIP = "Skip"


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """A decision group: its index, its name if any, its clusters."""

    index: int
    name: str
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MandatoryGroup:
    """A mandatory group, by name where one is given, else by index."""

    name: str = ""
    index: int = 0

    def matches(self, group: RolloutGroup) -> bool:
        return group.name == self.name if self.name else group.index == self.index


@dataclass(frozen=True, slots=True)
class ClusterRollout:
    status: RolloutStatus = RolloutStatus.TO_APPLY
    since: float | None = None  # when the status changed last


@dataclass(frozen=True, slots=True)
class RolloutStrategy:
    type: RolloutType = RolloutType.ALL
    min_success_time: float = 0.0  # seconds that a successful cluster keeps its slot; ignored by All
    progress_deadline: float = math.inf  # seconds after which Progressing or Failed is a time-out
    max_failures: int | Fraction = 0  # a number, or a share of the clusters
    max_concurrency: int | Fraction | None = None  # Progressive: slots; None: all that remain
    mandatory: tuple[MandatoryGroup, ...] = ()  # come first, group by group; no failure is allowed


@dataclass(slots=True)
class Rollout:
    """`to_roll_out` are the clusters that should have the change now, including those that have it already."""

    to_roll_out: list[str] = field(default_factory=list)
    timed_out: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)  # no longer selected
    breached: bool = False  # more failures than allowed: no further cluster starts
    recheck_after: float | None = None  # seconds until the result may change without an event


def roll_out(
    strategy: RolloutStrategy, groups: Sequence[RolloutGroup], known: Mapping[str, ClusterRollout], now: float
) -> Rollout:
    answer = Rollout()
    selected = {cluster for group in groups for cluster in group.clusters}
    answer.removed = sorted(cluster for cluster in known if cluster not in selected)
    if strategy.type is RolloutType.ALL:
        _RolloutStage(strategy, known, now, answer).run(
            [c for group in groups for c in group.clusters], math.inf, math.inf
        )
        return answer
    rest = sorted(groups, key=lambda group: group.index)
    for reference in strategy.mandatory:
        for group in [group for group in rest if reference.matches(group)]:
            rest.remove(group)
            stage = _RolloutStage(strategy, known, now, answer)
            stage.run(sorted(group.clusters), len(group.clusters), 0)
            if answer.breached or stage.pending:
                return answer
    if strategy.type is RolloutType.PROGRESSIVE_PER_GROUP:
        for group in rest:
            stage = _RolloutStage(strategy, known, now, answer)
            limit = _count(strategy.max_failures, len(group.clusters))
            stage.run(sorted(group.clusters), len(group.clusters), limit)
            if answer.breached or stage.pending:
                return answer
        return answer
    clusters = sorted(cluster for group in rest for cluster in group.clusters)
    slots = len(clusters) if strategy.max_concurrency is None else _count(strategy.max_concurrency, len(clusters))
    _RolloutStage(strategy, known, now, answer).run(
        clusters, max(1, slots), _count(strategy.max_failures, len(clusters))
    )
    return answer


def waves(
    strategy: RolloutStrategy, groups: Sequence[RolloutGroup], known: Mapping[str, ClusterRollout]
) -> list[list[str]]:
    """The clusters that start together, wave after wave, if every cluster that starts or is in progress succeeds."""
    statuses, found = dict(known), list[list[str]]()
    while True:
        answer = roll_out(strategy, groups, statuses, 0.0)
        started = [name for name in answer.to_roll_out if _status(statuses, name) is RolloutStatus.TO_APPLY]
        busy = [name for name in statuses if _status(statuses, name) is RolloutStatus.PROGRESSING]
        if started:
            found.append(started)
        elif not busy:
            return found
        statuses |= {name: ClusterRollout(RolloutStatus.SUCCEEDED) for name in (*started, *busy)}


def unreached(
    groups: Sequence[RolloutGroup], known: Mapping[str, ClusterRollout], found: Sequence[Sequence[str]]
) -> list[str]:
    """Clusters that no wave includes, although they have not started."""
    reached = {name for wave in found for name in wave}
    clusters = (name for group in groups for name in group.clusters)
    return sorted(name for name in clusters if name not in reached and _status(known, name) is RolloutStatus.TO_APPLY)


def _status(statuses: Mapping[str, ClusterRollout], name: str) -> RolloutStatus:
    return statuses.get(name, ClusterRollout()).status


def _count(amount: int | Fraction, total: int) -> int:
    """A number of clusters, at most all of them; a share is rounded up."""
    number = math.ceil(amount * total) if isinstance(amount, Fraction) else amount
    return max(0, min(number, total))


class _RolloutStage:
    """Clusters that roll out together: those in progress hold slots, those that wait take the free ones."""

    def __init__(
        self, strategy: RolloutStrategy, known: Mapping[str, ClusterRollout], now: float, answer: Rollout
    ) -> None:
        self._strategy = strategy
        self._known = known
        self._now = now
        self._answer = answer
        self.pending = False  # whether a cluster has neither succeeded nor failed yet

    def run(self, clusters: Sequence[str], slots: float, failures_allowed: float) -> None:
        answer = self._answer
        failures, waiting = 0, []
        for cluster in clusters:
            state = self._state(cluster)
            if state.status is RolloutStatus.SKIP:
                continue
            if state.status is RolloutStatus.TIME_OUT:
                failures += 1
                answer.timed_out.append(cluster)
            elif state.status is RolloutStatus.FAILED:
                failures += 1
                answer.to_roll_out.append(cluster)
            elif state.status is RolloutStatus.TO_APPLY:
                waiting.append(cluster)
                self.pending = True
            else:
                answer.to_roll_out.append(cluster)
                if state.status is RolloutStatus.PROGRESSING or self._soaking(state):
                    slots -= 1
                    self.pending = True
        if failures > failures_allowed:
            answer.breached = True
            return
        answer.to_roll_out += waiting[: max(0, int(min(slots, len(waiting))))]

    def _state(self, cluster: str) -> ClusterRollout:
        state = self._known.get(cluster, ClusterRollout())
        if state.status in (RolloutStatus.PROGRESSING, RolloutStatus.FAILED) and state.since is not None:
            deadline = state.since + self._strategy.progress_deadline
            if self._now >= deadline:
                return ClusterRollout(RolloutStatus.TIME_OUT, deadline)
            self._look_again(deadline)
        return state

    def _soaking(self, state: ClusterRollout) -> bool:
        if self._strategy.type is RolloutType.ALL or state.since is None:
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
