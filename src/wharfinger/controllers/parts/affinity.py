"""Whether a pod's required node affinity and node selector allow a node. Pure."""

from __future__ import annotations

from wharfinger.api.selectors import BadSelector, NodeSelectorTerm, requirement
from wharfinger.api.views import Node
from wharfinger.api.views.pods import PodSpec


def allows_node(spec: PodSpec, node: Node) -> bool:
    if not spec.node_selector.items() <= node.metadata.labels.items():
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return any(_term_matches(term, node) for term in affinity.required.node_selector_terms)


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    try:
        return all(
            requirement(each, node=True).matches(node.metadata.labels) for each in term.match_expressions
        ) and all(
            each.key in fields and (fields[each.key] in each.values) is (each.operator == "In")
            for each in term.match_fields
        )
    except BadSelector:
        return False
