"""Compiled selectors of pods and nodes, with the scheduler's semantics.

A node selector term that cannot be parsed matches nothing, as in upstream's LazyErrorNodeSelector; a pod selector that
cannot be parsed raises BadSelector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wharfinger.api.selectors import (
    BadSelector,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Operator,
    Requirement,
    Requirements,
    matches,
    requirement,
)
from wharfinger.api.views.nodes import Node, Taint
from wharfinger.api.views.pods import Pod, PodAffinityTerm, PreferredSchedulingTerm, Toleration


@dataclass(frozen=True, slots=True)
class PodSelector:
    """A label selector for pods; `requirements` is None for an absent selector, which matches nothing."""

    requirements: Requirements | None

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.requirements is not None and matches(self.requirements, labels)

    @property
    def empty(self) -> bool:
        """Whether this is the empty selector, which matches everything."""
        return self.requirements is not None and not self.requirements


NOTHING = PodSelector(None)


def pod_selector(selector: LabelSelector | None) -> PodSelector:
    """Raises BadSelector."""
    return NOTHING if selector is None else PodSelector(selector.compile())


def exact(labels: Mapping[str, str]) -> Requirements:
    """Requirements that match a plain map of labels; not validated, as upstream."""
    return tuple(Requirement(key, Operator.IN, frozenset((value,))) for key, value in sorted(labels.items()))


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One term of a node selector: requirements on labels and on the node's name."""

    labels: Requirements
    names: tuple[tuple[str, bool], ...]  # (name, whether the node's name must equal it or differ)

    def matches(self, node: Node) -> bool:
        name = node.metadata.name
        return matches(self.labels, node.metadata.labels) and all(
            (name == other) is equal for other, equal in self.names
        )


NodeTerms = tuple[NodeTerm, ...]


def node_term(term: NodeSelectorTerm) -> NodeTerm | None:
    """None for an empty term, which matches nothing. Raises BadSelector."""
    if not term.match_expressions and not term.match_fields:
        return None
    labels = tuple(
        requirement(expression, node=True, path=f"matchExpressions[{index}]")
        for index, expression in enumerate(term.match_expressions)
    )
    names = []
    for index, expression in enumerate(term.match_fields):
        path = f"matchFields[{index}]"
        if expression.operator not in ("In", "NotIn"):
            raise BadSelector(f'"{expression.operator}" is not a valid field selector operator', f"{path}.operator")
        if len(expression.values) != 1:
            raise BadSelector("must have one element", f"{path}.values")
        if expression.key != "metadata.name":
            # Upstream supports no other field and reads an unknown one as empty. No node is called \0: this never matches.
            if (expression.values[0] == "") is not (expression.operator == "In"):
                names.append(("\0", True))
            continue
        names.append((expression.values[0], expression.operator == "In"))
    return NodeTerm(labels, tuple(names))


def node_terms(selector: NodeSelector) -> NodeTerms:
    """The terms that can match; empty and invalid ones are left out."""
    compiled = []
    for term in selector.node_selector_terms:
        try:
            parsed = node_term(term)
        except BadSelector:
            continue
        if parsed is not None:
            compiled.append(parsed)
    return tuple(compiled)


@dataclass(frozen=True, slots=True)
class RequiredNodeAffinity:
    """A pod's node selector and required node affinity; `terms` is None if there is no affinity."""

    selector: Requirements
    terms: NodeTerms | None

    @property
    def anything(self) -> bool:
        return not self.selector and self.terms is None

    def matches(self, node: Node) -> bool:
        if not matches(self.selector, node.metadata.labels):
            return False
        return self.terms is None or any(term.matches(node) for term in self.terms)


def required_node_affinity(pod: Pod) -> RequiredNodeAffinity:
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    return RequiredNodeAffinity(exact(pod.spec.node_selector), None if required is None else node_terms(required))


def preferred_terms(terms: tuple[PreferredSchedulingTerm, ...]) -> tuple[tuple[NodeTerm, int], ...]:
    """Terms with their weights; empty terms and those of weight 0 are left out. Raises BadSelector."""
    compiled = []
    for index, term in enumerate(terms):
        if term.weight == 0:
            continue
        try:
            parsed = node_term(term.preference)
        except BadSelector as fault:
            raise BadSelector(str(fault), f"[{index}].{fault.path}") from None
        if parsed is not None:
            compiled.append((parsed, term.weight))
    return tuple(compiled)


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A pod affinity term: a selector, the namespaces it applies to and a topology key."""

    topology_key: str
    selector: PodSelector
    namespaces: frozenset[str]
    namespace_selector: PodSelector

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        if namespace in self.namespaces or self.namespace_selector.matches(namespace_labels):
            return self.selector.matches(labels)
        return False


def affinity_term(term: PodAffinityTerm, namespace: str) -> AffinityTerm:
    """Raises BadSelector. matchLabelKeys and mismatchLabelKeys were merged into the selector when the pod was created."""
    own = not term.namespaces and term.namespace_selector is None
    return AffinityTerm(
        term.topology_key,
        pod_selector(term.label_selector),
        frozenset((namespace,)) if own else frozenset(term.namespaces),
        pod_selector(term.namespace_selector),
    )


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    # Lt and Gt are an alpha feature that is off by default; they tolerate nothing.
    return toleration.operator == "Exists"


def untolerated(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...]) -> bool:
    """Whether there is a taint with effect NoSchedule or NoExecute that is not tolerated."""
    return any(taint.effect in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint) for taint in taints)
