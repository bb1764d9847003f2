"""Preemption: which pods to evict so that one of higher priority fits. The same decisions as upstream's DefaultPreemption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from wharfinger.api.views import Pod
from wharfinger.api.views.workloads import PodDisruptionBudget
from wharfinger.engine.answers import Answers
from wharfinger.engine.caches import CandidateCache
from wharfinger.engine.evaluation import active_filters, overlays_on, unschedulable_rows
from wharfinger.engine.outcome import Candidate, Diagnosis, PreemptionResult
from wharfinger.engine.preparation import PreparedShape
from wharfinger.engine.victims import NO_VICTIMS, DryRuns, lower, possible_victims, spared_by
from wharfinger.framework.columns import Rows
from wharfinger.framework.plugin import Plugin, Prepared, Scope
from wharfinger.framework.status import Code, Status, unresolvable
from wharfinger.framework.tables import PodOnNode, Tables

NEVER = "not eligible due to preemptionPolicy=Never."
WAITING = "not eligible due to a terminating pod on the nominated node."
NOT_HELPFUL = unresolvable("Preemption is not helpful for scheduling")


class Budgets(Protocol):
    """The disruption budgets of the cluster."""

    @property
    def budgets(self) -> Sequence[PodDisruptionBudget]: ...
    @property
    def budgets_version(self) -> int: ...


def preempt(
    tables: Tables, answers: Answers, pod: Pod, diagnosis: Diagnosis, source: Budgets, sparing: Sequence[Plugin] = ()
) -> PreemptionResult:
    """The best node to evict pods from. `diagnosis` is that of the failed scheduling attempt; `sparing` are the plugins that
    may keep pods from being evicted."""
    refusal = _ineligible(tables, pod, diagnosis, sparing)
    if refusal:
        return PreemptionResult(False, refusal)
    rows = unschedulable_rows(tables, diagnosis)
    if not len(rows):
        return PreemptionResult(True, Diagnosis(tables.node_count, absent=NOT_HELPFUL).message, helps_nowhere=True)
    cache = _dry_run(tables, answers, pod, rows, source, sparing)
    best = _best(answers.prepared, cache, rows)
    if not len(best):
        refused = [(each, [row]) for row in rows.tolist() if isinstance(each := cache.by_row[row], Status)]
        message = Diagnosis(tables.node_count, refused, absent=NOT_HELPFUL).message
        plugins = frozenset(status.plugin for status, _ in refused if status.plugin)
        plugins = plugins.union(cache.refusing, *cache.sparing.values())
        return PreemptionResult(True, message, plugins, helps_nowhere=True)
    # The same tie-break as in scheduling.
    chosen = int(best[tables.tie_breaks.take(best).argmin()])
    return PreemptionResult(True, node=tables.name(chosen), ranked=cache.ranked(rows, best, chosen))


def success_message(result: PreemptionResult) -> str:
    """What the message of a pod says about successful preemption, since 1.37."""
    where, number = result.node, len(result.victims)
    return f"preemption: found a potential placement for pod on node {where}, preempting {number} victims"


def _best(shape: PreparedShape, cache: CandidateCache, rows: Rows) -> Rows:
    """The rows of the best candidates. Where plugins prefer some rows, that comes before the start times of victims."""
    rows = cache.cheapest(rows)
    for _, prepared in shape.filters:
        if type(prepared).eviction_preference is not Prepared.eviction_preference and len(rows) > 1:
            preferences = np.array([prepared.eviction_preference(row) for row in rows.tolist()])
            rows = rows[preferences == preferences.max()]
    return cache.latest(rows)


def _dry_run(
    tables: Tables, answers: Answers, pod: Pod, rows: Rows, source: Budgets, sparing: Sequence[Plugin]
) -> CandidateCache:
    """What evictions achieve on each of the rows; cached for the shape if it depends on the row alone."""
    shape = answers.prepared
    filters = active_filters(shape)
    local = not shape.overlays and all(prepared.scope is not Scope.CLUSTER for _, prepared in filters)
    cache = answers.candidates.setdefault(pod.spec.priority or 0, CandidateCache()) if local else CandidateCache()
    cache.budgets_changed(source.budgets_version)
    cache.catch_up(tables)
    unknown = cache.unknown(rows)
    if not unknown:
        return cache
    whole = narrow = cache.runs(tables, filters)
    if shape.only is None:
        answers.values.refresh()
        narrow = cache.runs(tables, [each for each in filters if each[1].scope is not Scope.NODE])
    for each in (whole, narrow):
        each.begin(pod, source.budgets)
    found: list[Candidate | Status] = []
    for row in unknown:
        # Filters of node scope need no simulation where they have accepted the row.
        runs = narrow if narrow is whole or answers.values.node_accepts(row) else whole
        possible = possible_victims(tables, pod, row, sparing, cache.sparing)
        if not possible:
            found.append(NO_VICTIMS)
        elif shape.overlays:
            found.append(_with_overlays(shape, runs, row, possible, cache.refusing))
        else:
            found.append(runs.candidate_on(row, possible))
    cache.learn(unknown, found)
    return cache


def _with_overlays(
    shape: PreparedShape, runs: DryRuns, row: int, possible: Sequence[PodOnNode], refusing: set[str]
) -> Candidate | Status:
    """The answer for the first overlay under which evictions help; that for the last one if they never do. The plugins that
    refuse the row under the others are added to `refusing`."""
    answer: Candidate | Status = NO_VICTIMS
    for overlay in overlays_on(shape, row, evicting=True):
        answer = runs.candidate_on(row, possible, overlay)
        if isinstance(answer, Candidate):
            break
        if answer.plugin:
            refusing.add(answer.plugin)
    return answer


def _ineligible(tables: Tables, pod: Pod, diagnosis: Diagnosis, sparing: Sequence[Plugin]) -> str:
    if pod.spec.preemption_policy == "Never":
        return NEVER
    nominated = pod.status.nominated_node_name
    if nominated and diagnosis.status(nominated).code is not Code.UNRESOLVABLE:
        row = tables.row_of.get(nominated)
        for victim in tables.pods_on[row].values() if row is not None else ():
            if lower(victim, pod) and not spared_by(sparing, pod, victim) and _being_preempted(victim.pod):
                return WAITING
    return ""


def _being_preempted(pod: Pod) -> bool:
    """Whether the pod is terminating because it was preempted."""
    if not pod.terminating:
        return False
    condition = pod.status.condition("DisruptionTarget")
    return condition is not None and condition.status == "True" and condition.reason == "PreemptionByScheduler"
