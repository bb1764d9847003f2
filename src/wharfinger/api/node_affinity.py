"""Node selectors and node affinity, compiled: which nodes a pod or a volume may use.

The rules are those of component-helpers' scheduling/corev1/nodeaffinity. A required term that cannot be parsed matches no
node, as in upstream's LazyErrorNodeSelector; a preferred one is an error.
"""

from __future__ import annotations

import msgspec

from wharfinger.api.selectors import (
    BadSelector,
    NodeSelector,
    NodeSelectorTerm,
    Requirements,
    exact_labels,
    matches,
    requirement,
)
from wharfinger.api.views.nodes import Node
from wharfinger.api.views.pods import PodSpec, PreferredSchedulingTerm

_NO_NODE = ("\0", True)  # a name that no node has


class NodeTerm(msgspec.Struct, frozen=True):
    """One term of a node selector: label requirements, and names that the node must or must not have."""

    labels: Requirements
    names: tuple[tuple[str, bool], ...]  # (name, whether it must equal)

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
            # Upstream supports no other field and reads any other as empty.
            if (expression.values[0] == "") is not (expression.operator == "In"):
                names.append(_NO_NODE)
            continue
        names.append((expression.values[0], expression.operator == "In"))
    return NodeTerm(labels, tuple(names))


def node_terms(selector: NodeSelector) -> NodeTerms:
    """The terms that can match; empty and malformed ones are left out."""
    compiled = []
    for term in selector.node_selector_terms:
        try:
            parsed = node_term(term)
        except BadSelector:
            continue
        if parsed is not None:
            compiled.append(parsed)
    return tuple(compiled)


class RequiredNodeAffinity(msgspec.Struct, frozen=True):
    """The node selector and the required node affinity of a pod; `terms` is None when there is no affinity."""

    selector: Requirements
    terms: NodeTerms | None

    @property
    def anything(self) -> bool:
        return not self.selector and self.terms is None

    def matches(self, node: Node) -> bool:
        if not matches(self.selector, node.metadata.labels):
            return False
        return self.terms is None or any(term.matches(node) for term in self.terms)


def required_node_affinity(spec: PodSpec) -> RequiredNodeAffinity:
    affinity = spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    return RequiredNodeAffinity(exact_labels(spec.node_selector), None if required is None else node_terms(required))


def preferred_terms(terms: tuple[PreferredSchedulingTerm, ...]) -> tuple[tuple[NodeTerm, int], ...]:
    """The terms with their weights, without empty ones and those of weight 0. Raises BadSelector."""
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
