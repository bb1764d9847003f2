"""The tightest policy that admits given pods: what all of them ask for is required, what some ask for is allowed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from wharfinger.api.object_meta import is_controlled_by
from wharfinger.api.registry import Document
from wharfinger.api.selectors import SelectorExpression
from wharfinger.api.views import view
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.kinds.views import (
    AFFINITY_KINDS,
    HARD,
    SOFT,
    ExpressionPattern,
    TolerationPattern,
)
from wharfinger.systems.scheduling_policy.rules.merge import exactly
from wharfinger.systems.scheduling_policy.rules.patterns import covers_expression, covers_toleration
from wharfinger.systems.scheduling_policy.rules.shipped import use_binding, use_role
from wharfinger.systems.scheduling_policy.rules.wishes import DEFAULT_SCHEDULER, Spec, Terms, Wishes, read_wishes


def manifests_for(
    namespace: str, pods: Iterable[Document], *, name: str = "", global_class: str = "", requiring: bool = True
) -> list[Document]:
    """The policy for the pods of a namespace that have not ended, with the role and binding to use it. Empty if there are
    no such pods."""
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
    if not running:
        return []
    name = name or namespace
    policy = suggest(name, running, global_class=global_class, requiring=requiring)
    return [policy, use_role(name), use_binding(name, namespace)]


def default_class(classes: Iterable[Document]) -> str:
    """The priority class of pods that name none; empty if there is none."""
    defaults = [each for each in classes if each.get("globalDefault")]
    lowest = min(defaults, key=lambda each: int(each.get("value") or 0), default=None)
    return "" if lowest is None else str(lowest["metadata"]["name"])


def suggest(name: str, pods: Iterable[Document], *, global_class: str = "", requiring: bool = True) -> Document:
    """A SchedulingPolicy for these pods. Node names are ignored, since a scheduler has written them."""
    wishes = [_wishes(pod, global_class) for pod in pods]
    required: Document = {}
    allowed: Document = {}

    def section(everywhere: bool) -> Document:
        return required if requiring and everywhere else allowed

    section(True)["schedulerNames"] = sorted({each.scheduler or DEFAULT_SCHEDULER for each in wishes})
    if classes := sorted({each.priority_class for each in wishes if each.priority_class}):
        section(all(each.priority_class for each in wishes))["priorityClasseNames"] = classes
    for key in sorted({key for each in wishes for key in each.selector}):
        values = sorted({each.selector[key] for each in wishes if key in each.selector})
        chosen = section(all(key in each.selector for each in wishes))
        chosen.setdefault("nodeSelectors", {})[key] = values
    if tolerations := _tolerations(wishes):
        section(all(each.tolerations for each in wishes))["tolerations"] = tolerations
    _node_affinity(required if requiring else None, allowed, HARD, [each.hard_terms for each in wishes])
    _node_affinity(required if requiring else None, allowed, SOFT, [each.soft_terms for each in wishes])
    if runtime_classes := sorted({each.runtime_class for each in wishes if each.runtime_class}):
        section(all(each.runtime_class for each in wishes))["runtimeClassNames"] = runtime_classes
    spreads = {(one.topology_key, one.when_unsatisfiable) for each in wishes for _, one in each.spread}
    if spreads:
        section(all(each.spread for each in wishes))["topologySpreadConstraints"] = [
            {"topologyKeys": [key], "whenUnsatisfiable": [when]} for key, when in sorted(spreads)
        ]
    listed = {kind: name for name, kind in AFFINITY_KINDS.items()}
    for kind, hardness in sorted({slot for each in wishes for slot in each.pod_affinity}):
        chosen = section(all((kind, hardness) in each.pod_affinity for each in wishes))
        chosen.setdefault("affinities", {}).setdefault(listed[kind], {})[hardness] = {}
    return {
        "apiVersion": SCHEDULING_POLICIES.api_version,
        "kind": SCHEDULING_POLICIES.kind,
        "metadata": {"name": name},
        "spec": {name: given for name, given in (("required", required), ("allowed", allowed)) if given},
    }


def _wishes(pod: Document, global_class: str) -> Wishes:
    daemon = is_controlled_by(pod, "DaemonSet")
    return read_wishes(view(pod.get("spec") or {}, Spec), daemon=daemon, global_class=global_class)


def _tolerations(wishes: list[Wishes]) -> list[Document]:
    """A pattern for each toleration that no wider pattern covers."""
    found = {exactly(msgspec.to_builtins(one)): one for each in wishes for _, one in each.tolerations}
    needed = [
        pattern
        for pattern, one in found.items()
        if not any(covers_toleration(other, one) for other in found if other != pattern)
    ]
    return sorted((_document(pattern) for pattern in needed), key=str)


def _node_affinity(required: Document | None, allowed: Document, hardness: str, by_pod: list[Terms]) -> None:
    """Requires the expressions that are in every term of every pod, and allows the others exactly."""
    terms = [term for terms in by_pod for _, term in terms]
    if not terms:
        return
    if any(term.match_fields or not term.match_expressions for term in terms):
        _put(allowed, hardness, {})  # nodes named by a field can only be allowed by allowing everything
        return
    found = {_exact(one): one for term in terms for one in term.match_expressions}
    common: set[ExpressionPattern] = set()
    if required is not None and all(by_pod):
        common = set(found).intersection(*({_exact(one) for one in term.match_expressions} for term in terms))
    needed = [
        pattern
        for pattern, one in found.items()
        if pattern in common or not any(covers_expression(other, one) for other in found if other != pattern)
    ]
    for section, patterns in ((required, common), (allowed, set(needed) - common)):
        if section is not None and patterns:
            listed = sorted((_document(pattern) for pattern in patterns), key=str)
            _put(section, hardness, {"nodeSelectorTerms": [{"matchExpressions": listed}]})


def _put(section: Document, hardness: str, leaf: Document) -> None:
    section.setdefault("affinities", {}).setdefault("nodeAffinities", {})[hardness] = leaf


def _exact(one: SelectorExpression) -> ExpressionPattern:
    """The pattern for just this expression; the order of values does not matter."""
    return ExpressionPattern((one.key,), (one.operator,), tuple(sorted(one.values)))


def _document(pattern: TolerationPattern | ExpressionPattern) -> Document:
    names = ("keys", "operators", "values", "effects")
    return {name: list(values) for name in names if (values := getattr(pattern, name, ()))}
