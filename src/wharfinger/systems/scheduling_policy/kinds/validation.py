"""Validation of SchedulingPolicies. Unknown fields are refused: a misspelt list would widen or close a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from wharfinger.api.fields import FieldError, forbidden, invalid, not_supported, required, wrong_type
from wharfinger.api.names import dns_subdomain, label_value, qualified_name
from wharfinger.api.registry import Document
from wharfinger.api.schema.tree import definition_schema
from wharfinger.api.schema.type_errors import type_errors, unknown_fields
from wharfinger.api.validation.scheduling import affinity_faults, spread_faults
from wharfinger.api.wording import nearest
from wharfinger.systems.scheduling_policy.kinds.views import (
    AFFINITY_KINDS,
    ALIASES,
    HARD,
    HARDNESS,
    MODE_KEY,
    SOFT,
    pattern_terms,
    singular,
)

TOLERATION_OPERATORS = ("Equal", "Exists", "Gt", "Lt")
EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
EXPRESSION_OPERATORS = ("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn")

Faults = list[FieldError]


def validate_policy(document: Document, old: Document | None = None) -> Faults:
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    faults: Faults = []
    mode = annotations.get(MODE_KEY) if isinstance(annotations, dict) else None
    if mode not in (None, "audit", "enforce"):
        faults.append(not_supported(f"metadata.annotations[{MODE_KEY}]", mode, ("audit", "enforce")))
    spec = document.get("spec")
    if spec is None:
        return faults
    if not isinstance(spec, dict):
        return [*faults, wrong_type("spec", spec, "object")]
    faults += _unknown("spec", spec, ("required", "allowed", "default", "allowedAffinities"))
    for name, faults_of in (("required", _required), ("allowed", _allowed), ("default", _default)):
        faults += _object(f"spec.{name}", spec.get(name), faults_of)
    beside = spec.get("allowedAffinities")
    faults += _tree("spec.allowedAffinities", beside, may_be_empty=True)
    inside = spec["allowed"].get("affinities") if isinstance(spec.get("allowed"), dict) else None
    if beside is not None and inside is not None and beside != inside:
        faults.append(
            invalid("spec.allowedAffinities", beside, "differs from spec.allowed.affinities; give one of them")
        )
    return faults


# Sections

COMPONENTS = (
    "schedulerNames",
    "priorityClasseNames",
    "nodeSelectors",
    "tolerations",
    "affinities",
    "runtimeClassNames",
    "topologySpreadConstraints",
)
WHEN_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")


def _required(path: str, section: Mapping[str, Any]) -> Faults:
    return _section(path, section, may_be_empty=False)


def _allowed(path: str, section: Mapping[str, Any]) -> Faults:
    return _section(path, section, may_be_empty=True)


def _section(path: str, section: Mapping[str, Any], *, may_be_empty: bool) -> Faults:
    faults = _unknown(path, section, COMPONENTS)
    for name in ("schedulerNames", "priorityClasseNames", "runtimeClassNames"):
        at, value, clash = _aliased(path, section, name)
        faults += clash
        faults += _strings(at, value, dns_subdomain)
        if value == [] and not may_be_empty:
            faults.append(required(at, "an empty list would require nothing; leave the field out, or list names"))
    faults += _selectors(f"{path}.nodeSelectors", section.get("nodeSelectors"), may_be_empty)
    faults += _patterns(f"{path}.tolerations", section.get("tolerations"), may_be_empty, _toleration_pattern)
    spread = section.get("topologySpreadConstraints")
    faults += _patterns(f"{path}.topologySpreadConstraints", spread, may_be_empty, _spread_pattern)
    return faults + _tree(f"{path}.affinities", section.get("affinities"), may_be_empty=may_be_empty)


def _selectors(path: str, value: Any, may_be_empty: bool) -> Faults:
    if value is None:
        return []
    if not isinstance(value, dict):
        return [wrong_type(path, value, "object")]
    faults = []
    if not value and not may_be_empty:
        faults.append(required(path, "an empty map would require nothing; leave the field out, or list keys"))
    for key, values in value.items():
        faults += [invalid(path, key, fault) for fault in qualified_name(key)]
        if values is None:
            faults.append(required(f"{path}[{key}]", "a list of values; an empty list stands for any value"))
        faults += _strings(f"{path}[{key}]", values, label_value)
    return faults


def _patterns(path: str, value: Any, may_be_empty: bool, check: Callable[[str, Mapping[str, Any]], Faults]) -> Faults:
    if value is None:
        return []
    if not isinstance(value, list):
        return [wrong_type(path, value, "array")]
    if not value and not may_be_empty:
        return [required(path, "an empty list would require nothing; leave the field out, or list patterns")]
    faults = []
    for index, pattern in enumerate(value):
        at = f"{path}[{index}]"
        if not isinstance(pattern, dict):
            faults.append(wrong_type(at, pattern, "object"))
            continue
        faults += check(at, pattern)
    return faults


def _toleration_pattern(path: str, pattern: Mapping[str, Any]) -> Faults:
    return [
        *_unknown(path, pattern, ("keys", "operators", "values", "effects")),
        *_strings(f"{path}.keys", pattern.get("keys"), qualified_name),
        *_choices(f"{path}.operators", pattern.get("operators"), TOLERATION_OPERATORS),
        *_strings(f"{path}.values", pattern.get("values"), label_value),
        *_choices(f"{path}.effects", pattern.get("effects"), EFFECTS),
    ]


def _spread_pattern(path: str, pattern: Mapping[str, Any]) -> Faults:
    return [
        *_unknown(path, pattern, ("topologyKeys", "whenUnsatisfiable")),
        *_strings(f"{path}.topologyKeys", pattern.get("topologyKeys"), qualified_name),
        *_choices(f"{path}.whenUnsatisfiable", pattern.get("whenUnsatisfiable"), WHEN_UNSATISFIABLE),
    ]


# The affinity tree


def _tree(path: str, value: Any, *, may_be_empty: bool) -> Faults:
    if value is None:
        return []
    if not isinstance(value, dict):
        return [wrong_type(path, value, "object")]
    if not value and not may_be_empty:
        return [required(path, "an empty tree would require nothing; leave the field out, or list a kind of affinity")]
    faults = _unknown(path, value, AFFINITY_KINDS)
    faults += _nulls(path, value)
    for listed in AFFINITY_KINDS:
        at, branch = f"{path}.{listed}", value.get(listed)
        if branch is None:
            continue
        if not isinstance(branch, dict):
            faults.append(wrong_type(at, branch, "object"))
            continue
        faults += _unknown(at, branch, HARDNESS)
        faults += _nulls(at, branch)
        for hardness in HARDNESS:
            if branch.get(hardness) is not None:
                faults += _leaf(f"{at}.{hardness}", branch[hardness], listed)
    return faults


def _nulls(path: str, value: Mapping[str, Any]) -> Faults:
    """`{x: null}` can be read as "nothing allowed" and as `{}`, which allows everything, so it is refused."""
    if value and all(child is None for child in value.values()):
        return [invalid(path, value, "null allows nothing, but an empty object allows everything; remove one of them")]
    return []


def _leaf(path: str, leaf: Any, listed: str) -> Faults:
    if not isinstance(leaf, dict | list):
        return [wrong_type(path, leaf, "object")]
    if listed != "nodeAffinities":
        if leaf:
            return [invalid(path, leaf, f"{listed} are allowed or required as a whole: must be empty")]
        return []
    faults: Faults = []
    if isinstance(leaf, dict):
        for nested in AFFINITY_KINDS:
            if nested in leaf:
                faults.append(
                    forbidden(f"{path}.{nested}", f"belongs beside nodeAffinities, two levels up, not inside {HARD}")
                )
        faults += _unknown(path, {key: leaf[key] for key in leaf if key not in AFFINITY_KINDS}, ("nodeSelectorTerms",))
        if not isinstance(leaf.get("nodeSelectorTerms", []), list):
            return [*faults, wrong_type(f"{path}.nodeSelectorTerms", leaf["nodeSelectorTerms"], "array")]
    elif path.endswith(HARD):
        return [wrong_type(path, leaf, "object")]
    else:
        for index, item in enumerate(leaf):
            faults += _preference(f"{path}[{index}]", item)
    for below, term in pattern_terms(leaf):
        at = f"{path}{below}"
        if not isinstance(term, dict):
            faults.append(wrong_type(at, term, "object"))
            continue
        if "matchFields" in term:
            faults.append(forbidden(f"{at}.matchFields", f"can only be allowed by allowing everything: {listed}: {{}}"))
        known = ("matchExpressions", "weight") if at.endswith("]") and isinstance(leaf, list) else ("matchExpressions",)
        faults += _unknown(at, {key: term[key] for key in term if key != "matchFields"}, known)
        faults += _nulls(at, term)
        expressions = term.get("matchExpressions")
        if expressions is not None and not isinstance(expressions, list):
            faults.append(wrong_type(f"{at}.matchExpressions", expressions, "array"))
            continue
        for index, pattern in enumerate(expressions or ()):
            faults += _expression_pattern(f"{at}.matchExpressions[{index}]", pattern)
    return faults


def _preference(path: str, item: Any) -> Faults:
    """What is around the patterns of a preference, in a list as pods write it."""
    if not isinstance(item, dict):
        return []  # reported for the term itself
    faults = _unknown(path, item, ("weight", "preference")) if item.get("preference") is not None else []
    return faults + (_weight(f"{path}.weight", item["weight"]) if item.get("weight") is not None else [])


def _expression_pattern(path: str, pattern: Any) -> Faults:
    if not isinstance(pattern, dict):
        return [wrong_type(path, pattern, "object")]
    return [
        *_unknown(path, pattern, ("keys", "operators", "values")),
        *_strings(f"{path}.keys", pattern.get("keys"), qualified_name),
        *_choices(f"{path}.operators", pattern.get("operators"), EXPRESSION_OPERATORS),
        *_strings(f"{path}.values", pattern.get("values"), label_value),
    ]


# Defaults

_DEFAULTED = (
    "schedulerName",
    "priorityClasseName",
    "nodeSelector",
    "tolerations",
    "affinity",
    "runtimeClassName",
    "topologySpreadConstraints",
)


def _default(path: str, section: Mapping[str, Any]) -> Faults:
    faults = _unknown(path, section, _DEFAULTED)
    for name in ("schedulerName", "priorityClasseName", "runtimeClassName"):
        at, value, clash = _aliased(path, section, name)
        faults += clash
        if value is not None:
            faults += _string(at, value, dns_subdomain)
    selector = section.get("nodeSelector")
    if selector is not None and not isinstance(selector, dict):
        faults.append(wrong_type(f"{path}.nodeSelector", selector, "object"))
    elif selector is not None:
        for key, value in selector.items():
            faults += [invalid(f"{path}.nodeSelector", key, fault) for fault in qualified_name(key)]
            faults += _string(f"{path}.nodeSelector[{key}]", value, label_value)
    tolerations = section.get("tolerations")
    if tolerations is not None and not isinstance(tolerations, list):
        faults.append(wrong_type(f"{path}.tolerations", tolerations, "array"))
    elif tolerations == []:
        faults.append(required(f"{path}.tolerations", "an empty list would add nothing; leave the field out"))
    else:
        for index, toleration in enumerate(tolerations or ()):
            faults += _toleration(f"{path}.tolerations[{index}]", toleration)
    faults += _spread(f"{path}.topologySpreadConstraints", section.get("topologySpreadConstraints"))
    return faults + _object(f"{path}.affinity", section.get("affinity"), _affinity)


def _spread(path: str, constraints: Any) -> Faults:
    """Defaults are written into pods as they are, so the rules for pods apply."""
    if constraints is None:
        return []
    if not isinstance(constraints, list):
        return [wrong_type(path, constraints, "array")]
    if not constraints:
        return [required(path, "an empty list would add nothing; leave the field out")]
    schema = definition_schema("io.k8s.api.core.v1.TopologySpreadConstraint")
    faults: Faults = []
    for index, constraint in enumerate(constraints):
        at = f"{path}[{index}]"
        if not isinstance(constraint, dict):
            faults.append(wrong_type(at, constraint, "object"))
            continue
        found = type_errors(schema, constraint, at)
        found += [forbidden(each.path, each.message) for each in unknown_fields(schema, constraint, at)]
        faults += found
    return faults or list(spread_faults(constraints, path))


def _toleration(path: str, toleration: Any) -> Faults:
    if not isinstance(toleration, dict):
        return [wrong_type(path, toleration, "object")]
    faults = _unknown(path, toleration, ("key", "operator", "value", "values", "effect", "tolerationSeconds"))
    for name in ("key", "operator", "value", "effect"):
        if toleration.get(name) is not None:
            faults += _string(f"{path}.{name}", toleration[name], lambda text: [])
    if faults:
        return faults
    key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
    value, values, effect = toleration.get("value"), toleration.get("values"), toleration.get("effect")
    if key:
        faults += _string(f"{path}.key", key, qualified_name)
    elif operator != "Exists":
        faults.append(invalid(f"{path}.operator", operator, "operator must be Exists when `key` is empty"))
    if operator not in TOLERATION_OPERATORS:
        faults.append(not_supported(f"{path}.operator", operator, TOLERATION_OPERATORS))
    if value and values:
        faults.append(forbidden(f"{path}.values", "may not be given together with value"))
    if operator == "Exists" and (value or values):
        faults.append(invalid(f"{path}.operator", operator, "value must be empty when `operator` is 'Exists'"))
    if value is not None:
        faults += _string(f"{path}.value", value, label_value)
    faults += _strings(f"{path}.values", values, label_value)
    if effect and effect not in EFFECTS:
        faults.append(not_supported(f"{path}.effect", effect, EFFECTS))
    seconds = toleration.get("tolerationSeconds")
    if seconds is not None:
        if not isinstance(seconds, int) or isinstance(seconds, bool):
            faults.append(wrong_type(f"{path}.tolerationSeconds", seconds, "integer"))
        elif effect != "NoExecute":
            faults.append(
                invalid(f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
            )
    return faults


def _affinity(path: str, affinity: Mapping[str, Any]) -> Faults:
    kinds = tuple(AFFINITY_KINDS.values())
    faults = _unknown(path, affinity, kinds)
    faults += _object(f"{path}.nodeAffinity", affinity.get("nodeAffinity"), _node_affinity)
    between = {kind: affinity[kind] for kind in ("podAffinity", "podAntiAffinity") if affinity.get(kind) is not None}
    return faults + _pod_affinities(path, between)


def _pod_affinities(path: str, affinity: Mapping[str, Any]) -> Faults:
    """Defaults are written into pods as they are, so the rules for pods apply."""
    schema = definition_schema("io.k8s.api.core.v1.Affinity")
    faults = type_errors(schema, affinity, path)
    faults += [forbidden(each.path, each.message) for each in unknown_fields(schema, affinity, path)]
    return faults or list(affinity_faults(affinity, path))


def _node_affinity(path: str, given: Mapping[str, Any]) -> Faults:
    faults = _unknown(path, given, HARDNESS)
    hard, soft = given.get(HARD), given.get(SOFT)
    if soft is not None and not isinstance(soft, list):
        faults.append(wrong_type(f"{path}.{SOFT}", soft, "array"))
        soft = None
    for index, preferred in enumerate(soft or ()):
        at = f"{path}.{SOFT}[{index}]"
        if not isinstance(preferred, dict):
            faults.append(wrong_type(at, preferred, "object"))
            continue
        faults += _unknown(at, preferred, ("weight", "preference"))
        faults += _weight(f"{at}.weight", preferred.get("weight"))
        faults += _term(f"{at}.preference", preferred.get("preference"))
    if hard is None:
        return faults
    terms = hard.get("nodeSelectorTerms") if isinstance(hard, dict) else None
    if not isinstance(terms, list) or not terms:
        return [*faults, required(f"{path}.{HARD}.nodeSelectorTerms", "must have at least one node selector term")]
    faults += _unknown(f"{path}.{HARD}", hard, ("nodeSelectorTerms",))
    for index, term in enumerate(terms):
        faults += _term(f"{path}.{HARD}.nodeSelectorTerms[{index}]", term)
    return faults


def _weight(path: str, weight: Any) -> Faults:
    if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= 100:
        return [invalid(path, weight, "must be in the range 1-100")]
    return []


def _term(path: str, term: Any) -> Faults:
    if not isinstance(term, dict):
        return [wrong_type(path, term, "object")]
    if "matchFields" in term:
        return [forbidden(f"{path}.matchFields", "a default may not pin pods to one node")]
    expressions = term.get("matchExpressions")
    if not isinstance(expressions, list) or not expressions:
        return [required(f"{path}.matchExpressions", "must have at least one expression")]
    faults = _unknown(path, term, ("matchExpressions",))
    for index, expression in enumerate(expressions):
        faults += _expression(f"{path}.matchExpressions[{index}]", expression)
    return faults


def _expression(path: str, expression: Any) -> Faults:
    """An expression as pods write it; plural spellings are accepted when they hold exactly one element."""
    if not isinstance(expression, dict):
        return [wrong_type(path, expression, "object")]
    faults = _unknown(path, expression, ("key", "keys", "operator", "operators", "values"))
    for one, many in (("key", "keys"), ("operator", "operators")):
        listed = expression.get(many)
        if listed is not None and (not isinstance(listed, list) or len(listed) != 1):
            faults.append(invalid(f"{path}.{many}", listed, f"a default needs one {one}: give `{one}`, or one element"))
        elif listed is not None and expression.get(one) not in (None, listed[0]):
            faults.append(invalid(f"{path}.{many}", listed, f"differs from {one}; give one of them"))
    faults += _strings(f"{path}.values", expression.get("values"), label_value)
    if faults:
        return faults
    single = singular(expression)
    faults += _string(f"{path}.key", single["key"], qualified_name)
    operator, values = single["operator"], single.get("values", [])
    if operator not in EXPRESSION_OPERATORS:
        faults.append(not_supported(f"{path}.operator", operator, EXPRESSION_OPERATORS))
    elif operator in ("In", "NotIn") and not values:
        faults.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist") and values:
        faults.append(forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
    elif operator in ("Gt", "Lt") and len(values) != 1:
        faults.append(required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    return faults


# Helpers


def _object(path: str, value: Any, check: Callable[[str, Mapping[str, Any]], Faults]) -> Faults:
    if value is None:
        return []
    return check(path, value) if isinstance(value, dict) else [wrong_type(path, value, "object")]


def _aliased(path: str, holder: Mapping[str, Any], name: str) -> tuple[str, Any, Faults]:
    """The value under either spelling, its path, and an error when both are given and differ."""
    alias = ALIASES.get(name, name)
    given, other = holder.get(name), holder.get(alias)
    if given is not None and other is not None and given != other:
        return f"{path}.{name}", given, [invalid(f"{path}.{alias}", other, f"differs from {name}; give one of them")]
    return (f"{path}.{alias}", other, []) if given is None and other is not None else (f"{path}.{name}", given, [])


def _unknown(path: str, holder: Mapping[str, Any], known: Iterable[str]) -> Faults:
    names = list(known)
    accepted = {*names, *(ALIASES[name] for name in names if name in ALIASES)}
    faults = []
    for key in holder:
        if key not in accepted:
            near = nearest(str(key), names)
            hint = f"did you mean {near}?" if near else f"known here: {', '.join(names)}"
            faults.append(forbidden(f"{path}.{key}", f"unknown field; {hint}"))
    return faults


def _strings(path: str, value: Any, check: Callable[[str], list[str]]) -> Faults:
    if value is None:
        return []
    if not isinstance(value, list):
        return [wrong_type(path, value, "array")]
    return [fault for index, item in enumerate(value) for fault in _string(f"{path}[{index}]", item, check)]


def _string(path: str, value: Any, check: Callable[[str], list[str]]) -> Faults:
    if not isinstance(value, str):
        return [wrong_type(path, value, "string")]
    return [invalid(path, value, fault) for fault in check(value)]


def _choices(path: str, value: Any, known: Sequence[str]) -> Faults:
    faults = _strings(path, value, lambda text: [])
    if faults or value is None:
        return faults
    return [not_supported(f"{path}[{index}]", item, known) for index, item in enumerate(value) if item not in known]
