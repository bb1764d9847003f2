"""InterPodAffinity: affinity and anti-affinity between pods, required and preferred, in both directions.

The tables keep counts per topology domain (`framework/counters.py`): how many pods on nodes match the terms of the
incoming pod, and how many carry terms that match the incoming pod.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.views import Pod
from wharfinger.framework.columns import Bools, Floats, Ints, LabelColumn, Rows
from wharfinger.framework.counters import DomainCounter, PodCounter, TermCounter, TermKind, any_on
from wharfinger.framework.domains import DomainScores
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.label_index import PodSelection
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

    def faults(self, kubernetes: KubernetesVersion) -> list[FieldError]:
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
        _ = shape.term_kinds  # parses all terms
        if shape.parsing_error:
            return unresolvable(f"parsing pod: {shape.parsing_error}")
        return _PodAffinity(self.tables, shape, self.args)

    def wake_ups(self) -> tuple[WakeUp, ...]:
        pod_events = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        return (
            WakeUp(POD, pod_events, self._pod_changed),
            WakeUp(NODE, Action.ADD | Action.UPDATE_NODE_LABEL, self._node_changed),
            # The pods on a node that is gone are no longer counted.
            WakeUp(NODE, Action.DELETE),
            WakeUp("Namespace", Action.ALL, _labels_changed),
        )

    def _pod_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        if old is not None and new is not None and pod.metadata.uid == new.metadata.uid:
            return True
        if any(each is not None and not _placed(each) for each in (old, new)):
            return False
        shape = self.tables.shapes.of(pod)
        affinity, anti = shape.required_affinity, shape.required_anti_affinity
        had, has = (each is not None and self._matches_all(affinity, each) for each in (old, new))
        if had != has and (has or self._matches_all(affinity, pod)):
            return True  # without any match, the pod may be the first of its group
        hindered, hinders = (each is not None and self._matches_any(anti, each) for each in (old, new))
        if hindered and (not hinders or len(anti) > 1):
            return True
        return new is None and self._matches_any(self.tables.shapes.of(old).required_anti_affinity, pod)

    def _node_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        if old is None:
            return True  # nobody is on it yet, unless pods came before it
        # Domains of other pods' terms may have changed as well, so any label may matter.
        return any(
            old.metadata.labels.get(key) != new.metadata.labels.get(key)
            for key in old.metadata.labels.keys() | new.metadata.labels.keys()
        )

    def _matches_all(self, terms: Sequence[AffinityTerm], pod: Pod) -> bool:
        return bool(terms) and all(self._matches(term, pod) for term in terms)

    def _matches_any(self, terms: Sequence[AffinityTerm], pod: Pod) -> bool:
        return any(self._matches(term, pod) for term in terms)

    def _matches(self, term: AffinityTerm, pod: Pod) -> bool:
        metadata = pod.metadata
        return term.matches(metadata.namespace, metadata.labels, self.tables.namespace_labels(metadata.namespace))


def _placed(pod: Pod) -> bool:
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _labels_changed(pod: Pod, old: Any, new: Any) -> bool:
    return old is None or new is None or old.metadata.labels != new.metadata.labels


class _SimulatedPods:
    """What a simulation changes in the domains of its row: the number of pods that match our terms, and by topology key the
    number of pods with terms that match us."""

    def __init__(self) -> None:
        self.matching: dict[DomainCounter, int] = {}
        self.carrying: dict[str, int] = {}


_NOBODY = _SimulatedPods()


def _elsewhere(counter: DomainCounter, row: int, simulated: _SimulatedPods) -> bool:
    """Whether the count of any domain differs from zero, the simulated change included."""
    here = counter.at(row)
    return here + simulated.matching.get(counter, 0) != 0 or counter.total != here


class _FeasibleDomains(NamedTuple):
    """The domains of the feasible rows, cached for a topology key and a state of the nodes."""

    column: LabelColumn
    rows: Rows
    position: int  # of the node log
    domains: DomainScores


class _PodAffinity(Prepared):
    scope = Scope.CLUSTER
    filters = scores = bounded = normalizes = follows_pods = True

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
        self._affinity = [self._counter(key, together) for key in keys]  # by topology key: pods that match all terms
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
        self._existing: list[TermCounter] = []  # anti-affinity terms of pods on nodes that match this pod
        self._scored: list[tuple[DomainCounter, int]] = []  # what the scores count, terms of pods on nodes included
        self._filtered: list[DomainCounter] = []  # what the filter counts
        self._terms_version = -1
        self._known: _FeasibleDomains | None = None

    def close(self) -> None:
        for counter in self._held:
            self._tables.counters.release(counter)

    # -- counting

    def _part(self, term: AffinityTerm) -> tuple[frozenset[str] | None, Any]:
        """The namespaces (None for all) and the selector of a term of the incoming pod.

        The namespace selector is resolved to names. 1.36 then also matches it against empty labels
        (interpodaffinity/plugin.go, mergeAffinityTermNamespacesIfNotEmpty): a selector that matches those selects every
        namespace.
        """
        selector = term.namespace_selector
        resolved = self._tables.kubernetes >= KubernetesVersion.V1_37
        if selector.empty if resolved else selector.matches({}):
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
        counter = self._tables.counters.pod_counter(topology_key, selection)
        self._held.append(counter)
        return counter

    def _look_at_terms(self) -> None:
        """Finds the terms of pods on nodes that match this pod, when terms were added or dropped."""
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

    # If no two nodes share a domain, as with host names, a pod changes the answer for its own row alone, and rows whose
    # pods changed are evaluated again anyway. The versions ignore such counts, except for a change between none and some.

    @property
    def filter_version(self) -> Hashable:
        self._look_at_terms()
        some, moved = 0, 0
        for index, counter in enumerate(self._filtered):
            some |= (counter.total > 0) << index
            if not counter.column.unique:
                moved += counter.crossings  # it only matters whether there are any in a domain
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

    # -- filtering

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
            # Upstream adds up the counts of terms with the same topology key; for "above zero" that makes no difference.
            refused = any_on((counter for _, counter in self._anti), rows)
            codes = np.where(refused, self._by_anti_affinity, codes)
        if self._affinity:
            has_keys = np.ones(size, dtype=np.bool_)
            found = np.ones(size, dtype=np.bool_)
            for counter in self._affinity:
                has_keys &= counter.column.codes.take(rows) >= 0
                found &= counter.on(rows) > 0
            if self._matches_itself and not any(counter.total for counter in self._affinity):
                found = np.ones(size, dtype=np.bool_)  # the first pod of a group with affinity to itself
            codes = np.where(has_keys & found, codes, self._by_affinity)
        return codes

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        simulated = _NOBODY if simulation is None else simulation.state.get(self, _NOBODY)
        if self._affinity:
            found = True
            for counter in self._affinity:
                if counter.column.codes.cells[row] < 0:
                    return self._by_affinity
                found = found and counter.at(row) + simulated.matching.get(counter, 0) > 0
            if not found:
                nobody = not any(_elsewhere(counter, row, simulated) for counter in self._affinity)
                if not (nobody and self._matches_itself):
                    return self._by_affinity
        for _, counter in self._anti:
            if counter.at(row) + simulated.matching.get(counter, 0) > 0:
                return self._by_anti_affinity
        self._look_at_terms()
        carried = dict(simulated.carrying)
        for existing in self._existing:
            key = existing.column.key
            carried[key] = carried.get(key, 0) + existing.at(row)
        return self._by_existing if any(amount > 0 for amount in carried.values()) else 0

    def pod_simulated(self, simulation: Simulation, pod: PodOnNode, sign: int) -> None:
        simulated = simulation.state.get(self)
        if simulated is None:
            simulated = simulation.state[self] = _SimulatedPods()
        row, shape = simulation.row, pod.shape
        for counter in {*self._affinity, *(counter for _, counter in self._anti)}:
            if counter.selection.matches(shape.namespace, shape.labels):
                simulated.matching[counter] = simulated.matching.get(counter, 0) + sign
        for term in shape.required_anti_affinity:
            if term.matches(self._shape.namespace, self._shape.labels, self._labels):
                key = term.topology_key
                if self._tables.label(key).codes.cells[row] >= 0:
                    simulated.carrying[key] = simulated.carrying.get(key, 0) + sign

    def pod_left_elsewhere(self, simulation: Simulation, pod: PodOnNode) -> None:
        """Anti-affinity between the pods no longer counts. Affinity does, since it is about the pods that stay."""
        simulated = simulation.state.get(self)
        if simulated is None:
            simulated = simulation.state[self] = _SimulatedPods()
        row, shape = simulation.row, pod.shape
        for counter in {counter for _, counter in self._anti}:
            if counter.selection.matches(shape.namespace, shape.labels) and counter.column.same(pod.row, row):
                simulated.matching[counter] = simulated.matching.get(counter, 0) - 1
        for term in shape.required_anti_affinity:
            key = term.topology_key
            if term.matches(self._shape.namespace, self._shape.labels, self._labels):
                if self._tables.label(key).same(pod.row, row):
                    simulated.carrying[key] = simulated.carrying.get(key, 0) - 1

    # -- scoring

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

    @property
    def scales(self) -> bool:
        return True

    def normalize_values(self, values: Sequence[int]) -> list[int]:
        smallest, largest = min(values), max(values)
        if largest == smallest:
            return [0] * len(values)
        return [int(MAX_SCORE * ((each - smallest) / (largest - smallest))) for each in values]

    def final(self, rows: Rows) -> Ints:
        found = self.by_domain(rows)
        return super().final(rows) if found is None else found[0].by_row(found[1])

    def by_domain(self, rows: Rows) -> tuple[DomainScores, list[int]] | None:
        counted = [(counter, weight) for counter, weight in self._scored if counter.total]
        column = counted[0][0].column if counted else None
        if column is None or not len(rows) or any(counter.column is not column for counter, _ in counted):
            return None
        domains = self._domains(column, rows)
        if len(domains.codes) > FEW:
            return None
        if len(domains.codes) == 1:
            return domains, [0]  # all rows score the same
        raw = [sum([counter.of(code) * weight for counter, weight in counted]) for code in domains.codes]
        return domains, self.normalize_values(raw)

    def _domains(self, column: LabelColumn, rows: Rows) -> DomainScores:
        """Cached, since the feasible rows change less often than the counts."""
        known, position = self._known, self._tables.node_log.position
        if known is None or known.rows is not rows or known.position != position or known.column is not column:
            known = self._known = _FeasibleDomains(column, rows, position, DomainScores(column.codes.take(rows)))
        return known.domains


plugins = (InterPodAffinity,)
