"""InterPodAffinity: affinity and anti-affinity between pods, required and preferred, of both sides.

Counts per topology domain are kept by the tables (`framework/counters.py`): how many pods on nodes match the incoming
pod's terms, and how many carry terms that match the incoming pod.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.views import Pod
from wharfinger.framework.columns import Bools, Floats, Ints, LabelColumn, Rows
from wharfinger.framework.counters import DomainCounter, PodCounter, PodSelection, TermCounter, TermKind, any_on
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.plugin import MAX_SCORE, Args, Plugin, Prepared, Scope
from wharfinger.framework.pod_selectors import NOTHING, AffinityTerm
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.status import Status, unresolvable, unschedulable
from wharfinger.framework.tables import PodOnNode, Tables

FEW = 64  # up to this many domains are cheaper one by one than as arrays

REASON_AFFINITY = unresolvable("node(s) didn't match pod affinity rules")
REASON_ANTI_AFFINITY = unschedulable("node(s) didn't match pod anti-affinity rules")
REASON_EXISTING = unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")


class InterPodAffinityArgs(Args, frozen=True):
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def faults(self) -> list[FieldError]:
        if 0 <= self.hard_pod_affinity_weight <= 100:
            return []
        return [invalid("hardPodAffinityWeight", self.hard_pod_affinity_weight, "not in valid range [0, 100]")]


class InterPodAffinity(Plugin):
    name = "InterPodAffinity"
    points = frozenset({"preFilter", "filter", "preScore", "score"})
    position = 140
    weight = 2
    args_type = InterPodAffinityArgs

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        _ = shape.term_kinds  # reads all terms
        if shape.parsing_error:
            return unresolvable(f"parsing pod: {shape.parsing_error}")
        return _PodAffinity(self.tables, shape, self.args)

    def wake_ups(self) -> tuple[WakeUp, ...]:
        pod_events = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        return (
            WakeUp(POD, pod_events, self._pod_changed),
            WakeUp(NODE, Action.ADD | Action.UPDATE_NODE_LABEL, self._node_changed),
        )

    def _pod_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        if old is not None and new is not None and pod.metadata.uid == new.metadata.uid:
            return True
        if any(each is not None and not _placed(each) for each in (old, new)):
            return False
        shape = self.tables.shapes.of(pod)
        affinity, anti = shape.required_affinity, shape.required_anti_affinity
        if old is not None and new is not None:
            return (not _matches_all(affinity, old) and _matches_all(affinity, new)) or (
                _matches_all(anti, old) and not _matches_all(anti, new)
            )
        if new is not None:
            return _matches_all(affinity, new)
        theirs = self.tables.shapes.of(old).required_anti_affinity
        return _matches_all(anti, old) or _matches_all(theirs, pod)

    def _node_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        shape = self.tables.shapes.of(pod)
        labels = new.metadata.labels
        for term in shape.required_affinity:
            value = labels.get(term.topology_key)
            if value is not None and (old is None or old.metadata.labels.get(term.topology_key) != value):
                return True
        for term in shape.required_anti_affinity:
            if old is None:
                return True
            before = old.metadata.labels.get(term.topology_key)
            if before is not None and before != labels.get(term.topology_key):
                return True
        return False


def _placed(pod: Pod) -> bool:
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _matches_all(terms: Sequence[AffinityTerm], pod: Pod) -> bool:
    metadata = pod.metadata
    return bool(terms) and all(term.matches(metadata.namespace, metadata.labels, {}) for term in terms)


class _Imagined:
    """What a simulation changes on its row's domains: pods that match own terms, and terms of others by topology key."""

    def __init__(self) -> None:
        self.matching: dict[DomainCounter, int] = {}
        self.carrying: dict[str, int] = {}


_NOBODY = _Imagined()


def _elsewhere(counter: DomainCounter, row: int, imagined: _Imagined) -> bool:
    """Whether any domain's count differs from zero, with the change imagined on the row's domain."""
    here = counter.at(row)
    return here + imagined.matching.get(counter, 0) != 0 or counter.total != here


@dataclass(slots=True)
class _Domains:
    """Which domain each feasible row is in, and the normalised scores of the domains when last asked for."""

    column: LabelColumn
    rows: Rows
    position: int  # of the log of nodes
    present: list[int]  # the codes of the domains, ABSENT for none
    index: Ints  # [row] position in `present`
    scores: list[int] = field(default_factory=list)  # [domain]
    final: Ints | None = None  # [row]


