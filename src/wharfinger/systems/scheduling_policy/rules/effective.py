"""What holds for one identity: the merged policies, each part with the policies that it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from wharfinger.systems.scheduling_policy.kinds.views import (
    AffinityRule,
    ExpressionPattern,
    PolicySection,
    SchedulingPolicy,
    SpreadPattern,
    TolerationPattern,
)
from wharfinger.systems.scheduling_policy.rules.merge import MergedPolicy, Sourced, Strategy, implied

_COMPONENTS = (
    ("schedulerNames", "scheduler_names"),
    ("priorityClasseNames", "priority_classes"),
    ("nodeSelectors", "node_selectors"),
    ("tolerations", "tolerations"),
    ("affinities", "affinities"),
    ("runtimeClassNames", "runtime_classes"),
    ("topologySpreadConstraints", "spread"),
)


@dataclass(frozen=True, slots=True)
class EffectiveRule:
    """One part of the merged policy. `value` is as in a policy; `*` stands for anything."""

    section: str  # required, allowed or default
    component: str
    value: Any
    policies: tuple[str, ...]


def effective_rules(
    policies: Iterable[SchedulingPolicy], merged: MergedPolicy, strategy: Strategy
) -> list[EffectiveRule]:
    ordered = sorted((each for each in policies if each.name in merged.policies), key=lambda each: each.name.encode())
    return [*_required(merged), *_allowed(ordered, merged, strategy), *_default(merged)]


def _required(merged: MergedPolicy) -> Iterator[EffectiveRule]:
    wanted = merged.required
    for component, found in (
        ("schedulerNames", wanted.schedulers),
        ("priorityClasseNames", wanted.classes),
        ("tolerations", wanted.tolerations),
        ("runtimeClassNames", wanted.runtime_classes),
        ("topologySpreadConstraints", wanted.spread),
    ):
        if found is not None:
            yield _rule("required", component, found, [_shown(each) for each in found.value])
    for key, values in wanted.selectors.items():
        yield _rule("required", f"nodeSelectors[{key}]", values, list(values.value) or "*")
    for rule in wanted.affinities:
        yield _rule("required", "affinities", rule, _shown(rule.value))


def _default(merged: MergedPolicy) -> Iterator[EffectiveRule]:
    given = merged.default
    for component, found in (
        ("schedulerName", given.scheduler),
        ("priorityClasseName", given.priority_class),
        ("runtimeClassName", given.runtime_class),
    ):
        if found is not None:
            yield _rule("default", component, found, found.value)
    for key, value in given.selector.items():
        yield _rule("default", f"nodeSelector[{key}]", value, value.value)
    if given.tolerations is not None:
        yield _rule("default", "tolerations", given.tolerations, list(given.tolerations.value))
    for part in given.affinity:
        yield _rule("default", f"affinity.{part.value.kind}.{part.value.hardness}", part, part.value.value)
    if given.spread is not None:
        yield _rule("default", "topologySpreadConstraints", given.spread, list(given.spread.value))


def _rule(section: str, component: str, found: Sourced[Any], value: Any) -> EffectiveRule:
    return EffectiveRule(section, component, value, (found.policy,))


def _allowed(policies: list[SchedulingPolicy], merged: MergedPolicy, strategy: Strategy) -> Iterator[EffectiveRule]:
    """Each allowed value with all policies that allow it. A policy allows what it requires and sets by default, too."""
    for component, attribute in _COMPONENTS:
        origins: dict[str, tuple[Any, list[str]]] = {}
        for policy in policies:
            listed = getattr(policy.allowed, attribute)
            sections: list[PolicySection] = [policy.allowed, policy.required, implied(policy.default)]
            for section in sections:
                given = getattr(section, attribute)
                for value in () if given is None else _values(given):
                    key = msgspec.json.encode(value, order="sorted").decode()
                    names = origins.setdefault(key, (value, []))[1]
                    if policy.name not in names:
                        names.append(policy.name)
            if strategy == "simple" and listed is not None:
                break
        anything = origins.get('"*"')
        for value, names in [anything] if anything is not None else origins.values():
            yield EffectiveRule("allowed", component, value, tuple(names))


def _values(given: Any) -> list[Any]:
    if not given:
        return ["*"]
    if isinstance(given, dict):
        return [{key: list(values) or "*"} for key, values in given.items()]
    return [_shown(each) for each in given]


def _shown(value: Any) -> Any:
    """A rule or pattern as a policy writes it."""
    match value:
        case TolerationPattern():
            return _lists(keys=value.keys, operators=value.operators, values=value.values, effects=value.effects)
        case SpreadPattern():
            return _lists(topologyKeys=value.topology_keys, whenUnsatisfiable=value.when_unsatisfiable)
        case ExpressionPattern():
            return _lists(keys=value.keys, operators=value.operators, values=value.values)
        case AffinityRule():
            pattern = "*" if value.pattern is None else _shown(value.pattern)
            return {f"{value.kind}.{value.hardness}" if value.hardness else value.kind: pattern}
    return value


def _lists(**given: tuple[str, ...]) -> dict[str, list[str]]:
    return {name: list(values) for name, values in given.items() if values}
