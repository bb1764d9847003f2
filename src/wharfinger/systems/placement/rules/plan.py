"""A Placement prepared for decisions: compiled selectors, resolved weights, configuration errors and dependencies.

Plans are expensive to make and cheap to use. They depend only on the spec and annotations of the Placement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from fractions import Fraction
from typing import TypeVar

import msgspec

from wharfinger.api.times import BadTime, parse_duration
from wharfinger.cel import InvalidExpression
from wharfinger.systems.placement.kinds.views import (
    ClusterToleration,
    DecisionGroup,
    Placement,
    PlacementSpec,
    PrioritizerPolicy,
    SpreadConstraint,
)
from wharfinger.systems.placement.rules import taints
from wharfinger.systems.placement.rules.capacity import question_name
from wharfinger.systems.placement.rules.extras import Extras, parse_extras
from wharfinger.systems.placement.rules.selectors import BadClusterSelector, Selector, compile_selector

T = TypeVar("T")

BALANCE, STEADY = "Balance", "Steady"
RESOURCES = {"ResourceAllocatableCPU": "cpu", "ResourceAllocatableMemory": "memory"}
PREFER_NO_SELECT = "PreferNoSelect"


class Facet(Enum):
    """A part of a cluster that a decision can depend on."""

    LABELS = "labels"
    CLAIMS = "claims"
    TAINTS = "taints"
    RESOURCES = "resources"
    OTHER = "other"  # visible only to CEL


class Misconfiguration(msgspec.Struct, frozen=True):
    """Why a part of the Placement cannot be used, and the plugin that reports it."""

    plugin: str
    message: str


class Prioritizer(msgspec.Struct, frozen=True):
    name: str  # as in events and debug output: Balance, AddOn/resource/score
    weight: int
    resource_name: str = ""  # of an AddOn score
    score_name: str = ""


class NamedGroup(msgspec.Struct, frozen=True):
    name: str
    selector: Selector


class PlacementPlan(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    number: int | None
    cluster_sets: tuple[str, ...]
    predicates: tuple[Selector, ...] | Misconfiguration
    tolerations: tuple[ClusterToleration, ...] | Misconfiguration
    prioritizers: tuple[Prioritizer, ...] | Misconfiguration
    spread: tuple[SpreadConstraint, ...]
    group_size: int | Fraction | Misconfiguration  # a number or share of clusters
    groups: tuple[NamedGroup, ...] | Misconfiguration
    by_score: bool
    score_rate_limit: float
    extras: Extras
    window_selector: Selector | Misconfiguration | None
    facets: frozenset[Facet]
    score_resources: frozenset[str]  # AddOnPlacementScores that prioritizers and the capacity filter read
    reads_all_scores: bool  # CEL can read any score
    capacity_resource: str = ""  # the AddOnPlacementScore that says how many pods fit


def make_plan(placement: Placement) -> PlacementPlan:
    spec = placement.spec
    extras = parse_extras(placement.metadata.annotations)
    predicates = _attempt(
        "Predicate", lambda: tuple(compile_selector(p.required_cluster_selector) for p in spec.predicates)
    )
    groups = _attempt("", lambda: _groups(spec.decision_strategy.group_strategy.decision_groups))
    windows = extras.time_windows
    window_selector: Selector | Misconfiguration | None = None
    if windows is not None and windows.cluster_selector is not None:
        selector = windows.cluster_selector
        window_selector = _attempt("TimeWindow", lambda: compile_selector(selector))
    tolerations_fault = taints.fault(spec.tolerations)
    prioritizers = (
        Misconfiguration("", str(extras.faults[0])) if extras.faults else _prioritizers(spec.prioritizer_policy, extras)
    )
    capacity_resource = ""
    if extras.capacity is not None:
        capacity_resource = question_name(placement.metadata.namespace, extras.capacity.pod_template)
    return PlacementPlan(
        namespace=placement.metadata.namespace,
        name=placement.metadata.name,
        number=None if spec.number_of_clusters is None else max(0, spec.number_of_clusters),
        cluster_sets=spec.cluster_sets,
        predicates=predicates,
        tolerations=Misconfiguration(taints.NAME, tolerations_fault) if tolerations_fault else spec.tolerations,
        prioritizers=prioritizers,
        spread=spec.spread_policy.spread_constraints,
        group_size=_group_size(spec.decision_strategy.group_strategy.clusters_per_decision_group),
        groups=groups,
        by_score=spec.sort_by == "Score",
        score_rate_limit=_rate_limit(spec),
        extras=extras,
        window_selector=window_selector,
        facets=_facets(spec, predicates, prioritizers, groups, window_selector, extras),
        score_resources=frozenset(
            p.resource_name
            for p in (() if isinstance(prioritizers, Misconfiguration) else prioritizers)
            if p.resource_name
        )
        | ({capacity_resource} if capacity_resource else frozenset()),
        reads_all_scores=any(
            selector.uses_scores
            for selector in (
                *_or_none(predicates),
                *(() if not isinstance(window_selector, Selector) else (window_selector,)),
            )
        ),
        capacity_resource=capacity_resource,
    )


def _attempt(plugin: str, make: Callable[[], T]) -> T | Misconfiguration:
    try:
        return make()
    except (BadClusterSelector, InvalidExpression) as error:
        return Misconfiguration(plugin, str(error))


def _or_none(values: tuple[T, ...] | Misconfiguration) -> tuple[T, ...]:
    return () if isinstance(values, Misconfiguration) else values


def _groups(groups: Sequence[DecisionGroup]) -> tuple[NamedGroup, ...]:
    return tuple(NamedGroup(group.group_name, compile_selector(group.group_cluster_selector)) for group in groups)


def _prioritizers(policy: PrioritizerPolicy, extras: Extras) -> tuple[Prioritizer, ...] | Misconfiguration:
    """The prioritizers with a nonzero weight. If one is configured repeatedly, the last wins."""
    if policy.mode not in ("", "Additive", "Exact"):
        return Misconfiguration("", f"incorrect prioritizer policy mode: {policy.mode}")
    chosen: dict[tuple[str, str, str], Prioritizer] = {}
    if policy.mode != "Exact":
        chosen = {(name, "", ""): Prioritizer(name, 1) for name in (BALANCE, STEADY)}
    without_add_on = False
    for configuration in policy.configurations:
        coordinate = configuration.score_coordinate
        if coordinate is None:
            return Misconfiguration("", "scoreCoordinate field is required")
        if coordinate.type in ("", "BuiltIn", "BuildIn"):
            prioritizer = Prioritizer(coordinate.built_in, configuration.weight)
        elif coordinate.type != "AddOn":
            if configuration.weight:
                return Misconfiguration("", f"incorrect score type: {coordinate.type}, want BuiltIn or AddOn")
            continue
        elif coordinate.add_on is None:
            without_add_on = configuration.weight != 0
            continue
        else:
            resource, score = coordinate.add_on.resource_name, coordinate.add_on.score_name
            prioritizer = Prioritizer(f"AddOn/{resource}/{score}", configuration.weight, resource, score)
        chosen[prioritizer.name, prioritizer.resource_name, prioritizer.score_name] = prioritizer
    if without_add_on:
        return Misconfiguration("", "addOn should not be empty")
    used = tuple(prioritizer for prioritizer in chosen.values() if prioritizer.weight)
    known = (BALANCE, STEADY, *RESOURCES)
    for prioritizer in used:
        if not prioritizer.resource_name and not prioritizer.score_name and prioritizer.name not in known:
            return Misconfiguration("", f"incorrect builtin prioritizer: {prioritizer.name}")
    if extras.prefer_no_select_weight:
        used += (Prioritizer(PREFER_NO_SELECT, extras.prefer_no_select_weight),)
    return used


def _group_size(size: int | str) -> int | Fraction | Misconfiguration:
    """A number (also as a string) or a percentage, kept exact: in floating point, 7% of 100 would round up to 8."""
    if isinstance(size, int):
        return size
    try:
        return Fraction(size[:-1]) / 100 if size.endswith("%") else int(size)
    except ValueError:
        return Misconfiguration("", f"{size} invalid type: string is not a percentage")


def _rate_limit(spec: PlacementSpec) -> float:
    try:
        return max(0.0, parse_duration(spec.score_rate_limit or "1m"))
    except BadTime:  # refused by the schema, but stored before, or on a hub with another schema
        return 60.0


def _facets(
    spec: PlacementSpec,
    predicates: tuple[Selector, ...] | Misconfiguration,
    prioritizers: tuple[Prioritizer, ...] | Misconfiguration,
    groups: tuple[NamedGroup, ...] | Misconfiguration,
    window: Selector | Misconfiguration | None,
    extras: Extras,
) -> frozenset[Facet]:
    facets = {Facet.TAINTS}
    selectors = [*_or_none(predicates), *(group.selector for group in _or_none(groups))]
    if isinstance(window, Selector):
        selectors.append(window)
    kinds = {constraint.topology_key_type for constraint in spec.spread_policy.spread_constraints}
    if any(selector.expressions for selector in selectors):
        return frozenset(Facet)
    if any(selector.labels for selector in selectors) or "Label" in kinds:
        facets.add(Facet.LABELS)
    if any(selector.claims for selector in selectors) or "Claim" in kinds:
        facets.add(Facet.CLAIMS)
    by_resource = extras.replicas is not None and extras.replicas.weighs_by_resource
    if by_resource or any(prioritizer.name in RESOURCES for prioritizer in _or_none(prioritizers)):
        facets.add(Facet.RESOURCES)
    return frozenset(facets)
