"""The tightest policy that admits given pods: what all of them ask for is required, what some ask for is allowed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from wharfinger.admission.scheduling_policy.merge import exactly
from wharfinger.admission.scheduling_policy.wishes import DEFAULT_SCHEDULER, Spec, Terms, Wishes, read_wishes
from wharfinger.api.kinds.ours import SCHEDULING_POLICIES
from wharfinger.api.registry import Document
from wharfinger.api.views import view
from wharfinger.api.views.scheduling_policy import AFFINITY_KINDS, HARD, SOFT


def suggest(name: str, pods: Iterable[Document], *, global_class: str = "", requiring: bool = True) -> Document:
    """A SchedulingPolicy for these pods. Node names do not count: a scheduler has written them."""
    wishes = [_wishes(pod, global_class) for pod in pods]
    allowed: Document = {"schedulerNames": sorted({each.scheduler or DEFAULT_SCHEDULER for each in wishes})}
    required: Document = {}
    if classes := sorted({each.priority_class for each in wishes if each.priority_class}):
        everywhere = all(each.priority_class for each in wishes)
        (required if requiring and everywhere else allowed)["priorityClasseNames"] = classes
    for key in sorted({key for each in wishes for key in each.selector}):
        values = sorted({each.selector[key] for each in wishes if key in each.selector})
        everywhere = all(key in each.selector for each in wishes)
        (required if requiring and everywhere else allowed).setdefault("nodeSelectors", {})[key] = values
    if tolerations := _tolerations(wishes):
        everywhere = all(each.tolerations for each in wishes)
        (required if requiring and everywhere else allowed)["tolerations"] = tolerations
    if tree := _tree(wishes):
        allowed["affinities"] = tree
    return {
        "apiVersion": SCHEDULING_POLICIES.api_version,
        "kind": SCHEDULING_POLICIES.kind,
        "metadata": {"name": name},
        "spec": {**({"required": required} if required else {}), "allowed": allowed},
    }


def _wishes(pod: Document, global_class: str) -> Wishes:
    owners = (pod.get("metadata") or {}).get("ownerReferences") or ()
    daemon = any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners)
    return read_wishes(view(pod.get("spec") or {}, Spec), daemon=daemon, global_class=global_class)


def _tolerations(wishes: list[Wishes]) -> list[Document]:
    found = {exactly(msgspec.to_builtins(one)): None for each in wishes for _, one in each.tolerations}
    patterns = []
    for pattern in found:
        named = (
            ("keys", pattern.keys),
            ("operators", pattern.operators),
            ("values", pattern.values),
            ("effects", pattern.effects),
        )
        patterns.append({name: list(values) for name, values in named if values})
    return sorted(patterns, key=str)


def _tree(wishes: list[Wishes]) -> Document:
    listed = {kind: name for name, kind in AFFINITY_KINDS.items()}
    tree: Document = {}
    for hardness, terms in (
        (HARD, [item for each in wishes for item in each.hard_terms]),
        (SOFT, [item for each in wishes for item in each.soft_terms]),
    ):
        if terms:
            tree.setdefault("nodeAffinities", {})[hardness] = _patterns(terms)
    for kind, hardness in sorted({slot for each in wishes for slot in each.pod_affinity}):
        tree.setdefault(listed[kind], {})[hardness] = {}
    return tree


def _patterns(terms: Terms) -> Document:
    """Patterns for just these expressions; everything, where a pod names nodes by field."""
    if any(term.match_fields or not term.match_expressions for _, term in terms):
        return {}
    found = {
        (one.key, one.operator, one.values): {
            "keys": [one.key],
            "operators": [one.operator],
            **({"values": list(one.values)} if one.values else {}),
        }
        for _, term in terms
        for one in term.match_expressions
    }
    return {"nodeSelectorTerms": [{"matchExpressions": [found[key] for key in sorted(found)]}]}
