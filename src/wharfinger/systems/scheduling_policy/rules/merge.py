"""Merges policies: what holds for an identity that may use several, and which policy each part comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from wharfinger.api.registry import Document
from wharfinger.api.views.pods import Toleration
from wharfinger.systems.scheduling_policy.kinds.views import (
    AFFINITY_KINDS,
    HARD,
    HARDNESS,
    AffinityDefault,
    AffinityRule,
    ExpressionPattern,
    PolicyDefaults,
    PolicySection,
    SchedulingPolicy,
    SpreadPattern,
    SubKey,
    TolerationPattern,
)
from wharfinger.systems.scheduling_policy.rules.patterns import covers_toleration

ANY_KEY = "*"  # not a valid taint key, so it cannot collide
Strategy = Literal["deep", "first", "simple"]
T = TypeVar("T")


class SubKeyed(Protocol):
    @property
    def sub_key(self) -> SubKey: ...


S = TypeVar("S", bound=SubKeyed)


class Sourced(msgspec.Struct, Generic[T], frozen=True):
    """A value and the policy it comes from."""

    value: T
    policy: str


class Required(msgspec.Struct):
    schedulers: Sourced[tuple[str, ...]] | None = None
    classes: Sourced[tuple[str, ...]] | None = None
    selectors: dict[str, Sourced[tuple[str, ...]]] = msgspec.field(default_factory=dict)
    tolerations: Sourced[tuple[TolerationPattern, ...]] | None = None
    affinities: list[Sourced[AffinityRule]] = msgspec.field(default_factory=list)
    runtime_classes: Sourced[tuple[str, ...]] | None = None
    spread: Sourced[tuple[SpreadPattern, ...]] | None = None


@dataclass(slots=True)
class MergedAllowed:
    """What is allowed; None means anything. Affinity is keyed by (kind, hardness), and what has no key is not allowed.
    Patterns are dictionary keys: unique, in order of appearance."""

    schedulers: set[str] | None = field(default_factory=set)
    classes: set[str] | None = field(default_factory=set)
    selectors: dict[str, set[str] | None] | None = field(default_factory=dict)
    tolerations: dict[TolerationPattern, None] | None = field(default_factory=dict)
    affinities: dict[tuple[str, str], dict[ExpressionPattern, None] | None] = field(default_factory=dict)
    runtime_classes: set[str] | None = field(default_factory=set)
    spread: dict[SpreadPattern, None] | None = field(default_factory=dict)

    def covers(self, toleration: Toleration) -> bool:
        if self.tolerations is None:
            return True
        index = self._by_key
        if index is None:
            index = self._by_key = {}
            for pattern in self.tolerations:
                for key in pattern.keys or (ANY_KEY,):
                    index.setdefault(key, []).append(pattern)
        near = (*index.get(toleration.key, ()), *index.get(ANY_KEY, ()))
        return any(covers_toleration(pattern, toleration) for pattern in near)

    _by_key: dict[str, list[TolerationPattern]] | None = field(default=None, compare=False, repr=False)


class Default(msgspec.Struct):
    scheduler: Sourced[str] | None = None
    priority_class: Sourced[str] | None = None
    selector: dict[str, Sourced[str]] = msgspec.field(default_factory=dict)
    tolerations: Sourced[tuple[Document, ...]] | None = None
    affinity: list[Sourced[AffinityDefault]] = msgspec.field(default_factory=list)
    runtime_class: Sourced[str] | None = None
    spread: Sourced[tuple[Document, ...]] | None = None


class MergedPolicy(msgspec.Struct, frozen=True):
    """The merged policies. `allowed` includes what requirements and defaults imply."""

    policies: tuple[str, ...]
    required: Required
    allowed: MergedAllowed
    default: Default


def merge(policies: Iterable[SchedulingPolicy], strategy: Strategy = "deep") -> MergedPolicy:
    """The result does not depend on the order of the arguments: policies are sorted by name, bytewise."""
    ordered = sorted(policies, key=lambda policy: policy.name.encode())
    if strategy == "first":
        ordered = ordered[:1]
    deep = strategy == "deep"
    required = _required(ordered, deep)
    default = _default(ordered, deep)
    allowed = MergedAllowed()
    if deep:
        # A policy allows its own requirements and defaults, also where those of another policy take precedence.
        for policy in ordered:
            _add(allowed, policy.allowed)
            _add(allowed, policy.required)
            _add(allowed, implied(policy.default))
    else:
        _add(allowed, _first_of_each(ordered))
        _add(allowed, _as_section(required))
        _add(allowed, implied(_as_defaults(default)))
    return MergedPolicy(tuple(policy.name for policy in ordered), required, allowed, default)


# Required and default: the first policy with a rule on a subject decides


def _first(policies: Sequence[SchedulingPolicy], read: Callable[[SchedulingPolicy], T | None]) -> Sourced[T] | None:
    for policy in policies:
        value = read(policy)
        if value is not None:
            return Sourced(value, policy.name)
    return None


def _first_by_key(
    policies: Sequence[SchedulingPolicy], read: Callable[[SchedulingPolicy], Mapping[str, T] | None], deep: bool
) -> dict[str, Sourced[T]]:
    found: dict[str, Sourced[T]] = {}
    for policy in policies:
        given = read(policy)
        for key, value in (given or {}).items():
            found.setdefault(key, Sourced(value, policy.name))
        if given is not None and not deep:
            break
    return found


def _first_by_sub_key(
    policies: Sequence[SchedulingPolicy], read: Callable[[SchedulingPolicy], Sequence[S] | None], deep: bool
) -> list[Sourced[S]]:
    """The rules of the first policy that uses a sub-key; a policy may have several rules under one."""
    owners: dict[Any, str] = {}
    found = []
    for policy in policies:
        given = read(policy)
        for item in given or ():
            if owners.setdefault(item.sub_key, policy.name) == policy.name:
                found.append(Sourced(item, policy.name))
        if given and not deep:
            break
    return found


def _required(policies: Sequence[SchedulingPolicy], deep: bool) -> Required:
    return Required(
        schedulers=_first(policies, lambda policy: policy.required.scheduler_names),
        classes=_first(policies, lambda policy: policy.required.priority_classes),
        selectors=_first_by_key(policies, lambda policy: policy.required.node_selectors, deep),
        tolerations=_first(policies, lambda policy: policy.required.tolerations),
        affinities=_first_by_sub_key(policies, lambda policy: policy.required.affinities, deep),
        runtime_classes=_first(policies, lambda policy: policy.required.runtime_classes),
        spread=_first(policies, lambda policy: policy.required.spread),
    )


def _default(policies: Sequence[SchedulingPolicy], deep: bool) -> Default:
    return Default(
        scheduler=_first(policies, lambda policy: policy.default.scheduler_name or None),
        priority_class=_first(policies, lambda policy: policy.default.priority_class or None),
        selector=_first_by_key(policies, lambda policy: policy.default.node_selector or None, deep),
        tolerations=_first(policies, lambda policy: policy.default.tolerations or None),
        affinity=_first_by_sub_key(policies, lambda policy: policy.default.affinity, deep),
        runtime_class=_first(policies, lambda policy: policy.default.runtime_class or None),
        spread=_first(policies, lambda policy: policy.default.spread or None),
    )


# Allowed


def _first_of_each(policies: Sequence[SchedulingPolicy]) -> PolicySection:
    """What the merge strategy `simple` allows: the first policy's list of each component."""
    return PolicySection(
        _value(_first(policies, lambda policy: policy.allowed.scheduler_names)),
        _value(_first(policies, lambda policy: policy.allowed.priority_classes)),
        _value(_first(policies, lambda policy: policy.allowed.node_selectors)),
        _value(_first(policies, lambda policy: policy.allowed.tolerations)),
        _value(_first(policies, lambda policy: policy.allowed.affinities)),
        _value(_first(policies, lambda policy: policy.allowed.runtime_classes)),
        _value(_first(policies, lambda policy: policy.allowed.spread)),
    )


