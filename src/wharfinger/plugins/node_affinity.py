"""NodeAffinity: node selectors and node affinity, required and preferred."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wharfinger.api.fields import FieldError
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.node_affinity import (
    NodeTerm,
    NodeTerms,
    RequiredNodeAffinity,
    node_term,
    node_terms,
    preferred_terms,
    required_node_affinity,
)
from wharfinger.api.selectors import BadSelector, NodeSelectorTerm
from wharfinger.api.views import Pod
from wharfinger.api.views.pods import NodeAffinity
from wharfinger.framework.columns import Bools, Ints, Rows
from wharfinger.framework.events import NODE, Action, WakeUp
from wharfinger.framework.plugin import Args, Plugin, Prepared, normalize_by_max
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status, unresolvable
from wharfinger.framework.tables import Tables

REASON_POD = unresolvable("node(s) didn't match Pod's node affinity/selector")
REASON_ENFORCED = unresolvable("node(s) didn't match scheduler-enforced node affinity")
REASON_CONFLICT = unresolvable("pod affinity terms conflict")


class NodeAffinityArgs(Args, frozen=True):
    added_affinity: NodeAffinity | None = None

    def faults(self, kubernetes: KubernetesVersion) -> list[FieldError]:
        if self.added_affinity is None:
            return []
        found = []
        required = self.added_affinity.required
        path = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        for index, term in enumerate(required.node_selector_terms if required else ()):
            found += _term_faults(term, f"{path}[{index}]")
        path = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"
        for index, weighted in enumerate(self.added_affinity.preferred):
            found += _term_faults(weighted.preference, f"{path}[{index}]")
        return found


def _term_faults(term: NodeSelectorTerm, path: str) -> list[FieldError]:
    try:
        node_term(term)
    except BadSelector as fault:
        return [FieldError(f"{path}.{fault.path}", "FieldValueInvalid", str(fault))]
    return []


class NodeAffinityPlugin(Plugin):
    name = "NodeAffinity"
    points = frozenset({"preFilter", "filter", "preScore", "score"})
    position = 60
    weight = 2
    args_type = NodeAffinityArgs

    def __init__(self, tables: Tables, args: NodeAffinityArgs) -> None:
        super().__init__(tables, args)
        added = args.added_affinity
        self._enforced: NodeTerms | None = (
            None if added is None or added.required is None else node_terms(added.required)
        )
        self._added = () if added is None else preferred_terms(added.preferred)

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        affinity = shape.pod.spec.affinity
        stated = affinity.node_affinity if affinity else None
        fault, preferred = "", self._added
        try:
            preferred += preferred_terms(stated.preferred) if stated else ()
        except BadSelector as error:
            fault = f"{error.path}: {error}"
        names = _names(stated)
        if names is not None and not names:
            return REASON_CONFLICT
        prepared = _NodeAffinity(self.tables, self._enforced, shape.node_affinity, preferred)
        prepared.scores = bool(self._added) or bool(stated and stated.preferred)
        prepared.score_fault = fault
        prepared.nodes = names
        return prepared if prepared.filters or prepared.scores else None

    def wake_ups(self) -> tuple[WakeUp, ...]:
        return (WakeUp(NODE, Action.ADD | Action.UPDATE_NODE_LABEL, self._node_matches),)

    def _node_matches(self, pod: Pod, old: Any, new: Any) -> bool:
        if self._enforced is not None and not any(term.matches(new) for term in self._enforced):
            return False
        wanted = required_node_affinity(pod.spec)
        return wanted.matches(new) and (old is None or not wanted.matches(old))


def _names(affinity: NodeAffinity | None) -> frozenset[str] | None:
    """The only nodes that can match, if every term names nodes. Terms are ORed, the fields of a term are ANDed."""
    if affinity is None or affinity.required is None or not affinity.required.node_selector_terms:
        return None
    names: set[str] = set()
    for term in affinity.required.node_selector_terms:
        of_term: set[str] | None = None
        for expression in term.match_fields:
            if expression.key == "metadata.name" and expression.operator == "In":
                values = set(expression.values)
                of_term = values if of_term is None else of_term & values
        if of_term is None:
            return None
        names |= of_term
    return frozenset(names)


class _NodeAffinity(Prepared):
    normalizes = bounded = True

    def __init__(
        self,
        tables: Tables,
        enforced: NodeTerms | None,
        required: RequiredNodeAffinity,
        preferred: tuple[tuple[NodeTerm, int], ...],
    ) -> None:
        super().__init__()
        self._tables = tables
        self._enforced = enforced
        self._required = required
        self._preferred = preferred
        self.filters = enforced is not None or not required.anything
        self._by_pod = self.refuse(REASON_POD)
        self._by_enforced = self.refuse(REASON_ENFORCED)

    def filter(self, rows: Rows) -> Ints:
        codes = np.where(matching(self._tables, self._required, rows), 0, self._by_pod)
        if self._enforced is not None:
            codes = np.where(_any_term(self._tables, self._enforced, rows), codes, self._by_enforced)
        return codes

    def detail(self, row: int) -> str:
        """The labels that the node lacks: those of the selector, else those of the term that comes nearest."""
        node = self._tables.nodes[row]
        if node is None:
            return ""
        labels = node.metadata.labels
        lacking = [each for each in self._required.selector if not each.matches(labels)]
        if not lacking and self._required.terms:
            terms = ([each for each in term.labels if not each.matches(labels)] for term in self._required.terms)
            lacking = min(terms, key=len)
        return ", ".join(f"{each.text()} (the node has {_has(labels, each.key)})" for each in lacking)

    def score(self, rows: Rows) -> Ints:
        total = np.zeros(len(rows), dtype=np.int64)
        for term, weight in self._preferred:
            total += np.where(_term(self._tables, term, rows), weight, 0)
        return total

    def normalize(self, scores: Ints, rows: Rows) -> Ints:
        return normalize_by_max(scores)


def _has(labels: Mapping[str, str], key: str) -> str:
    return f"{key}={labels[key]}" if key in labels else f"no {key}"


def matching(tables: Tables, required: RequiredNodeAffinity, rows: Rows) -> Bools:
    """Which rows match a pod's node selector and required node affinity."""
    found = tables.labelled(required.selector, rows)
    if required.terms is not None:
        found &= _any_term(tables, required.terms, rows)
    return found


def _any_term(tables: Tables, terms: NodeTerms, rows: Rows) -> Bools:
    found = np.zeros(len(rows), dtype=np.bool_)
    for term in terms:
        found |= _term(tables, term, rows)
    return found


def _term(tables: Tables, term: NodeTerm, rows: Rows) -> Bools:
    found = tables.labelled(term.labels, rows)
    for name, equal in term.names:
        same = rows == tables.row_of.get(name, -1)
        found &= same if equal else ~same
    return found


plugins = (NodeAffinityPlugin,)
