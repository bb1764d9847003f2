"""Decisions of resourcepolicy for the pods of one group: which nodes they may use now, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from wharfinger.api.resources import requests
from wharfinger.framework.columns import Ints, Rows, distinct
from wharfinger.framework.plugin import MAX_SCORE, Prepared, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.stand_ins import StandIn
from wharfinger.framework.status import Status, unresolvable, unschedulable
from wharfinger.framework.tables import PodOnNode
from wharfinger.systems.resource_policy.plugin.charges import Order, Units
from wharfinger.systems.resource_policy.plugin.counting import Share, sees
from wharfinger.systems.resource_policy.plugin.policy import ScheduledPolicy
from wharfinger.systems.resource_policy.plugin.sized import NOTHING
from wharfinger.systems.resource_policy.rules.policy import OUTSIDE, Signature, Waiting, further, order
from wharfinger.systems.resource_policy.rules.wording import group_text

if TYPE_CHECKING:
    from wharfinger.systems.resource_policy.plugin.book import NominatedPlace

ImaginedChange = tuple[Order, int, Units, Share]
"""A pod that is added to a group (1) or removed from it (-1), with the units of its node and what it takes."""

STRICT_STEP = 16
"""The least difference between two priorities in normalized scores: with the default weights, more than all stock plugins
can add up to."""

PRIORITY_POINTS = 20
"""Raw score per priority; nodes outside all units get the negative of it."""


def outside(policy: str) -> Status:
    return unresolvable(f'node(s) were in no unit of resource policy "{policy}"')


def full(policy: str, units: list[str], shortages: Sequence[tuple[str, str]] = (), group: str = "") -> Status:
    """`shortages` are the reached limits on pods and the lacking resources of each unit."""
    several = len(units) > 1
    whole = all(pods for pods, _ in shortages)
    what = (
        ("which are full" if several else "which is full") if whole else f"which {_have(several)} no room for the pod"
    )
    why = [", ".join(filter(None, each)) for each in shortages]
    if several and why:
        why = [f"{name}: {text}" for name, text in zip(units, why, strict=True)]
    of_group = f" in group {group}" if group else ""
    details = f" ({'; '.join(why)}{of_group})" if why else ""
    return unschedulable(f'node(s) were in {_named(units)} of resource policy "{policy}", {what}{details}')


def _have(several: bool) -> str:
    return "have" if several else "has"


def too_early(policy: str, units: list[str], before: list[str]) -> Status:
    """The pod has to wait for units of a higher priority; evicting pods from these nodes would not help."""
    where = f"{_named(units)} of" if units else "no unit of"
    end = "is" if len(before) == 1 else "are"
    what = f"which {'is' if len(units) == 1 else 'are'} not tried" if units else "and are not tried"
    return unresolvable(
        f'node(s) were in {where} resource policy "{policy}", {what} before {_named(before)} {end} full'
    )


def _named(units: list[str]) -> str:
    return ("unit " if len(units) == 1 else "units ") + ", ".join(f'"{name}"' for name in units)


class Governed(Prepared):
    """Filter and score for the pods of one group."""

    scope = Scope.CLUSTER
    filters = scores = normalizes = True

    def __init__(
        self,
        policy: ScheduledPolicy,
        signature: Signature,
        shape: Shape,
        nominated: Sequence[NominatedPlace] = (),
    ) -> None:
        """`nominated` are places in units that are kept for other pods, for which victims are being evicted."""
        super().__init__()
        self._nominated = nominated
        self._policy = policy
        self._rules = policy.rules
        self._signature = signature
        self._size = policy.rules.size(shape.requests)
        self._further = further(shape.pod.metadata.annotations) if policy.rules.waiting is Waiting.FULL_OR_TIME else 0
        policy.catch_up()
        self._group = policy.counting.acquire(signature)
        self._full: dict[int, Units] = {}  # by code: the units that have no room
        self._seen = (-1, -1)
        self._version = 0
        self._verdicts: Ints = np.zeros(0, dtype=np.int64)  # [kind]
        self._raw: Ints = np.zeros(0, dtype=np.int64)  # [kind]

    @property
    def version(self) -> int:
        """Incremented when the result for a kind of node changes or a node changes its kind."""
        self._policy.catch_up()
        nodes = self._policy.nodes
        seen = (self._group.version, nodes.version)
        if seen != self._seen:
            verdicts = np.array([self._code(units) for units in nodes.units], dtype=np.int64)
            if self._nominated:
                with self._imagining(self._kept_places()):
                    kept = np.array([self._code(units) for units in nodes.units], dtype=np.int64)
                verdicts = np.where(kept != 0, kept, verdicts)
            raw = np.array([self._points(units) for units in nodes.units], dtype=np.int64)
            if (
                seen[1] != self._seen[1]
                or not np.array_equal(verdicts, self._verdicts)
                or not np.array_equal(raw, self._raw)
            ):
                self._version += 1
            self._seen, self._verdicts, self._raw = seen, verdicts, raw
        return self._version

    def filter(self, rows: Rows) -> Ints:
        _ = self.version
        return self._verdicts.take(self._policy.nodes.kinds.take(rows))

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        _ = self.version
        nodes = self._policy.nodes
        if simulation is None:
            return int(self._verdicts[nodes.kinds[row]])
        imagined: dict[Order, tuple[int, Share]] = simulation.state.get(self, {})
        units = nodes.at(row)
        changes = [(which, sign, units, share) for which, (sign, share) in imagined.items()]
        # The engine simulates the pods that are nominated for this node itself.
        changes += self._kept_places(besides=row)
        if not changes:
            return self._code(units) if self._nominated else int(self._verdicts[nodes.kinds[row]])
        with self._imagining(changes):
            return self._code(units)

    def _kept_places(self, besides: int = -1) -> list[ImaginedChange]:
        """The places of nominated pods, without those on one row."""
        nodes = self._policy.nodes
        found: list[ImaginedChange] = []
        for place in self._nominated:
            row = nodes.row(place.node)
            if row >= 0 and row != besides:
                found.append((place.order, 1, nodes.at(row), (dict(place.size), 1)))
        return found

    @contextmanager
    def _imagining(self, changes: Sequence[ImaginedChange]) -> Iterator[None]:
        """Adds pods to the group (1) or removes them (-1) for a while."""
        group = self._group
        version = group.version
        for which, sign, units, share in changes:
            if sign < 0:
                group.remove(which)
            else:
                group.add(which, units, *share)
        try:
            yield
        finally:
            for which, sign, units, share in reversed(changes):
                if sign > 0:
                    group.remove(which)
                else:
                    group.add(which, units, *share)
            group.version = version  # the group is restored

    def status(self, code: int) -> Status:
        """The numbers are those of now: they change more often than the verdict."""
        units = self._full.get(code)
        if units is None:
            return super().status(code)
        rules, ordered = self._rules, sorted(units)
        with self._imagining(self._kept_places()):
            shortages = [self._group.shortages(unit, self._size) for unit in ordered]
        names = [rules.units[unit].name for unit in ordered]
        if not all(any(each) for each in shortages):
            return super().status(code)
        return full(rules.name, names, shortages, group_text(rules.keys, self._signature))

    def pod_simulated(self, simulation: Simulation, pod: PodOnNode, sign: int) -> None:
        metadata = pod.pod.metadata
        if pod.key[0] != self._rules.namespace or not self._rules.governs(metadata.labels):
            return
        if isinstance(pod.pod, StandIn) and simulation.opened != metadata.uid:
            return  # removed in the simulation only; it keeps its place
        if not self._rules.counts(pod.pod) or not sees(self._signature, self._rules.signature(metadata.labels)):
            return
        imagined = simulation.state.setdefault(self, {})
        counted = self._policy.counting.pods.get(pod.key)
        share = None if counted is None else counted.share(self._signature)
        taking = share is not None
        which = order(metadata) if counted is None else counted.order
        if share is None:
            share = (self._rules.size(requests(pod.pod)) if self._rules.sized else NOTHING), 1
        amount = imagined.get(which, (0, share))[0] + sign
        # A counted pod can only be removed and an uncounted one only added; anything else cancels out.
        if amount == 0 or (amount > 0) == taking:
            imagined.pop(which, None)
        else:
            imagined[which] = (amount, share)

    def score(self, rows: Rows) -> Ints:
        _ = self.version
        return self._raw.take(self._policy.nodes.kinds.take(rows))

    def normalize(self, scores: Ints, rows: Rows) -> Ints:
        """Normalize by dense rank, so that widely spaced priorities do not make close ones equal."""
        kinds = self._policy.nodes.kinds.take(rows)
        present = np.bincount(kinds, minlength=len(self._raw)) > 0
        levels = distinct(self._raw[present])
        if len(levels) == 1:
            return np.full_like(scores, MAX_SCORE)
        ranks = np.searchsorted(levels, self._raw)
        steps = len(levels) - 1
        # Many levels would come too close to each other between 0 and 100.
        ranks = ranks * STRICT_STEP if MAX_SCORE // steps < STRICT_STEP else ranks * MAX_SCORE // steps
        return ranks.take(kinds)

    def eviction_preference(self, row: int) -> int:
        _ = self.version
        return int(self._raw[self._policy.nodes.kinds[row]])

    def close(self) -> None:
        self._policy.counting.release(self._signature)

    def _code(self, units: Units) -> int:
        """The filter result for nodes in these units."""
        rules = self._rules
        if not units and not rules.prefer:
            return self.refuse(outside(rules.name))
        with_room = [unit for unit in units if self._group.has_room(unit, self._size)]
        names = [rules.units[unit].name for unit in sorted(units)]
        if units and not with_room:
            code = self.refuse(full(rules.name, names))
            self._full[code] = units
            return code
        if rules.waiting is not Waiting.NO_NODE:
            least = self._least()
            if rules.priority(with_room[0] if with_room else None) < least:
                better = [
                    unit.name
                    for index, unit in enumerate(rules.units)
                    if unit.priority >= least and self._group.has_room(index, self._size)
                ]
                return self.refuse(too_early(rules.name, names, better))
        return 0

    def _least(self) -> int:
        """The lowest priority the pod may use now."""
        levels = self._rules.levels
        open_ones = [
            unit.priority for index, unit in enumerate(self._rules.units) if self._group.has_room(index, self._size)
        ]
        first = levels.index(max(open_ones)) if open_ones else len(levels) - 1
        return levels[min(first + self._further, len(levels) - 1)]

    def _points(self, units: Units) -> int:
        """The raw score, from the unit the pod would be charged to. If no unit has room, the node can only pass in a
        simulation, for example inside a reservation of the pod; the first unit is used then."""
        if not units:
            return OUTSIDE * PRIORITY_POINTS
        unit = next((unit for unit in units if self._group.has_room(unit, self._size)), units[0])
        return self._rules.priority(unit) * PRIORITY_POINTS