def _value(found: Sourced[T] | None) -> T | None:
    return None if found is None else found.value


def _add(allowed: MergedAllowed, section: PolicySection) -> None:
    """Adds what a section allows; an empty list or map allows everything."""
    allowed.schedulers = _united(allowed.schedulers, section.scheduler_names)
    allowed.classes = _united(allowed.classes, section.priority_classes)
    allowed.runtime_classes = _united(allowed.runtime_classes, section.runtime_classes)
    allowed.spread = _extended(allowed.spread, section.spread)
    allowed.tolerations = _extended(allowed.tolerations, section.tolerations)
    if section.node_selectors is not None:
        if not section.node_selectors:
            allowed.selectors = None
        elif allowed.selectors is not None:
            for key, values in section.node_selectors.items():
                allowed.selectors[key] = _united(allowed.selectors.setdefault(key, set()), values)
    if section.affinities is not None:
        rules = section.affinities
        if not rules:
            rules = tuple(AffinityRule(kind, hardness) for kind in AFFINITY_KINDS.values() for hardness in HARDNESS)
        for rule in rules:
            _add_affinity(allowed, rule)


def _united(have: set[str] | None, more: Sequence[str] | None) -> set[str] | None:
    if have is None or more is None:
        return have
    if not more:
        return None
    have.update(more)
    return have


