"""Turns a decision into API writes: pages to write in order, the new Placement status, events, and when to decide
again.

Pure: it compares the current with the desired state and returns the difference, which the controller applies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from wharfinger.api.times import BadTime, format_time, parse_time
from wharfinger.systems.placement.kinds.views import (
    GROUP_INDEX_LABEL,
    GROUP_NAME_LABEL,
    PLACEMENT_LABEL,
    DecisionGroupStatus,
    Placement,
    PlacementDecision,
)
from wharfinger.systems.placement.rules import conditions, replicas
from wharfinger.systems.placement.rules.explain import unselected_reasons
from wharfinger.systems.placement.rules.extras import REPLICAS
from wharfinger.systems.placement.rules.fleet import Fleet, Mask
from wharfinger.systems.placement.rules.groups import SelectedGroup, cut
from wharfinger.systems.placement.rules.pages import Page, lay_out, page_name, steps
from wharfinger.systems.placement.rules.pipeline import PlacementResult, ResultCode, Stopwatch, schedule
from wharfinger.systems.placement.rules.plan import Misconfiguration, PlacementPlan
from wharfinger.systems.placement.rules.scope import EligibleSets

EVENT_LIMIT = 1000

Pages = Mapping[str, PlacementDecision]
Decisions = list[dict[str, Any]]


class PageWrite(msgspec.Struct, frozen=True):
    """One page write. `decisions` None leaves the status unchanged; `delete` removes the page. With `labels`, the owner
    reference is written, too."""

    name: str
    create: bool = False
    delete: bool = False
    labels: dict[str, str] | None = None
    annotations: dict[str, str | None] | None = None
    decisions: Decisions | None = None


class PlacementEvent(msgspec.Struct, frozen=True):
    type: str
    reason: str
    message: str
    page: str


class PlacementOutcome(msgspec.Struct):
    result: PlacementResult
    writes: list[PageWrite] = msgspec.field(default_factory=list)
    status: dict[str, Any] | None = None  # the new status; None: unchanged
    events: list[PlacementEvent] = msgspec.field(default_factory=list)
    next_change: float = math.inf
    candidates: int = 0
    fault: Misconfiguration | None = None
    decided: tuple[str, ...] = ()  # the clusters on the pages; with a fault, those that are kept


def decide_placement(
    fleet: Fleet,
    placement: Placement,
    plan: PlacementPlan,
    scope: EligibleSets,
    existing: Pages,
    now: float,
    stopwatch: Stopwatch | None = None,
) -> PlacementOutcome:
    candidates = fleet.eligible(scope.selectors)
    count = int(np.count_nonzero(candidates))
    result = schedule(fleet, plan, candidates, now, stopwatch)
    outcome = PlacementOutcome(result, next_change=result.next_change, candidates=count)
    totals = result.selected_totals
    fault = Misconfiguration(result.plugin, result.message) if result.misconfigured else None
    groups: list[SelectedGroup] | Misconfiguration = fault or cut(fleet, plan, totals, result.selected, now)
    if isinstance(groups, Misconfiguration):
        fault = groups
        groups = [] if count else [SelectedGroup("", ())]
    held = {name: tuple(item.cluster_name for item in page.status.decisions) for name, page in existing.items()}
    if groups:
        wanted = lay_out(plan.name, groups, fleet.names, held, sticky=not plan.by_score)
    else:
        wanted = _kept(plan.name, existing, held, fleet, candidates)
    outcome.fault, outcome.decided = fault, tuple(name for page in wanted for name in page.clusters)
    fresh = _decisions(fleet, wanted, existing, result, totals, kept=not groups)
    scores_written = _page_writes(outcome, placement, plan, existing, held, wanted, fresh, now)
    verdicts = [conditions.misconfigured(fault)]
    if plan.extras.replicas is not None and groups:
        shares = replicas.divide(
            plan.extras.replicas, replicas.weights_of(plan.extras.replicas, fleet, result.selected, totals)
        )
        _annotate(outcome, existing, wanted, shares)
        verdicts.append(conditions.replicas_placed(plan.extras.replicas, shares))
    elif plan.extras.replicas is None:
        _annotate(outcome, existing, wanted, None)
    _events(outcome, fleet, plan, existing, held)
    before = placement.status.condition(conditions.SATISFIED)
    if groups or before is None:
        verdicts.insert(0, conditions.satisfied(plan, scope, count, result if groups else PlacementResult()))
    if plan.extras.unselected_reasons:
        reasons = unselected_reasons(fleet, plan, candidates, result, now)
        among = {name: why for name, why in reasons.items() if candidates[fleet.row_of[name]]}
        verdicts.append(conditions.unselected(among, plan.extras.unselected_reasons))
    outcome.status = _status(placement, plan, wanted, verdicts, scores_written, now)
    return outcome


def _kept(name: str, existing: Pages, held: Mapping[str, Sequence[str]], fleet: Fleet, candidates: Mask) -> list[Page]:
    """The existing pages without clusters that are no longer candidates: deleted, or outside the namespace's sets."""
    pages = []
    for title in sorted(existing, key=_page_number):
        labels = existing[title].metadata.labels
        clusters = tuple(c for c in held[title] if c in fleet.row_of and candidates[fleet.row_of[c]])
        index = labels.get(GROUP_INDEX_LABEL, "0")
        pages.append(Page(title, int(index) if index.isdigit() else 0, labels.get(GROUP_NAME_LABEL, ""), clusters))
    return pages or [Page(page_name(name, 1), 0, "", ())]


