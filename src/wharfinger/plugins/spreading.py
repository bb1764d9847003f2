"""Spreading pods over topology domains: constraints, the counts behind them, and the answers for one shape."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, log

import numpy as np

from wharfinger.api.selectors import exact_labels
from wharfinger.api.taints import has_untolerated_taint
from wharfinger.api.views.pods import TopologySpreadConstraint
from wharfinger.framework.columns import Bools, Floats, Ints, LabelColumn, Rows
from wharfinger.framework.counters import RowCounter, Selection
from wharfinger.framework.plugin import MAX_SCORE, Prepared, Scope
from wharfinger.framework.pod_selectors import NOTHING, PodSelector, pod_selector
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.status import unresolvable, unschedulable
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.plugins.node_affinity import matching

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

FEW = 64  # up to so many domains are cheaper one by one

REASON_SKEW = unschedulable("node(s) didn't match pod topology spread constraints")
REASON_LABEL = unresolvable("node(s) didn't match pod topology spread constraints (missing required label)")


@dataclass(frozen=True, slots=True)
class Constraint:
    max_skew: int
    topology_key: str
    selector: PodSelector
    min_domains: int
    honor_affinity: bool
    honor_taints: bool


def constraints(
    stated: Sequence[TopologySpreadConstraint],
    labels: Mapping[str, str],
    action: str,
    selector: PodSelector | None = None,
) -> tuple[Constraint, ...]:
    """The constraints with that action, their selectors read (or replaced by one given). Raises BadSelector."""
    found = []
    for each in stated:
        if each.when_unsatisfiable != action:
            continue
        own = pod_selector(each.label_selector)
        same = {key: labels[key] for key in each.match_label_keys if key in labels}
        if same and own.requirements is not None:
            own = PodSelector((*exact_labels(same), *own.requirements))
        found.append(
            Constraint(
                each.max_skew,
                each.topology_key,
                own if selector is None else selector,
                1 if each.min_domains is None else each.min_domains,
                each.node_affinity_policy in (None, "Honor"),
                each.node_taints_policy == "Honor",
            )
        )
    return tuple(found)


class Domains:
    """The pods one constraint counts: on each row, and summed over the eligible rows of each domain."""

    def __init__(
        self, constraint: Constraint, column: LabelColumn, counter: RowCounter, labels: Mapping[str, str]
    ) -> None:
        self.constraint = constraint
        self.own = 1 if constraint.selector.matches(labels) else 0  # what one more pod with these labels counts
        self.column = column
        self.counter = counter
        self.eligible: Bools = np.zeros(0, dtype=np.bool_)  # [row]
        self.sums: Ints = np.zeros(0, dtype=np.int64)  # [domain]
        self._present: Rows = np.zeros(0, dtype=np.int64)  # the domains that have an eligible row
        self._smallest: int | None = 0  # None: to be found out
        self._version = -1

    def rebuild(self, eligible: Bools) -> None:
        self.eligible = eligible
        codes = self.column.codes.view
        there = eligible & (codes >= 0)
        # One cell more than there are domains, so that code -1 reads one that stays zero.
        size = len(self.column.values) + 1
        chosen = codes[there]
        self.sums = np.bincount(chosen, weights=self.counter.counts[there], minlength=size).astype(np.int64)
        self._present = np.flatnonzero(np.bincount(chosen, minlength=size))
        self._version = self.counter.version
        self._smallest = None

    def refresh(self) -> None:
        if self._version == self.counter.version:
            return
        deltas = self.counter.since(self._version)
        if deltas is None:
            self.rebuild(self.eligible)
            return
        codes = self.column.codes.cells
        for row, amount in deltas:
            if self.eligible[row] and codes[row] >= 0:
                self.sums[codes[row]] += amount
        self._version = self.counter.version
        self._smallest = None

    @property
    def smallest(self) -> int:
        if self._smallest is None:
            self._smallest = self.minimum(self.sums)
        return self._smallest

    def skewed(self) -> Bools:
        """Which domains one more pod would make too full."""
        return np.frombuffer(self.full(), dtype=np.bool_)

    def full(self) -> bytes:
        """The same in a form that is quickly compared, a byte for each domain."""
        most = self.constraint.max_skew + self.smallest - self.own
        if len(self.sums) > FEW:
            return (self.sums > most).tobytes()
        return bytes([each > most for each in self.sums.tolist()])

    def minimum(self, sums: Ints) -> int:
        """The count that the others are compared with; 0 while there are fewer domains than asked for."""
        number = len(self._present)
        if number < self.constraint.min_domains or not number:
            return 0
        if number > FEW:
            return int(sums.take(self._present).min())
        return min([int(each) for each in sums.take(self._present).tolist()])


@dataclass(slots=True)
class _Feasible:
    """The feasible rows, which of them are scored, and for each soft constraint their domains and how many those are."""

    rows: Rows
    position: int  # of the log of nodes
    scored: Bools
    all_scored: bool
    codes: list[Ints]
    numbers: list[int]
    shares: Shares | None = None  # where one constraint scores all the rows, by domains that are few


@dataclass(slots=True)
class Shares:
    """Which domain each feasible row is in, and the normalised scores of the domains when last asked for."""

    present: list[int]  # the codes of the domains
    index: Ints  # [row] position in `present`
    scores: list[int] = field(default_factory=list)  # [domain]
    final: Ints | None = None  # [row]


def _rounded(values: Floats) -> Floats:
    """To whole numbers, halves up; the values are not negative."""
    whole = np.floor(values)
    whole += values - whole >= 0.5
    return whole


def _rounded_one(value: float) -> int:
    whole = floor(value)
    return whole + (value - whole >= 0.5)


class Spread(Prepared):
    scope = Scope.CLUSTER
    filters = scores = normalizes = True

    def __init__(
        self,
        tables: Tables,
        shape: Shape,
        read: Callable[[], tuple[tuple[Constraint, ...], tuple[Constraint, ...]]],
        source_version: Callable[[], int],
        *,
        require_all: bool,
    ) -> None:
        super().__init__()
        self._tables = tables
        self._shape = shape
        self._read = read
        self._source_version = source_version
        self._require_all = require_all  # whether nodes without all the topology keys stay out of the scores
        self._by_label = self.refuse(REASON_LABEL)
        self._by_skew = self.refuse(REASON_SKEW)
        self._hard: list[Domains] = []
        self._soft: list[Domains] = []
        self._read_version = -1
        self._node_position = -1
        self._refreshed_at = -1
        self._kept: _Feasible | None = None
        self._full: list[bytes] = []  # for each hard constraint what `Domains.full` said
        self._full_at = -2
        self._full_counted = -1  # the counters' versions together
        self._full_version = 0
        self._read_constraints()

    def close(self) -> None:
        for domains in (*self._hard, *self._soft):
            self._tables.counters.release(domains.counter)
        self._hard, self._soft = [], []

    # what is counted

    def _read_constraints(self) -> None:
        hard, soft = self._read()
        self.close()
        self._hard = [self._domains(each) for each in hard]
        self._soft = [self._domains(each) for each in soft]
        self._read_version = self._source_version()
        self._node_position = -1
        self._refreshed_at = -1
        self._full_at = -2
        self._kept = None

    def _domains(self, constraint: Constraint) -> Domains:
        # An empty selector counts nothing here, although it matches every pod (countPodsMatchSelector).
        selector = NOTHING if constraint.selector.empty else constraint.selector
        selection = Selection(((frozenset((self._shape.namespace,)), selector),), ignore_terminating=True)
        counter = self._tables.counters.row_counter(selection, self._tables.placed())
        return Domains(constraint, self._tables.label(constraint.topology_key), counter, self._shape.labels)

    def _refresh(self) -> None:
        version = self._tables.version
        if self._refreshed_at == version:
            return
        self._refreshed_at = version
        if self._read_version != self._source_version():
            self._read_constraints()
        if not self._hard and not self._soft:
            return
        position = self._tables.node_log.position
        if self._node_position != position or len((self._hard or self._soft)[0].eligible) != self._tables.capacity:
            self._node_position = position
            every = np.arange(self._tables.capacity)
            hard_keys = self._with_keys(self._hard, every)
            for domains in self._hard:
                domains.rebuild(hard_keys & self._included(domains.constraint, every))
            soft_keys = self._with_keys(self._soft, every) if self._require_all else self._tables.alive
            for domains in self._soft:
                domains.rebuild(soft_keys & self._included(domains.constraint, every))
            return
        for domains in (*self._hard, *self._soft):
            domains.refresh()

    def _with_keys(self, domains: list[Domains], rows: Rows) -> Bools:
        found = self._tables.alive[rows]
        for each in domains:
            found = found & (each.column.codes.view[rows] >= 0)
        return found

    def _included(self, constraint: Constraint, rows: Rows) -> Bools:
        """The rows whose pods count, by the constraint's inclusion policies."""
        included = np.ones(len(rows), dtype=np.bool_)
        if constraint.honor_affinity and not self._shape.node_affinity.anything:
            included &= matching(self._tables, self._shape.node_affinity, rows)
        if constraint.honor_taints:
            tolerations = self._shape.pod.spec.tolerations
            kept_off = np.array([has_untolerated_taint(tolerations, taints) for taints in self._tables.taint_lists])
            included &= ~kept_off[self._tables.taints.view[rows]]
        return included

    @property
    def filter_version(self) -> int:
        """Moves when another domain is too full, not with every pod that is counted."""
        if not self._hard and self._read_version == self._source_version():
            return 0
        self._refresh()
        counted = sum([domains.counter.version for domains in self._hard])
        if counted == self._full_counted and self._node_position == self._full_at:
            return self._full_version
        self._full_counted = counted
        full = [domains.full() for domains in self._hard]
        if self._node_position != self._full_at or full != self._full:
            self._full, self._full_at = full, self._node_position
            self._full_version += 1
        return self._full_version

    @property
    def score_version(self) -> Hashable:
        if self._read_version != self._source_version():
            self._read_constraints()
        moved = sum(domains.counter.version for domains in self._soft)
        return self._tables.node_log.position, self._read_version, moved

    # filtering

    def filtering(self) -> bool:
        self._refresh()
        return bool(self._hard)

    def accepts(self, rows: Rows) -> Bools:
        return self._accepts([domains.column.codes.take(rows) for domains in self._hard], len(rows))

    def accepts_all(self, capacity: int) -> Bools | None:
        return self._accepts([domains.column.codes.view for domains in self._hard], capacity)

    def _accepts(self, codes: list[Ints], size: int) -> Bools:
        _ = self.filter_version  # brings what is too full up to date
        found: Bools | None = None
        for full, where in zip(self._full, codes, strict=True):
            fine = ~np.frombuffer(full, dtype=np.bool_)
            fine[-1] = False  # what code -1 finds
            passed = fine[where]
            found = passed if found is None else found & passed
        return np.ones(size, dtype=np.bool_) if found is None else found

    def filter(self, rows: Rows) -> Ints:
        self._refresh()
        codes = np.zeros(len(rows), dtype=np.int64)
        # The first constraint that is not met speaks, so the last is written first.
        for domains in reversed(self._hard):
            skewed = domains.skewed()
            where = domains.column.codes.take(rows)
            if skewed.any():
                codes = np.where(skewed[where], self._by_skew, codes)
            codes = np.where(where < 0, self._by_label, codes)
        return codes

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        self._refresh()
        imagined = None if simulation is None else simulation.state.get(self)
        for index, domains in enumerate(self._hard):
            code = domains.column.codes.cells[row]
            if code < 0:
                return self._by_label
            constraint = domains.constraint
            count, smallest = int(domains.sums[code]), domains.smallest
            if imagined is not None and imagined[index]:
                sums = domains.sums.copy()
                sums[code] += imagined[index]
                count, smallest = count + imagined[index], domains.minimum(sums)
            if count + domains.own - smallest > constraint.max_skew:
                return self._by_skew
        return 0

    def pod_simulated(self, simulation: Simulation, pod: PodOnNode, sign: int) -> None:
        if not self._hard or pod.shape.namespace != self._shape.namespace:
            return
        row = simulation.row
        if any(domains.column.codes.cells[row] < 0 for domains in self._hard):
            return
        imagined = simulation.state.get(self)
        if imagined is None:
            imagined = simulation.state[self] = [0] * len(self._hard)
        for index, domains in enumerate(self._hard):
            # Unlike the counts, upstream does not leave terminating pods out here (updateWithPod).
            if domains.constraint.selector.matches(pod.shape.labels) and domains.eligible[row]:
                imagined[index] += sign

    # scoring

    def scoring(self) -> bool:
        self._refresh()
        return bool(self._soft)

    def score(self, rows: Rows) -> Ints:
        self._refresh()
        if not self._soft:
            return np.zeros(len(rows), dtype=np.int64)
        where = self._feasible(rows)
        if len(self._soft) == 1 and self._soft[0].constraint.topology_key != HOSTNAME:
            # One score for each domain: rounded there, and looked up.
            domains = self._soft[0]
            by_domain = domains.sums * np.float64(log(where.numbers[0] + 2)) + (domains.constraint.max_skew - 1)
            by_domain[-1] = 0.0
            return _rounded(by_domain).astype(np.int64).take(where.codes[0], mode="wrap")
        total: Floats | None = None
        for domains, codes, number in zip(self._soft, where.codes, where.numbers, strict=True):
            weight, shift = np.float64(log(number + 2)), np.float64(domains.constraint.max_skew - 1)
            if domains.constraint.topology_key == HOSTNAME:
                part: Floats = domains.counter.counts.take(rows) * weight + shift
                part[codes < 0] = 0.0
            else:
                by_domain = domains.sums * weight + shift
                by_domain[-1] = 0.0  # what code -1 finds
                part = by_domain.take(codes, mode="wrap")
            total = part if total is None else total + part
        assert total is not None
        scores = _rounded(total).astype(np.int64)
        if not where.all_scored:
            scores[~where.scored] = 0
        return scores

    def normalize(self, scores: Ints, rows: Rows) -> Ints:
        where = self._feasible(rows)
        counted = scores if where.all_scored else scores[where.scored]
        if not len(counted):
            return np.zeros_like(scores)
        largest, smallest = max(int(counted.max()), 0), int(counted.min())
        if largest == 0:
            final = np.full_like(scores, MAX_SCORE)
        else:
            final = largest + smallest - scores
            final *= MAX_SCORE
            final //= largest
        if not where.all_scored:
            final[~where.scored] = 0
        return final

    def final(self, rows: Rows) -> Ints:
        self._refresh()
        shares = self._feasible(rows).shares if self._soft else None
        if shares is None:
            return super().final(rows)
        domains = self._soft[0]
        sums = domains.sums.tolist()
        weight, shift = log(len(shares.present) + 2), domains.constraint.max_skew - 1
        raw = [_rounded_one(sums[code] * weight + shift) if code >= 0 else 0 for code in shares.present]
        largest, smallest = max(raw), min(raw)
        scores = [(largest + smallest - each) * MAX_SCORE // largest if largest else MAX_SCORE for each in raw]
        if shares.final is None or scores != shares.scores:
            shares.scores, shares.final = scores, np.array(scores, dtype=np.int64).take(shares.index)
        return shares.final

    def _feasible(self, rows: Rows) -> _Feasible:
        """What follows from which rows are feasible; kept, for that changes less often than the counts."""
        kept = self._kept
        if kept is None or kept.rows is not rows or kept.position != self._tables.node_log.position:
            scored = self._with_keys(self._soft, rows) if self._require_all else np.ones(len(rows), dtype=np.bool_)
            codes, numbers = [], []
            for domains in self._soft:
                of_rows = domains.column.codes.take(rows)
                codes.append(of_rows)
                if domains.constraint.topology_key == HOSTNAME:
                    numbers.append(int(np.count_nonzero(scored)))
                else:
                    # Code -1 is a domain of its own where nodes without the key are scored too.
                    numbers.append(int(np.count_nonzero(np.bincount(of_rows[scored] + 1))))
            kept = self._kept = _Feasible(
                rows, self._tables.node_log.position, scored, bool(scored.all()), codes, numbers
            )
            if len(self._soft) == 1 and kept.all_scored and numbers[0] <= FEW:
                if self._soft[0].constraint.topology_key != HOSTNAME and len(rows):
                    present, index = np.unique(codes[0], return_inverse=True)
                    kept.shares = Shares(present.tolist(), index)
        return kept


__all__ = ["HOSTNAME", "ZONE", "Constraint", "Domains", "Spread", "constraints"]