def _extended(have: dict[T, None] | None, more: Sequence[T] | None) -> dict[T, None] | None:
    """The same for patterns, whose order is kept."""
    if have is None or more is None:
        return have
    return have | dict.fromkeys(more) if more else None


def _add_affinity(allowed: MergedAllowed, rule: AffinityRule) -> None:
    for hardness in (rule.hardness,) if rule.hardness else HARDNESS:
        slot = (rule.kind, hardness)
        if rule.pattern is None:
            allowed.affinities[slot] = None
        elif (patterns := allowed.affinities.setdefault(slot, {})) is not None:
            patterns[rule.pattern] = None


def _as_section(required: Required) -> PolicySection:
    return PolicySection(
        _value(required.schedulers),
        _value(required.classes),
        {key: found.value for key, found in required.selectors.items()} or None,
        _value(required.tolerations),
        tuple(found.value for found in required.affinities) or None,
        _value(required.runtime_classes),
        _value(required.spread),
    )


def _as_defaults(default: Default) -> PolicyDefaults:
    return PolicyDefaults(
        _value(default.scheduler) or "",
        _value(default.priority_class) or "",
        {key: found.value for key, found in default.selector.items()},
        _value(default.tolerations) or (),
        tuple(found.value for found in default.affinity),
        _value(default.runtime_class) or "",
        _value(default.spread) or (),
    )


def implied(default: PolicyDefaults) -> PolicySection:
    """Defaults are allowed; otherwise injecting them would be refused."""
    return PolicySection(
        (default.scheduler_name,) if default.scheduler_name else None,
        (default.priority_class,) if default.priority_class else None,
        {key: (value,) for key, value in default.node_selector.items()} or None,
        tuple(exactly(toleration) for toleration in default.tolerations) or None,
        tuple(rule for part in default.affinity for rule in _rules(part)) or None,
        (default.runtime_class,) if default.runtime_class else None,
        tuple(_only(constraint) for constraint in default.spread) or None,
    )


def _only(constraint: Document) -> SpreadPattern:
    return SpreadPattern((constraint["topologyKey"],), (constraint["whenUnsatisfiable"],))


def exactly(toleration: Document) -> TolerationPattern:
    """The pattern that covers just this toleration; fields that it leaves open are open in the pattern too."""
    operator = toleration.get("operator") or "Equal"
    return TolerationPattern(
        (toleration["key"],) if toleration.get("key") else (),
        (operator,),
        () if operator == "Exists" else (toleration.get("value") or "",),
        (toleration["effect"],) if toleration.get("effect") else (),
    )


def _rules(default: AffinityDefault) -> list[AffinityRule]:
    if default.kind != "nodeAffinity":
        return [AffinityRule(default.kind, default.hardness)]
    if default.hardness == HARD:
        expressions = [default.value]
    else:
        expressions = default.value["preference"]["matchExpressions"]
    return [
        AffinityRule(
            default.kind,
            default.hardness,
            ExpressionPattern((one["key"],), (one["operator"],), tuple(one.get("values") or ())),
        )
        for one in expressions
    ]
