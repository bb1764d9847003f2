"""The decision pipeline: filter the candidates, score the rest, select. The result keeps every step for explanations."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

import msgspec
import numpy as np

from wharfinger.api.registry import Document
from wharfinger.api.views.base import view
from wharfinger.systems.placement.kinds.placement import convert_placement
from wharfinger.systems.placement.kinds.views import AddOnPlacementScore, Placement, PlacementDecision
from wharfinger.systems.placement.rules import prioritizers, spread, taints, windows
from wharfinger.systems.placement.rules.fleet import Fleet, Ints, Mask
from wharfinger.systems.placement.rules.plan import Misconfiguration, PlacementPlan, make_plan
from wharfinger.systems.placement.rules.selectors import Selector

PREDICATE, TAINT_TOLERATION, CAPACITY, TIME_WINDOW = "Predicate", taints.NAME, "Capacity", "TimeWindow"
AFTER = 0.001  # seconds; a score is valid up to and including its expiry, which takes effect just after it


class ResultCode(Enum):
    SUCCESS = "Success"
    WARNING = "Warning"
    MISCONFIGURED = "Misconfigured"


class PlacementResult(msgspec.Struct):
    """The result of one decision. Row numbers are those of the fleet."""

    code: ResultCode = ResultCode.SUCCESS
    plugin: str = ""
    message: str = ""  # of the last warning, as upstream
    warnings: list[str] = msgspec.field(default_factory=list)  # every warning, with its plugin
    filtered: dict[str, Ints] = msgspec.field(default_factory=dict)  # rows left after each filter
    rows: Ints = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))  # rows left after all filters
    parts: list[prioritizers.Part] = msgspec.field(default_factory=list)
    totals: Ints = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))  # along `rows`
    selected: list[int] = msgspec.field(default_factory=list)  # rows, best first (with spread: in pick order)
    reasons: dict[int, str] = msgspec.field(default_factory=dict)  # why each row was selected
    selected_totals: dict[int, int] = msgspec.field(default_factory=dict)
    missing: int = 0  # number of clusters short of the request
    next_change: float = math.inf  # when time alone can change the result
    timings: list[tuple[str, str, float]] = msgspec.field(default_factory=list)  # kind, plugin, seconds; if timed

    @property
    def misconfigured(self) -> bool:
        return self.code is ResultCode.MISCONFIGURED

    def total_of(self) -> dict[int, int]:
        return dict(zip(self.rows.tolist(), self.totals.tolist(), strict=True))


Stopwatch = Callable[[], float]


def schedule(
    fleet: Fleet, plan: PlacementPlan, candidates: Mask, now: float, stopwatch: Stopwatch | None = None
) -> PlacementResult:
    """Decides `plan` among the candidates (a mask over the fleet's rows). With a stopwatch, plugins are timed."""
    result = PlacementResult()
    own = fleet.decided(plan.namespace, plan.name)
    rows = np.flatnonzero(candidates)
    for name, apply in _FILTERS:
        started = stopwatch() if stopwatch else 0.0
        outcome = apply(fleet, plan, rows, own, now, result)
        if stopwatch:
            result.timings.append(("filter", name, stopwatch() - started))
            if name == PREDICATE and _uses_cel(plan):
                result.timings.append(("cel", name, stopwatch() - started))
        if isinstance(outcome, Misconfiguration):
            return _misconfigured(result, outcome)
        rows = outcome
    if isinstance(plan.prioritizers, Misconfiguration):
        return _misconfigured(result, plan.prioritizers)
    result.rows = rows
    _score(fleet, plan, rows, own, now, result, stopwatch)
    _select(fleet, plan, own, result)
    return result


def _misconfigured(result: PlacementResult, fault: Misconfiguration) -> PlacementResult:
    result.code, result.plugin, result.message = ResultCode.MISCONFIGURED, fault.plugin, fault.message
    return result


def _predicate(
    fleet: Fleet, plan: PlacementPlan, rows: Ints, own: Sequence[int], now: float, result: PlacementResult
) -> Ints | Misconfiguration:
    if plan.predicates != () and len(rows):
        if isinstance(plan.predicates, Misconfiguration):
            return plan.predicates
        if any(selector.uses_scores for selector in plan.predicates):
            result.next_change = min(result.next_change, fleet.next_score_expiry(rows.tolist(), now) + AFTER)
        rows = rows[fleet.fitting(plan.predicates, now)[rows]]
    result.filtered[PREDICATE] = rows
    return rows


def _taint_toleration(
    fleet: Fleet, plan: PlacementPlan, rows: Ints, own: Sequence[int], now: float, result: PlacementResult
) -> Ints | Misconfiguration:
    if len(rows):
        if isinstance(plan.tolerations, Misconfiguration):
            return plan.tolerations
        new, decided = fleet.tolerance(plan.tolerations)
        until = new[rows]
        if own:
            mine = np.isin(rows, np.asarray(own))
            until = np.where(mine, decided[rows], until)
        passing = until > now
        rows = rows[passing]
        result.next_change = min(result.next_change, float(until[passing].min(initial=np.inf)))
    result.filtered[f"{PREDICATE},{TAINT_TOLERATION}"] = rows
    return rows


def _capacity(
    fleet: Fleet, plan: PlacementPlan, rows: Ints, own: Sequence[int], now: float, result: PlacementResult
) -> Ints | Misconfiguration:
    """Our extension: a cluster can be selected only if enough pods fit there."""
    need = plan.extras.capacity
    if need is None:
        return rows
    counts, until = fleet.fitting_pods(plan.capacity_resource, need.count)
    valid = until[rows] >= now
    passing = valid & (counts[rows] >= need.minimum)
    if need.when_selected == "Keep":
        passing |= np.isin(rows, np.asarray(own, np.int64))
    result.next_change = min(result.next_change, float(until[rows][valid].min(initial=np.inf)) + AFTER)
    rows = rows[passing]
    result.filtered[f"{PREDICATE},{TAINT_TOLERATION},{CAPACITY}"] = rows
    return rows


def _time_window(
    fleet: Fleet, plan: PlacementPlan, rows: Ints, own: Sequence[int], now: float, result: PlacementResult
) -> Ints | Misconfiguration:
    """Our extension: a cluster cannot be selected outside its time windows."""
    setting = plan.extras.time_windows
    if setting is None or not len(rows):
        return rows
    if isinstance(plan.window_selector, Misconfiguration):
        return plan.window_selector
    result.next_change = min(result.next_change, windows.next_change(setting.windows, now))
    if not windows.open_at(setting.windows, now):
        bound = np.ones(len(rows), bool)
        if isinstance(plan.window_selector, Selector):
            if plan.window_selector.uses_scores:
                result.next_change = min(result.next_change, fleet.next_score_expiry(rows.tolist(), now) + AFTER)
            bound = fleet.matching(plan.window_selector, now)[rows]
        if setting.outside == "Keep":
            bound &= ~np.isin(rows, np.asarray(own, np.int64))
        rows = rows[~bound]
    result.filtered[f"{PREDICATE},{TAINT_TOLERATION},{TIME_WINDOW}"] = rows
    return rows


_FILTERS = (
    (PREDICATE, _predicate),
    (TAINT_TOLERATION, _taint_toleration),
    (CAPACITY, _capacity),
    (TIME_WINDOW, _time_window),
)


def _uses_cel(plan: PlacementPlan) -> bool:
    return not isinstance(plan.predicates, Misconfiguration) and any(
        selector.expressions for selector in plan.predicates
    )


def _score(
    fleet: Fleet,
    plan: PlacementPlan,
    rows: Ints,
    own: Sequence[int],
    now: float,
    result: PlacementResult,
    stopwatch: Stopwatch | None,
) -> None:
    assert not isinstance(plan.prioritizers, Misconfiguration)
    tolerations = () if isinstance(plan.tolerations, Misconfiguration) else plan.tolerations
    context = prioritizers.PrioritizerContext(fleet, rows, own, tolerations, now)
    result.totals = np.zeros(len(rows), np.int64)
    for prioritizer in plan.prioritizers:
        started = stopwatch() if stopwatch else 0.0
        part = prioritizers.evaluate(prioritizer, context)
        if stopwatch:
            result.timings.append(("prioritizer", prioritizer.name, stopwatch() - started))
        result.parts.append(part)
        result.totals += prioritizer.weight * part.scores
        result.next_change = min(result.next_change, part.next_expiry + AFTER)
        if part.expired:
            names = " ".join(f"{fleet.names[row]}/{prioritizer.resource_name}" for row in part.expired)
            result.code, result.plugin = ResultCode.WARNING, prioritizer.name
            result.message = f"AddOnPlacementScores {names} expired"
            result.warnings.append(f"{result.message} in plugin {result.plugin}")


def _select(fleet: Fleet, plan: PlacementPlan, own: Sequence[int], result: PlacementResult) -> None:
    rows, extras = result.rows, plan.extras
    merit = result.totals
    if extras.minimum_gain:
        # Scores are doubled, so that a lead of exactly the minimum gain replaces a cluster and a smaller lead does not.
        merit = 2 * merit + np.isin(rows, np.asarray(own, np.int64)) * (2 * extras.minimum_gain - 1)
    order = np.lexsort((_tie_break(fleet, plan, rows), -merit))
    if plan.spread:
        result.selected = spread.pick(fleet, rows[order], plan.spread, plan.number)
        wanted = len(rows) if plan.number is None else plan.number
        totals = result.total_of()
        result.selected_totals = {row: totals[row] for row in result.selected}
    else:
        chosen = order[: plan.number]
        result.selected = rows[chosen].tolist()
        result.selected_totals = dict(zip(result.selected, result.totals[chosen].tolist(), strict=True))
        wanted = len(result.selected) if plan.number is None else plan.number
    result.missing = wanted - len(result.selected)
    if plan.spread:
        result.reasons = dict.fromkeys(result.selected, "Spread")
    elif plan.number is None or len(rows) <= plan.number:
        result.reasons = dict.fromkeys(result.selected, "Feasible")
    else:
        result.reasons = dict.fromkeys(result.selected, "Score")
    if extras.minimum_gain and not plan.spread and plan.number is not None:
        plain = set(rows[np.lexsort((_tie_break(fleet, plan, rows), -result.totals))[: plan.number]].tolist())
        result.reasons.update((row, "MinimumGain") for row in result.selected if row not in plain)


def _tie_break(fleet: Fleet, plan: PlacementPlan, rows: Ints) -> Ints:
    """By name; with fair tie-breaking, in a fixed pseudo-random order specific to the placement."""
    if not plan.extras.fair_tie_break:
        return fleet.ranks[rows]
    seed = f"{plan.namespace}/{plan.name}/".encode()
    keys = [hashlib.blake2b(seed + fleet.names[int(row)].encode(), digest_size=7).digest() for row in rows]
    return np.fromiter((int.from_bytes(key) for key in keys), np.int64, len(keys))


def decide(
    placement: Document | Placement,
    clusters: Iterable[Document],
    scores: Iterable[Document] = (),
    decisions: Iterable[Document] = (),
    now: float = 0.0,
) -> tuple[Fleet, PlacementPlan, PlacementResult]:
    """Decides from API objects, with all given clusters as candidates."""
    fleet = Fleet()
    for cluster in clusters:
        fleet.put_cluster(cluster)
    for score in scores:
        fleet.put_score(view(score, AddOnPlacementScore))
    for decision in decisions:
        fleet.put_decision(view(decision, PlacementDecision))
    if not isinstance(placement, Placement):
        placement = view(convert_placement(placement, "v1beta1"), Placement)
    plan = make_plan(placement)
    return fleet, plan, schedule(fleet, plan, fleet.present, now)