class _PodAffinity(Prepared):
    scope = Scope.CLUSTER
    filters = scores = normalizes = follows_pods = True

    def __init__(self, tables: Tables, shape: Shape, args: InterPodAffinityArgs) -> None:
        super().__init__()
        self._tables = tables
        self._shape = shape
        self._args = args
        self._labels = tables.namespace_labels(shape.namespace)
        self._by_affinity = self.refuse(REASON_AFFINITY)
        self._by_anti_affinity = self.refuse(REASON_ANTI_AFFINITY)
        self._by_existing = self.refuse(REASON_EXISTING)
        self._held: list[PodCounter] = []

        together = PodSelection(tuple(self._part(term) for term in shape.required_affinity))
        keys = list(dict.fromkeys(term.topology_key for term in shape.required_affinity))
        self._affinity = [self._counter(key, together) for key in keys]  # pods that match all terms
        self._matches_itself = bool(keys) and together.matches(shape.namespace, shape.labels)
        self._anti = [
            (term, self._counter(term.topology_key, self._alone(term))) for term in shape.required_anti_affinity
        ]
        self._preferred = [
            *(
                (self._counter(term.topology_key, self._alone(term)), weight)
                for term, weight in shape.preferred_affinity
            ),
            *(
                (self._counter(term.topology_key, self._alone(term)), -weight)
                for term, weight in shape.preferred_anti_affinity
            ),
        ]
        self._existing: list[TermCounter] = []  # anti-affinity terms of others that match this pod
        self._scored: list[tuple[DomainCounter, int]] = []  # what scores count, with the scoring terms of others
        self._filtered: list[DomainCounter] = []  # what filters count
        self._terms_version = -1
        self._kept: _Domains | None = None

    def close(self) -> None:
        for counter in self._held:
            self._tables.counters.release(counter)

    # what counts

    def _part(self, term: AffinityTerm) -> tuple[frozenset[str] | None, Any]:
        """Which namespaces and labels an own term selects.

        Upstream unrolls the namespace selector into names, but keeps it, and then tries it against no labels at all
        (interpodaffinity/plugin.go, mergeAffinityTermNamespacesIfNotEmpty): one that no label meets selects every
        namespace.
        """
        if term.namespace_selector.matches({}):
            return None, term.selector
        names = set(term.namespaces)
        if term.namespace_selector is not NOTHING:
            names.update(
                name for name, labels in self._tables.namespaces.items() if term.namespace_selector.matches(labels)
            )
        return frozenset(names), term.selector

    def _alone(self, term: AffinityTerm) -> PodSelection:
        return PodSelection((self._part(term),))

    def _counter(self, topology_key: str, selection: PodSelection) -> PodCounter:
        counter = self._tables.counters.pod_counter(topology_key, selection, self._tables.placed())
        self._held.append(counter)
        return counter

    def _look_at_terms(self) -> None:
        """Finds the terms of others that match this pod; needed again only when a term appeared."""
        counters = self._tables.counters
        if self._terms_version == counters.terms_version:
            return
        self._terms_version = counters.terms_version
        matching = [
            counter
            for kind, counter in counters.terms.items()
            if kind.term.matches(self._shape.namespace, self._shape.labels, self._labels)
        ]
        self._existing = [counter for counter in matching if counter.kind.rule == "requiredAntiAffinity"]
        self._filtered = [*self._affinity, *(counter for _, counter in self._anti), *self._existing]
        self._scored = [*self._preferred]
        for counter in matching:
            weight = self._weight(counter.kind)
            if weight is not None:
                self._scored.append((counter, weight))

    def _weight(self, kind: TermKind) -> int | None:
        if kind.rule == "requiredAffinity":
            return self._args.hard_pod_affinity_weight or None
        if kind.rule == "preferredAffinity":
            return kind.weight
        return -kind.weight if kind.rule == "preferredAntiAffinity" else None

    # Where no two nodes share a domain, as with host names, a pod changes the answer of its own row alone, and rows whose
    # pods changed are asked for again anyway. The versions leave such counts out, but for going from none to some.

    @property
    def filter_version(self) -> Hashable:
        self._look_at_terms()
        some, moved = 0, 0
        for index, counter in enumerate(self._filtered):
            some |= (counter.total > 0) << index
            if not counter.column.unique:
                moved += counter.crossings  # only whether there are any in a domain counts
        return self._tables.node_log.position, self._terms_version, some, moved

    @property
    def score_version(self) -> Hashable:
        self._look_at_terms()
        some, moved = 0, 0
        for index, (counter, _) in enumerate(self._scored):
            some |= (counter.total > 0) << index
            if not counter.column.unique:
                moved += counter.version
        return self._tables.node_log.position, self._terms_version, some, moved

    @property
    def scores_follow_pods(self) -> bool:
        return any(counter.column.unique for counter, _ in self._scored if counter.total)

    # filtering

    def filtering(self) -> bool:
        self._look_at_terms()
        return bool(self._affinity or self._anti) or any(counter.total for counter in self._existing)

    def accepts(self, rows: Rows) -> Bools:
        if self._affinity:
            return super().accepts(rows)
        self._look_at_terms()
        return ~any_on((*self._existing, *(counter for _, counter in self._anti)), rows)

    def filter(self, rows: Rows) -> Ints:
        self._look_at_terms()
        size = len(rows)
        codes = np.where(any_on(self._existing, rows), self._by_existing, 0)
        if self._anti:
            # Terms over one topology key share their counts, which for "any above zero" is the same as each alone.
            refused = any_on((counter for _, counter in self._anti), rows)
            codes = np.where(refused, self._by_anti_affinity, codes)
        if self._affinity:
            has_keys = np.ones(size, dtype=np.bool_)
            found = np.ones(size, dtype=np.bool_)
            for counter in self._affinity:
                has_keys &= counter.column.codes.take(rows) >= 0
                found &= counter.on(rows) > 0
            if self._matches_itself and not any(counter.total for counter in self._affinity):
                found = np.ones(size, dtype=np.bool_)  # the first of pods that want to be together
            codes = np.where(has_keys & found, codes, self._by_affinity)
        return codes

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        imagined = _NOBODY if simulation is None else simulation.state.get(self, _NOBODY)
        if self._affinity:
            found = True
            for counter in self._affinity:
                if counter.column.codes.cells[row] < 0:
                    return self._by_affinity
                found = found and counter.at(row) + imagined.matching.get(counter, 0) > 0
            if not found:
                nobody = not any(_elsewhere(counter, row, imagined) for counter in self._affinity)
                if not (nobody and self._matches_itself):
                    return self._by_affinity
        for _, counter in self._anti:
            if counter.at(row) + imagined.matching.get(counter, 0) > 0:
                return self._by_anti_affinity
        self._look_at_terms()
        carried = dict(imagined.carrying)
        for existing in self._existing:
            key = existing.column.key
            carried[key] = carried.get(key, 0) + existing.at(row)
        return self._by_existing if any(amount > 0 for amount in carried.values()) else 0

    def pod_simulated(self, simulation: Simulation, pod: PodOnNode, sign: int) -> None:
        imagined = simulation.state.get(self)
        if imagined is None:
            imagined = simulation.state[self] = _Imagined()
        row, shape = simulation.row, pod.shape
        for counter in {*self._affinity, *(counter for _, counter in self._anti)}:
            if counter.selection.matches(shape.namespace, shape.labels):
                imagined.matching[counter] = imagined.matching.get(counter, 0) + sign
        for term in shape.required_anti_affinity:
            if term.matches(self._shape.namespace, self._shape.labels, self._labels):
                key = term.topology_key
                if self._tables.label(key).codes.cells[row] >= 0:
                    imagined.carrying[key] = imagined.carrying.get(key, 0) + sign

    # scoring

    def scoring(self) -> bool:
        if self._args.ignore_preferred_terms_of_existing_pods and not self._preferred:
            return False
        self._look_at_terms()
        return any(counter.total for counter, _ in self._scored)

    def score(self, rows: Rows) -> Ints:
        total = np.zeros(len(rows), dtype=np.int64)
        for counter, weight in self._scored:
            if counter.total:
                total += counter.on(rows) * weight
        return total

    def score_row(self, row: int) -> int:
        return sum([counter.at(row) * weight for counter, weight in self._scored])

    def normalize(self, scores: Ints, rows: Rows) -> Ints:
        if not len(scores):
            return scores
        smallest, largest = int(scores.min()), int(scores.max())
        if largest == smallest:
            return np.zeros_like(scores)
        scaled: Floats = (scores - smallest) / float(largest - smallest)
        scaled *= float(MAX_SCORE)
        return scaled.astype(np.int64)

    def final(self, rows: Rows) -> Ints:
        counted = [(counter, weight) for counter, weight in self._scored if counter.total]
        column = counted[0][0].column if counted else None
        if column is None or not len(rows) or any(counter.column is not column for counter, _ in counted):
            return super().final(rows)
        kept = self._domains(column, rows)
        if len(kept.present) > FEW:
            return super().final(rows)
        raw = [sum([counter.of(code) * weight for counter, weight in counted]) for code in kept.present]
        smallest, largest = min(raw), max(raw)
        scores = [0] * len(raw)
        if largest != smallest:
            scores = [int(MAX_SCORE * ((each - smallest) / (largest - smallest))) for each in raw]
        if kept.final is None or scores != kept.scores:
            kept.scores, kept.final = scores, np.array(scores, dtype=np.int64).take(kept.index)
        return kept.final

    def _domains(self, column: LabelColumn, rows: Rows) -> _Domains:
        """What follows from which rows are feasible; kept, for that changes less often than the counts."""
        kept, position = self._kept, self._tables.node_log.position
        if kept is None or kept.rows is not rows or kept.position != position or kept.column is not column:
            present, index = np.unique(column.codes.take(rows), return_inverse=True)
            kept = self._kept = _Domains(column, rows, position, present.tolist(), index)
        return kept


plugins = (InterPodAffinity,)
