"""Checks what a pod asks for against merged policies: requirements first, then what is allowed. Every violation has a
path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from wharfinger.api.fields import FieldError, forbidden, invalid, required, show
from wharfinger.api.selectors import NodeSelectorTerm
from wharfinger.systems.scheduling_policy.kinds.views import (
    HARD,
    HARDNESS,
    AffinityRule,
    ExpressionPattern,
    SpreadPattern,
    TolerationPattern,
)
from wharfinger.systems.scheduling_policy.rules.merge import MergedPolicy
from wharfinger.systems.scheduling_policy.rules.patterns import covers_expression, covers_spread, covers_toleration
from wharfinger.systems.scheduling_policy.rules.wishes import DEFAULT_SCHEDULER, SpreadWish, Terms, Wishes


class Violation(msgspec.Struct, frozen=True):
    """One reason for refusal. `policies` require what is missing, or their default wrote what is refused."""

    error: FieldError
    policies: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return self.error.path

    def __str__(self) -> str:
        return str(self.error)


def violations(merged: MergedPolicy, wishes: Wishes) -> list[Violation]:
    """All violations of a new pod."""
    return [*_required(merged, wishes), *_allowed(merged, wishes)]


def violations_of_additions(merged: MergedPolicy, added: Wishes) -> list[Violation]:
    """All violations by what an update adds. Requirements apply only to added alternatives."""
    found: list[Violation] = []
    if added.scheduler and merged.required.schedulers is not None:
        found += _required_name(merged.required.schedulers, added, "schedulerName", added.scheduler)
    if added.runtime_class and merged.required.runtime_classes is not None:
        found += _required_name(merged.required.runtime_classes, added, "runtimeClassName", added.runtime_class)
    if added.priority_class and merged.required.classes is not None:
        found += _required_name(merged.required.classes, added, "priorityClassName", added.priority_class)
    for key, wanted in merged.required.selectors.items():
        if key in added.selector:
            found += _required_value(added, key, wanted.value, wanted.policy)
    for part in merged.required.affinities:
        if part.value.kind == "nodeAffinity" and part.value.pattern is not None:
            found += _in_every_term(added.alternatives.get(part.value.hardness, ()), part.value.pattern, part.policy)
    return [*found, *_allowed(merged, added, update=True)]


def priority_violations(
    merged: MergedPolicy, wishes: Wishes, priority_of: Callable[[str], int | None]
) -> list[Violation]:
    """A number is as good as the class of that value, so it must be that of the class, or of one that is allowed."""
    number = wishes.priority
    if number is None:
        return []
    name = wishes.priority_class or wishes.system_class
    default = priority_of(name) if name else 0
    if number == default:
        return []
    path = f"{wishes.base}.priority"
    if wishes.priority_class and default is not None:
        return [_not_allowed(path, number, f"priority class {show(wishes.priority_class)} has the value {default}")]
    wanted = merged.required.classes
    allowed = set(wanted.value) if wanted is not None else merged.allowed.classes
    if allowed is None or any(priority_of(each) == number for each in allowed):
        return []
    return [
        _not_allowed(path, number, f"not the value of an allowed priority class; {_choice('priority class', allowed)}")
    ]


# Required


def _required(merged: MergedPolicy, wishes: Wishes) -> Iterator[Violation]:
    wanted = merged.required
    if wanted.schedulers is not None:
        yield from _required_name(wanted.schedulers, wishes, "schedulerName", wishes.scheduler or DEFAULT_SCHEDULER)
    if wanted.classes is not None:
        has = wishes.priority_class or wishes.system_class
        yield from _required_name(wanted.classes, wishes, "priorityClassName", has)
    for key, values in wanted.selectors.items():
        yield from _required_value(wishes, key, values.value, values.policy)
    if wanted.tolerations is not None:
        patterns = wanted.tolerations.value
        has_tolerations = [*(one for _, one in wishes.tolerations), *wishes.system_tolerations]
        if not any(covers_toleration(pattern, one) for pattern in patterns for one in has_tolerations):
            texts = " or ".join(_describe(pattern) for pattern in patterns)
            detail = f"requires a toleration with {texts}"
            yield _lacking(wishes, "tolerations", wishes.tolerations, detail, wanted.tolerations.policy)
    for part in wanted.affinities:
        yield from _required_affinity(wishes, part.value, part.policy)
    if wanted.runtime_classes is not None:
        yield from _required_name(wanted.runtime_classes, wishes, "runtimeClassName", wishes.runtime_class)
    if wanted.spread is not None:
        spreads = wanted.spread.value
        if not any(_covers(pattern, one) for pattern in spreads for _, one in wishes.spread):
            texts = " or ".join(_describe_spread(pattern) for pattern in spreads)
            detail = f"requires a constraint with {texts}"
            yield _lacking(wishes, "topologySpreadConstraints", wishes.spread, detail, wanted.spread.policy)


def _lacking(wishes: Wishes, name: str, given: Iterable[tuple[str, object]], detail: str, policy: str) -> Violation:
    """No item of a list is one of those that a policy requires; the default of another policy may have set others."""
    author = next((wishes.injected[path] for path, _ in given if path in wishes.injected), None)
    if author is not None:
        detail += f', but the default of policy "{author}" set others'
    return Violation(
        required(f"{wishes.base}.{name}", f'policy "{policy}" {detail}'),
        (policy,) if author in (None, policy) else (policy, author),
    )


def _required_name(wanted: Any, wishes: Wishes, name: str, value: str) -> Iterator[Violation]:
    if value in wanted.value:
        return
    path = f"{wishes.base}.{name}"
    detail = f'policy "{wanted.policy}" requires {_one_of(wanted.value)}'
    yield _refused(wishes, path, value, detail, wanted.policy)


def _required_value(wishes: Wishes, key: str, values: tuple[str, ...], policy: str) -> Iterator[Violation]:
    path, value = f"{wishes.base}.nodeSelector[{key}]", wishes.selector.get(key)
    if value is None or (values and value not in values):
        detail = f'policy "{policy}" requires {_one_of(values) if values else "this key"}'
        yield _refused(wishes, path, value, detail, policy)


def _refused(wishes: Wishes, path: str, value: str | None, detail: str, policy: str) -> Violation:
    if not value:
        return Violation(required(path, detail), (policy,))
    author = wishes.injected.get(path)
    if author is not None:
        detail += f', but the default of policy "{author}" set it'
    return Violation(invalid(path, value, detail), (policy, author) if author not in (None, policy) else (policy,))


def _required_affinity(wishes: Wishes, rule: AffinityRule, policy: str) -> Iterator[Violation]:
    hardnesses = (rule.hardness,) if rule.hardness else HARDNESS
    if rule.kind != "nodeAffinity":
        if not any((rule.kind, hardness) in wishes.pod_affinity for hardness in hardnesses):
            yield _missing_affinity(wishes, rule, policy)
        return
    by_hardness = {HARD: wishes.hard_terms, HARDNESS[1]: wishes.soft_terms}
    terms = [term for hardness in hardnesses for term in by_hardness[hardness]]
    if not terms:
        yield _missing_affinity(wishes, rule, policy)
    elif rule.pattern is not None:
        yield from _in_every_term(terms, rule.pattern, policy, wishes.injected)


def _missing_affinity(wishes: Wishes, rule: AffinityRule, policy: str) -> Violation:
    path = f"{wishes.base}.affinity.{rule.kind}"
    if rule.hardness:
        path += f".{rule.hardness}"
    detail = f'policy "{policy}" requires it'
    if rule.pattern is not None:
        detail = f'policy "{policy}" requires an expression with {_describe(rule.pattern)}'
    return Violation(required(path, detail), (policy,))


def _in_every_term(
    terms: Iterable[tuple[str, NodeSelectorTerm]],
    pattern: ExpressionPattern,
    policy: str,
    injected: dict[str, str] | None = None,
) -> Iterator[Violation]:
    for path, term in terms:
        if not any(covers_expression(pattern, expression) for expression in term.match_expressions):
            detail = (
                f'policy "{policy}" requires an expression with {_describe(pattern)} in every term, since terms are '
                "alternatives"
            )
            author = (injected or {}).get(path)
            if author is not None:
                detail += f'; the default of policy "{author}" set this term'
            policies = (policy, author) if author not in (None, policy) else (policy,)
            yield Violation(required(f"{path}.matchExpressions", detail), policies)


# Allowed


def _allowed(merged: MergedPolicy, wishes: Wishes, *, update: bool = False) -> Iterator[Violation]:
    base, allowed, wanted = wishes.base, merged.allowed, merged.required
    if wishes.node_name and allowed.selectors is not None:
        yield Violation(
            forbidden(
                f"{base}.nodeName",
                f"{show(wishes.node_name)} bypasses the scheduler, which needs a policy that allows any node selector",
            )
        )
    scheduler = wishes.scheduler or ("" if update else DEFAULT_SCHEDULER)
    if wanted.schedulers is None:
        yield from _allowed_name(f"{base}.schedulerName", scheduler, "scheduler", allowed.schedulers)
    if wanted.classes is None:
        yield from _allowed_name(f"{base}.priorityClassName", wishes.priority_class, "priority class", allowed.classes)
    if allowed.selectors is not None:
        for key, value in wishes.selector.items():
            if key in wanted.selectors:
                continue  # the required values cover the key
            values: set[str] | None = allowed.selectors.get(key, set())
            if values is not None and value not in values:
                detail = _choice(f"value of {key}", values) if values else "this key is not allowed"
                yield _not_allowed(f"{base}.nodeSelector[{key}]", value, detail)
    if wanted.runtime_classes is None:
        runtime = wishes.runtime_class
        yield from _allowed_name(f"{base}.runtimeClassName", runtime, "runtime class", allowed.runtime_classes)
    if allowed.spread is not None:
        for path, one in wishes.spread:
            if not any(_covers(pattern, one) for pattern in allowed.spread):
                yield _not_allowed(path, _plain(one), "this topology spread constraint is not allowed")
    for path, toleration in wishes.tolerations:
        if not allowed.covers(toleration):
            yield _not_allowed(path, _plain(toleration), "this toleration is not allowed")
    for hardness, terms in ((HARD, wishes.hard_terms), (HARDNESS[1], wishes.soft_terms)):
        slot_path = wishes.hard_path if hardness == HARD else wishes.soft_path
        yield from _node_terms(merged, ("nodeAffinity", hardness), slot_path, terms, wishes.before)
    for slot, path in wishes.pod_affinity.items():
        if slot not in allowed.affinities:
            yield Violation(forbidden(path, f"{slot[0]} of this hardness is not allowed"))


def _node_terms(
    merged: MergedPolicy, slot: tuple[str, str], path: str, terms: Terms, before: dict[str, NodeSelectorTerm]
) -> Iterator[Violation]:
    if not terms:
        return
    patterns: dict[ExpressionPattern, None] | None = merged.allowed.affinities.get(slot, {})
    if patterns is None:
        return
    if not patterns:
        yield Violation(forbidden(path, "node affinity of this hardness is not allowed"))
        return
    for at, term in terms:
        old = before.get(at, _EMPTY)
        for index, expression in enumerate(term.match_expressions):
            if expression not in old.match_expressions and not any(
                covers_expression(pattern, expression) for pattern in patterns
            ):
                yield _not_allowed(
                    f"{at}.matchExpressions[{index}]", _plain(expression), "this expression is not allowed"
                )
        if term.match_fields and term.match_fields != old.match_fields:
            yield Violation(forbidden(f"{at}.matchFields", "needs a policy that allows all node affinity"))


_EMPTY = NodeSelectorTerm()


def _allowed_name(path: str, name: str, what: str, allowed: set[str] | None) -> Iterator[Violation]:
    if name and allowed is not None and name not in allowed:
        yield _not_allowed(path, name, _choice(what, allowed))


def _not_allowed(path: str, value: Any, detail: str) -> Violation:
    return Violation(invalid(path, value, detail))


def _covers(pattern: SpreadPattern, one: SpreadWish) -> bool:
    return covers_spread(pattern, one.topology_key, one.when_unsatisfiable)


# Wording


def _describe_spread(pattern: SpreadPattern) -> str:
    parts = [("topologyKey", pattern.topology_keys), ("whenUnsatisfiable", pattern.when_unsatisfiable)]
    return " and ".join(f"{name} {_one_of(values)}" for name, values in parts if values) or "anything"


def _one_of(values: Iterable[str]) -> str:
    listed = [show(value) for value in values]
    return listed[0] if len(listed) == 1 else f"one of {', '.join(listed)}"


def _choice(what: str, values: set[str]) -> str:
    if not values:
        return f"no {what} is allowed"
    return f"not an allowed {what}; allowed: {', '.join(show(value) for value in sorted(values))}"


def _plain(item: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(item)
    return {key: value for key, value in plain.items() if value not in ("", None, [], ())}


def _describe(pattern: TolerationPattern | ExpressionPattern) -> str:
    parts = [("key", pattern.keys), ("operator", pattern.operators), ("value", pattern.values)]
    if isinstance(pattern, TolerationPattern):
        parts.append(("effect", pattern.effects))
    return " and ".join(f"{name} {_one_of(values)}" for name, values in parts if values) or "anything"