def _page_number(name: str) -> tuple[int, str]:
    match = re.search(r"-decision-(\d+)$", name)
    return (int(match[1]) if match else 0, name)


def _decisions(
    fleet: Fleet,
    wanted: Sequence[Page],
    existing: Pages,
    result: PlacementResult,
    totals: Mapping[int, int],
    *,
    kept: bool,
) -> dict[str, dict[str, Any]]:
    """The decision entry of each cluster; clusters that stay keep theirs."""
    if kept:
        return {
            item.cluster_name: _entry(item.cluster_name, item.reason, item.score)
            for page in existing.values()
            for item in page.status.decisions
        }
    return {
        name: _entry(name, result.reasons[row], totals[row])
        for page in wanted
        for name in page.clusters
        for row in (fleet.row_of[name],)
    }


def _entry(name: str, reason: str, score: int | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"clusterName": name, "reason": reason}
    if score is not None:
        entry["score"] = score
    return entry


def _page_writes(
    outcome: PlacementOutcome,
    placement: Placement,
    plan: PlacementPlan,
    existing: Pages,
    held: Mapping[str, tuple[str, ...]],
    wanted: Sequence[Page],
    fresh: Mapping[str, dict[str, Any]],
    now: float,
) -> bool:
    """Plans the page writes. Also returns whether scores are written."""
    current = {
        name: [_entry(item.cluster_name, item.reason, item.score) for item in page.status.decisions]
        for name, page in existing.items()
    }
    labels = {page.name: _labels(plan.name, page) for page in wanted}
    final = {page.name: [fresh[name] for name in page.clusters] for page in wanted}
    adrift = {name for name, page in existing.items() if not _is_owned(page, placement)}
    moved = bool(adrift & labels.keys()) or _moved(placement, plan, existing, held, wanted, labels)
    if not moved and current != final:
        due = _last_score_update(placement) + plan.score_rate_limit
        if now < due:
            outcome.next_change = min(outcome.next_change, due)
            return False
    written = False
    touched = set()
    for step in steps(plan.name, held, wanted):
        if step.clusters is None:
            outcome.writes.append(PageWrite(step.page, delete=True))
            continue
        create = step.page not in existing and step.page not in touched
        title = labels.get(step.page) or _labels(plan.name, Page(step.page, 0, "", ()))
        outcome.writes.append(
            PageWrite(
                step.page,
                create=create,
                labels=title if create or step.page in adrift or _differs(existing, step.page, title) else None,
                decisions=[fresh[name] for name in step.clusters],
            )
        )
        touched.add(step.page)
        written = True
    for page in wanted:
        if page.name in touched:
            continue
        status = final[page.name] if final[page.name] != current.get(page.name) else None
        relabel = None
        if page.name in adrift or _differs(existing, page.name, labels[page.name]):
            relabel = labels[page.name]
        if status is not None or relabel is not None:
            outcome.writes.append(PageWrite(page.name, labels=relabel, decisions=status))
            written = written or status is not None
    return written and any(final.values())


def _moved(
    placement: Placement,
    plan: PlacementPlan,
    existing: Pages,
    held: Mapping[str, tuple[str, ...]],
    wanted: Sequence[Page],
    labels: Mapping[str, Mapping[str, str]],
) -> bool:
    """Whether more than scores changed: the selected clusters, the pages and groups, or the spec."""
    if held.keys() != labels.keys() or any(_differs(existing, name, labels[name]) for name in labels):
        return True
    if any(len(set(clusters)) != len(clusters) for clusters in held.values()):
        return True
    condition = placement.status.condition(conditions.MISCONFIGURED)
    if condition is None or condition.observed_generation != placement.metadata.generation:
        return any(held[page.name] != page.clusters for page in wanted)
    if plan.by_score:
        # New scores can move clusters between pages without changing which clusters are selected.
        everyone = sorted(name for clusters in held.values() for name in clusters)
        return everyone != sorted(name for page in wanted for name in page.clusters)
    return any(held[page.name] != page.clusters for page in wanted)


def _differs(existing: Pages, name: str, labels: Mapping[str, str]) -> bool:
    if name not in existing:
        return True
    there = existing[name].metadata.labels
    return any(there.get(key) != value for key, value in labels.items())


def _is_owned(page: PlacementDecision, placement: Placement) -> bool:
    """Whether the page will be garbage-collected with the placement."""
    controller = page.metadata.controller
    return controller is not None and controller.uid == placement.metadata.uid


