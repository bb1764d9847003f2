"""Preemption: which pods to evict so that one of higher priority fits. The same decisions as upstream's DefaultPreemption."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Protocol

from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.selectors import BadSelector, matches
from wharfinger.api.times import parse_time
from wharfinger.api.views import Pod
from wharfinger.api.views.workloads import PodDisruptionBudget
from wharfinger.engine.answers import Answers
from wharfinger.engine.caches import CandidateCache
from wharfinger.engine.evaluation import active_filters, check, overlays_on, simulating, unschedulable_rows
from wharfinger.engine.outcome import Candidate, Diagnosis, PreemptionResult
from wharfinger.engine.preparation import Filters
from wharfinger.framework.plugin import Prepared, Scope
from wharfinger.framework.simulation import Overlay, Simulation
from wharfinger.framework.status import Code, Status, unresolvable
from wharfinger.framework.tables import PodOnNode, Tables

NEVER = "not eligible due to preemptionPolicy=Never."
WAITING = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")
NOT_HELPFUL = unresolvable("Preemption is not helpful for scheduling")

SparedBy = Callable[[Pod, PodOnNode], str]
"""The plugin that does not let a preemptor evict a pod of lower priority; empty if none."""


class Budgets(Protocol):
    """The disruption budgets of the cluster."""

    @property
    def budgets(self) -> Sequence[PodDisruptionBudget]: ...
    @property
    def budgets_version(self) -> int: ...


def preempt(
    tables: Tables, answers: Answers, pod: Pod, diagnosis: Diagnosis, source: Budgets, spared_by: SparedBy
) -> PreemptionResult:
    """The best node to evict pods from. `diagnosis` is that of the failed scheduling attempt."""
    refusal = _ineligible(tables, pod, diagnosis, spared_by)
    if refusal:
        return PreemptionResult(False, refusal)
    rows = unschedulable_rows(tables, diagnosis)
    if not rows:
        return PreemptionResult(True, Diagnosis(tables.node_count, absent=NOT_HELPFUL).message, helps_nowhere=True)
    found = _dry_run(tables, answers, pod, rows, source, spared_by)
    candidates = {each.node: each for row in rows if isinstance(each := found.by_row[row], Candidate)}
    if not candidates:
        refused = [(each, [row]) for row in rows if isinstance(each := found.by_row[row], Status)]
        message = Diagnosis(tables.node_count, refused, absent=NOT_HELPFUL).message
        plugins = frozenset(status.plugin for status, _ in refused if status.plugin).union(*found.sparing.values())
        return PreemptionResult(True, message, plugins, helps_nowhere=True)
    equal = _best(tables, answers, candidates)
    # The same tie-break as in scheduling.
    chosen = min(equal, key=lambda name: tables.tie_breaks.cells[tables.row_of[name]])
    return PreemptionResult(True, node=chosen, candidates=candidates, chosen=sorted(equal))


def success_message(result: PreemptionResult) -> str:
    """What the message of a pod says about successful preemption, since 1.37."""
    where, number = result.node, len(result.victims)
    return f"preemption: found a potential placement for pod on node {where}, preempting {number} victims"


def _best(tables: Tables, answers: Answers, candidates: Mapping[str, Candidate]) -> list[str]:
    """The nodes of the best candidates. Where plugins prefer some rows, that comes before the start times of victims."""
    preferring = [
        prepared
        for _, prepared in answers.prepared.filters
        if type(prepared).eviction_preference is not Prepared.eviction_preference
    ]
    ranks = {name: each.rank for name, each in candidates.items()}
    if preferring:
        for name, (*cost, start) in ranks.items():
            row = tables.row_of[name]
            ranks[name] = (*cost, *(-prepared.eviction_preference(row) for prepared in preferring), start)
    best = min(ranks.values())
    return [name for name, rank in ranks.items() if rank == best]


def _dry_run(
    tables: Tables, answers: Answers, pod: Pod, rows: Sequence[int], source: Budgets, spared_by: SparedBy
) -> CandidateCache:
    """What evictions achieve on each of the rows; cached for the shape if it depends on the row alone."""
    shape = answers.prepared
    filters = active_filters(shape)
    local = not shape.overlays and all(prepared.scope is not Scope.CLUSTER for _, prepared in filters)
    cache = answers.candidates.setdefault(pod.spec.priority or 0, CandidateCache()) if local else CandidateCache()
    cache.budgets_changed(source.budgets_version)
    cache.catch_up(tables)
    narrow = filters
    if shape.only is None:
        answers.values.refresh()
        narrow = [(name, prepared) for name, prepared in filters if prepared.scope is not Scope.NODE]
    budgets = source.budgets
    for row in rows:
        if row in cache.by_row:
            continue
        # Filters of node scope need no simulation where they have accepted the row.
        chosen = narrow if narrow is filters or answers.values.node_accepts(row) else filters
        possible = _possible_victims(tables, pod, row, spared_by, cache)
        answer: tuple[list[PodOnNode], int] | Status = NO_VICTIMS
        for overlay in overlays_on(shape, row, evicting=True) if possible else ():
            answer = victims_on(tables, chosen, pod, row, possible, budgets, overlay)
            if not isinstance(answer, Status):
                break
        if isinstance(answer, Status):
            cache.by_row[row] = answer
        else:
            victims, violations = answer
            pods = [each.pod for each in victims]
            cache.by_row[row] = Candidate(tables.name(row), pods, violations, _rank(pods, violations))
    return cache


def _possible_victims(
    tables: Tables, pod: Pod, row: int, spared_by: SparedBy, cache: CandidateCache
) -> list[PodOnNode]:
    """The pods of lower priority that may be evicted; plugins that spare some are noted in the cache."""
    lower = [each for each in tables.pods_on[row].values() if _lower(each, pod)]
    keepers = [spared_by(pod, each) for each in lower]
    if any(keepers):
        cache.sparing[row] = frozenset(filter(None, keepers))
    return [each for each, keeper in zip(lower, keepers, strict=True) if not keeper]


def _ineligible(tables: Tables, pod: Pod, diagnosis: Diagnosis, spared_by: SparedBy) -> str:
    if pod.spec.preemption_policy == "Never":
        return NEVER
    nominated = pod.status.nominated_node_name
    if nominated and diagnosis.status(nominated).code is not Code.UNRESOLVABLE:
        row = tables.row_of.get(nominated)
        for victim in tables.pods_on[row].values() if row is not None else ():
            if _lower(victim, pod) and not spared_by(pod, victim) and _being_preempted(victim.pod):
                return WAITING
    return ""


def _being_preempted(pod: Pod) -> bool:
    """Whether the pod is terminating because it was preempted."""
    if not pod.terminating:
        return False
    condition = pod.status.condition("DisruptionTarget")
    return condition is not None and condition.status == "True" and condition.reason == "PreemptionByScheduler"


def _lower(victim: PodOnNode, pod: Pod) -> bool:
    return victim.priority < (pod.spec.priority or 0)


def victims_on(
    tables: Tables,
    filters: Filters,
    pod: Pod,
    row: int,
    possible: list[PodOnNode],
    budgets: Sequence[PodDisruptionBudget],
    overlay: Overlay | None = None,
) -> tuple[list[PodOnNode], int] | Status:
    """The fewest of the possible victims to evict from a node, most important first, and how many of them violate a
    budget; a status if evictions do not help."""
    simulation = Simulation(tables, row, simulating(filters))
    if overlay is not None:
        overlay(simulation)
    for each in possible:
        simulation.remove(each)
    refusal = check(tables, filters, pod, simulation)
    if refusal is not None:
        return refusal
    violating, harmless = split_by_budget(sorted(possible, key=importance), budgets, tables.kubernetes)
    victims: list[PodOnNode] = []
    violations = 0
    # Reprieve as many pods as possible, first those whose eviction would violate a budget.
    for group in (violating, harmless):
        for each in group:
            simulation.add(each)
            if check(tables, filters, pod, simulation) is not None:
                simulation.remove(each)
                victims.append(each)
                violations += group is violating
    if not victims:
        return Status(Code.ERROR, (f'expected at least one victim pod on node "{tables.name(row)}"',))
    victims.sort(key=importance)
    return victims, violations


def importance(pod: PodOnNode) -> tuple[int, float]:
    """Sort key, most important first: by priority, then by start time."""
    return -pod.priority, started(pod.pod)


def started(pod: Pod) -> float:
    """Start time in seconds since the epoch; pods that have not started come last."""
    return _seconds(pod.status.start_time) if pod.status.start_time else inf


_seconds = lru_cache(maxsize=1 << 16)(parse_time)


def split_by_budget(
    pods: Iterable[PodOnNode], budgets: Sequence[PodDisruptionBudget], kubernetes: KubernetesVersion = REFERENCE
) -> tuple[list[PodOnNode], list[PodOnNode]]:
    """The pods whose eviction would violate a disruption budget, and the others, each in the order given."""
    compiled = []
    for budget in budgets:
        try:
            selector = None if budget.spec.selector is None else budget.spec.selector.compile()
        except BadSelector:
            continue
        if selector:  # as upstream, an absent or empty selector matches nothing here
            compiled.append((budget, selector))
    allowed = [budget.status.disruptions_allowed for budget, _ in compiled]
    violating: list[PodOnNode] = []
    harmless: list[PodOnNode] = []
    for each in pods:
        metadata, violates = each.pod.metadata, False
        for index, (budget, selector) in enumerate(compiled):
            if budget.metadata.namespace != metadata.namespace or not metadata.labels:
                continue
            if not matches(selector, metadata.labels) or metadata.name in budget.status.disrupted_pods:
                continue
            allowed[index] -= 1
            if allowed[index] < 0:
                violates = True
                if kubernetes >= KubernetesVersion.V1_37:
                    break  # the budgets after the broken one are not charged
        (violating if violates else harmless).append(each)
    return violating, harmless


def _rank(victims: Sequence[Pod], violations: int) -> tuple[float, ...]:
    """Sort key, best first: fewest violated budgets, lowest highest priority, smallest sum of priorities, fewest victims,
    latest start time."""
    priorities = [victim.spec.priority or 0 for victim in victims]
    highest = priorities[0]
    first = min(started(victim) for victim, priority in zip(victims, priorities, strict=True) if priority == highest)
    # Shifted above zero, so that more pods with negative priorities do not count as less.
    total = sum(priority + (1 << 31) for priority in priorities)
    return violations, highest, total, len(priorities), -first
