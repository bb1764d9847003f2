"""A SchedulingPolicy as decisions read it: aliases resolved, absent told apart from empty.

`read_policy` takes a document that passed validation and never changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from wharfinger.api.registry import Document

MODE_KEY = "scheduling.sigs.x-k8s.io/mode"
"""Annotation of a policy (`audit` excludes it from enforcement), and label of a namespace where the settings enable
that."""

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
HARDNESS = (HARD, SOFT)
AFFINITY_KINDS = {
    "nodeAffinities": "nodeAffinity",
    "podAffinities": "podAffinity",
    "podAntiAffinities": "podAntiAffinity",
}
"""Kinds of affinity: the name in a policy, and the name in a pod."""

ALIASES = {
    "schedulerNames": "SchedulerNames",
    "schedulerName": "SchedulerName",
    "priorityClasseNames": "priorityClassNames",
    "priorityClasseName": "priorityClassName",
}
"""Alternative spellings, by canonical field name."""


SubKey = tuple[str, str, tuple[str, ...] | None]
"""Kind of affinity, hardness, and keys of an expression; None where the rule is about affinity as such."""


class TolerationPattern(msgspec.Struct, frozen=True):
    """A pattern for tolerations; an empty tuple matches anything."""

    keys: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()


class ExpressionPattern(msgspec.Struct, frozen=True):
    """A pattern for node affinity expressions; an empty tuple matches anything."""

    keys: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


class SpreadPattern(msgspec.Struct, frozen=True):
    """A pattern for topology spread constraints; an empty tuple matches anything."""

    topology_keys: tuple[str, ...] = ()
    when_unsatisfiable: tuple[str, ...] = ()


class AffinityRule(msgspec.Struct, frozen=True):
    """One leaf of the affinity tree. Without patterns it covers all affinity of its kind and hardness."""

    kind: str  # as pods name it: nodeAffinity, podAffinity, podAntiAffinity
    hardness: str  # HARD or SOFT; empty in requirements that either one satisfies
    pattern: ExpressionPattern | None = None

    @property
    def sub_key(self) -> SubKey:
        """Rules of different policies with the same sub-key are about the same thing."""
        return (self.kind, self.hardness, None if self.pattern is None else tuple(sorted(self.pattern.keys)))


class PolicySection(msgspec.Struct, frozen=True):
    """`required` or `allowed`. None means absent, so nothing; empty means anything (only in `allowed`)."""

    scheduler_names: tuple[str, ...] | None = None
    priority_classes: tuple[str, ...] | None = None
    node_selectors: Mapping[str, tuple[str, ...]] | None = None
    tolerations: tuple[TolerationPattern, ...] | None = None
    affinities: tuple[AffinityRule, ...] | None = None
    runtime_classes: tuple[str, ...] | None = None
    spread: tuple[SpreadPattern, ...] | None = None


class AffinityDefault(msgspec.Struct, frozen=True):
    """Affinity to inject: one expression for hard node affinity, otherwise the whole list of terms."""

    kind: str
    hardness: str
    keys: tuple[str, ...]
    value: Any

    @property
    def sub_key(self) -> SubKey:
        return (self.kind, self.hardness, self.keys)


class PolicyDefaults(msgspec.Struct, frozen=True):
    scheduler_name: str = ""
    priority_class: str = ""
    node_selector: Mapping[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Document, ...] = ()  # as they are written into pods
    affinity: tuple[AffinityDefault, ...] = ()
    runtime_class: str = ""
    spread: tuple[Document, ...] = ()  # as they are written into pods


class SchedulingPolicy(msgspec.Struct, frozen=True, eq=False):
    name: str
    required: PolicySection = PolicySection()
    allowed: PolicySection = PolicySection()
    default: PolicyDefaults = msgspec.field(default_factory=PolicyDefaults)
    audited: bool = False  # in audit mode
    warnings: tuple[str, ...] = ()


def read_policy(document: Document) -> SchedulingPolicy:
    metadata = document.get("metadata") or {}
    spec = document.get("spec") or {}
    allowed = dict(spec.get("allowed") or {})
    if allowed.get("affinities") is None and spec.get("allowedAffinities") is not None:
        allowed["affinities"] = spec["allowedAffinities"]
    default = spec.get("default") or {}
    terms = _hard_terms(default)
    warnings: tuple[str, ...] = ()
    if len(terms) > 1:
        warnings = (
            f"spec.default.affinity.nodeAffinity.{HARD}.nodeSelectorTerms: the {len(terms)} terms are folded into one, "
            "since a pod's terms are alternatives and each would lift what the others ask for",
        )
    return SchedulingPolicy(
        name=metadata.get("name") or "",
        required=_section(spec.get("required") or {}, required=True),
        allowed=_section(allowed, required=False),
        default=_defaults(default),
        audited=(metadata.get("annotations") or {}).get(MODE_KEY) == "audit",
        warnings=warnings,
    )


def aliased(holder: Mapping[str, Any], name: str) -> Any:
    """The field under its canonical name or its alias; null counts as absent."""
    value = holder.get(name)
    return holder.get(ALIASES[name]) if value is None and name in ALIASES else value


def _section(given: Mapping[str, Any], *, required: bool) -> PolicySection:
    selectors = given.get("nodeSelectors")
    tolerations = given.get("tolerations")
    tree = given.get("affinities")
    spread = given.get("topologySpreadConstraints")
    return PolicySection(
        scheduler_names=_names(aliased(given, "schedulerNames")),
        priority_classes=_names(aliased(given, "priorityClasseNames")),
        node_selectors=None if selectors is None else {key: tuple(values) for key, values in selectors.items()},
        tolerations=None if tolerations is None else tuple(_toleration(pattern) for pattern in tolerations),
        affinities=None if tree is None else tuple(_leaves(tree, required)),
        runtime_classes=_names(given.get("runtimeClassNames")),
        spread=None if spread is None else tuple(_spread(pattern) for pattern in spread),
    )


def _spread(pattern: Mapping[str, Any]) -> SpreadPattern:
    return SpreadPattern(_tuple(pattern, "topologyKeys"), _tuple(pattern, "whenUnsatisfiable"))


def _names(value: Any) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


def _tuple(pattern: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(pattern.get(name) or ())


def _toleration(pattern: Mapping[str, Any]) -> TolerationPattern:
    return TolerationPattern(*(_tuple(pattern, name) for name in ("keys", "operators", "values", "effects")))


def _leaves(tree: Mapping[str, Any], required: bool) -> list[AffinityRule]:
    leaves = []
    for listed, kind in AFFINITY_KINDS.items():
        branch = tree.get(listed)
        if branch is None:
            continue
        if not branch and required:
            leaves.append(AffinityRule(kind, ""))
        for hardness in HARDNESS:
            leaf = branch.get(hardness) if branch else {}
            if leaf is None or (not branch and required):
                continue
            patterns, everything = expression_patterns(leaf)
            if (everything and not required) or not patterns:
                leaves.append(AffinityRule(kind, hardness))
            else:
                leaves += [AffinityRule(kind, hardness, pattern) for pattern in patterns]
    return leaves


def pattern_terms(leaf: Any) -> list[tuple[str, Any]]:
    """The terms below a leaf of the tree with their paths: `nodeSelectorTerms`, or a list in the form of pod
    preferences."""
    if isinstance(leaf, list):
        return [
            (f"[{index}].preference", term["preference"])
            if isinstance(term, dict) and term.get("preference") is not None
            else (f"[{index}]", term)
            for index, term in enumerate(leaf)
        ]
    return [(f".nodeSelectorTerms[{index}]", term) for index, term in enumerate(leaf.get("nodeSelectorTerms") or ())]


def expression_patterns(leaf: Any) -> tuple[list[ExpressionPattern], bool]:
    """All patterns below a leaf, and whether the leaf or one of its terms is empty, which matches everything."""
    terms = [term for _, term in pattern_terms(leaf)]
    patterns = [
        ExpressionPattern(_tuple(pattern, "keys"), _tuple(pattern, "operators"), _tuple(pattern, "values"))
        for term in terms
        for pattern in term.get("matchExpressions") or ()
    ]
    return patterns, not terms or any(not term.get("matchExpressions") for term in terms)


def _defaults(given: Mapping[str, Any]) -> PolicyDefaults:
    return PolicyDefaults(
        scheduler_name=aliased(given, "schedulerName") or "",
        priority_class=aliased(given, "priorityClasseName") or "",
        node_selector=given.get("nodeSelector") or {},
        tolerations=tuple(one for each in given.get("tolerations") or () for one in _default_tolerations(each)),
        affinity=tuple(_default_affinity(given.get("affinity") or {})),
        runtime_class=given.get("runtimeClassName") or "",
        spread=tuple(given.get("topologySpreadConstraints") or ()),
    )


def _default_tolerations(given: Mapping[str, Any]) -> list[Document]:
    """One toleration for each of `values`."""
    single = {key: value for key, value in given.items() if key != "values" and value is not None}
    values = given.get("values")
    return [{**single, "value": value} for value in values] if values else [single]


def _hard_terms(default: Mapping[str, Any]) -> list[Any]:
    node = (default.get("affinity") or {}).get("nodeAffinity") or {}
    return (node.get(HARD) or {}).get("nodeSelectorTerms") or []


def _default_affinity(given: Mapping[str, Any]) -> list[AffinityDefault]:
    found = []
    node = given.get("nodeAffinity") or {}
    for term in (node.get(HARD) or {}).get("nodeSelectorTerms") or ():
        for expression in term.get("matchExpressions") or ():
            one = singular(expression)
            found.append(AffinityDefault("nodeAffinity", HARD, (one["key"],), one))
    for preferred in node.get(SOFT) or ():
        preference = preferred.get("preference") or {}
        expressions = [singular(expression) for expression in preference.get("matchExpressions") or ()]
        keys = tuple(sorted(expression["key"] for expression in expressions))
        value = {**preferred, "preference": {**preference, "matchExpressions": expressions}}
        found.append(AffinityDefault("nodeAffinity", SOFT, keys, value))
    for kind in ("podAffinity", "podAntiAffinity"):
        for hardness in HARDNESS:
            if terms := (given.get(kind) or {}).get(hardness):
                found.append(AffinityDefault(kind, hardness, (), terms))
    return found


def singular(expression: Mapping[str, Any]) -> Document:
    """An expression of a default as pods write it: one-element `keys` and `operators` become `key` and `operator`."""
    one: Document = {"key": expression.get("key") or (expression.get("keys") or [""])[0]}
    one["operator"] = expression.get("operator") or (expression.get("operators") or [""])[0]
    if expression.get("values"):
        one["values"] = list(expression["values"])
    return one