def _labels(placement: str, page: Page) -> dict[str, str]:
    return {
        PLACEMENT_LABEL: placement,
        GROUP_INDEX_LABEL: str(page.group_index),
        GROUP_NAME_LABEL: page.group_name,
    }


def _last_score_update(placement: Placement) -> float:
    try:
        return parse_time(placement.status.last_score_update_time)
    except BadTime:
        return -math.inf


def _annotate(
    outcome: PlacementOutcome, existing: Pages, wanted: Sequence[Page], shares: Mapping[str, int] | None
) -> None:
    """Sets each page's part of the replica division, or removes it."""
    for page in wanted:
        value: str | None = None
        if shares is not None:
            value = msgspec.json.encode({name: shares[name] for name in page.clusters}, order="sorted").decode()
        there = existing[page.name].metadata.annotations.get(REPLICAS) if page.name in existing else None
        if there != value:
            outcome.writes.append(PageWrite(page.name, annotations={REPLICAS: value}))


def _events(
    outcome: PlacementOutcome,
    fleet: Fleet,
    plan: PlacementPlan,
    existing: Pages,
    held: Mapping[str, tuple[str, ...]],
) -> None:
    result = outcome.result
    final = {write.name: write for write in outcome.writes if write.decisions is not None}
    deleted = {write.name for write in outcome.writes if write.delete}
    where = f"placement {plan.name} in namespace {plan.namespace}"
    for write in outcome.writes:
        if write.create and write.name not in deleted:
            outcome.events.append(
                PlacementEvent("Normal", "DecisionCreate", f"Decision {write.name} is created with {where}", write.name)
            )
        elif write.delete and write.name in existing:
            outcome.events.append(
                PlacementEvent("Normal", "DecisionDelete", f"Decision {write.name} is deleted with {where}", write.name)
            )
        if write.name in deleted or final.get(write.name) is not write or write.decisions is None:
            continue
        clusters = tuple(item["clusterName"] for item in write.decisions)
        if set(clusters) == set(held.get(write.name, ())):
            continue
        text = f"Decision {write.name} is updated with {where}"
        if result.code is ResultCode.WARNING:
            text = f"{text}: {'; '.join(result.warnings)}"[:EVENT_LIMIT]
        kind = "Warning" if result.code is ResultCode.WARNING else "Normal"
        outcome.events.append(PlacementEvent(kind, "DecisionUpdate", text, write.name))
        if len(result.rows):
            outcome.events.append(PlacementEvent("Normal", "ScoreUpdate", score_text(fleet, result), write.name))


def score_text(fleet: Fleet, result: PlacementResult) -> str:
    """`name:total ` pairs by name, truncated to what an event can hold."""
    text = ""
    for position in np.argsort(fleet.ranks[result.rows]).tolist():
        pair = f"{fleet.names[result.rows[position]]}:{result.totals[position]} "
        if len(text) + len(pair) > EVENT_LIMIT:
            return text + "......"
        text += pair
    return text


def _status(
    placement: Placement,
    plan: PlacementPlan,
    wanted: Sequence[Page],
    verdicts: Sequence[conditions.PlacementCondition],
    scores_written: bool,
    now: float,
) -> dict[str, Any] | None:
    groups: dict[int, dict[str, Any]] = {}
    for page in wanted:
        group = groups.setdefault(
            page.group_index,
            {
                "decisionGroupIndex": page.group_index,
                "decisionGroupName": page.group_name,
                "decisions": [],
                "clusterCount": 0,
            },
        )
        group["decisions"].append(page.name)
        group["clusterCount"] += len(page.clusters)
    old = placement.status
    off = set()
    if not plan.extras.unselected_reasons:
        off.add(conditions.UNSELECTED)
    if plan.extras.replicas is None:
        off.add(conditions.REPLICAS_PLACED)
    keep = [condition for condition in old.conditions if condition.type not in off]
    status: dict[str, Any] = {
        "numberOfSelectedClusters": sum(len(page.clusters) for page in wanted),
        "decisionGroups": list(groups.values()),
        "conditions": conditions.merged(keep, verdicts, placement.metadata.generation, now),
    }
    if scores_written:
        status["lastScoreUpdateTime"] = format_time(now)
    elif old.last_score_update_time:
        status["lastScoreUpdateTime"] = old.last_score_update_time
    return None if _same(status, placement) else status


def _group_document(group: DecisionGroupStatus) -> dict[str, Any]:
    return {
        "decisionGroupIndex": group.decision_group_index,
        "decisionGroupName": group.decision_group_name,
        "decisions": list(group.decisions),
        "clusterCount": group.cluster_count,
    }


def _same(status: dict[str, Any], placement: Placement) -> bool:
    old = placement.status
    return bool(
        status["numberOfSelectedClusters"] == old.number_of_selected_clusters
        and status["decisionGroups"] == [_group_document(group) for group in old.decision_groups]
        and status["conditions"] == conditions.merged(old.conditions, (), 0, 0.0)
        and status.get("lastScoreUpdateTime", "") == old.last_score_update_time
    )
