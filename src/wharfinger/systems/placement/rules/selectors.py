"""Compiled cluster selectors: labels, claims and CEL, ANDed. Hashable, so that placements with equal selectors share
results."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wharfinger.api import names
from wharfinger.api.selectors import (
    LabelSelector,
    Operator,
    Requirement,
    Requirements,
    SelectorExpression,
    matches,
)
from wharfinger.cel import Bindings
from wharfinger.systems.placement.kinds.views import CLUSTER_SET_LABEL, ClusterSelector, ManagedClusterSet
from wharfinger.systems.placement.rules.cel import cluster_expression


class BadClusterSelector(ValueError):
    """The selector cannot be evaluated; the message is upstream's."""


class Selector(msgspec.Struct, frozen=True):
    labels: Requirements = ()
    claims: Requirements = ()
    expressions: tuple[str, ...] = ()
    never: bool = False  # a LabelSelector set without a selector: matches nothing

    @property
    def uses_scores(self) -> bool:
        return any(cluster_expression(expression).uses_scores for expression in self.expressions)

    def matches(self, labels: Mapping[str, str], claims: Mapping[str, str]) -> bool:
        """Evaluates labels and claims, without CEL."""
        return not self.never and matches(self.labels, labels) and matches(self.claims, claims)

    def evaluates(self, cluster: Bindings, budget: float) -> bool:
        """Evaluates the CEL expressions. A cluster on which they cost more than the budget does not match."""
        for expression in self.expressions:
            compiled = cluster_expression(expression)
            budget -= compiled.cost(cluster, budget)
            if budget < 0 or not compiled.matches(cluster):
                return False
        return True


def compile_selector(selector: ClusterSelector) -> Selector:
    """Raises BadClusterSelector, or InvalidExpression for CEL."""
    for expression in selector.cel_selector.cel_expressions:
        cluster_expression(expression)
    return Selector(
        labels=compile_labels(selector.label_selector),
        claims=tuple(_requirement(expression) for expression in selector.claim_selector.match_expressions),
        expressions=selector.cel_selector.cel_expressions,
    )


def compile_set(cluster_set: ManagedClusterSet) -> Selector:
    """The member selector of a cluster set. Raises BadClusterSelector."""
    selector = cluster_set.spec.cluster_selector
    if selector.selector_type == "LabelSelector":
        if selector.label_selector is None:
            return Selector(never=True)
        return Selector(labels=compile_labels(selector.label_selector))
    name = frozenset((cluster_set.metadata.name,))
    return Selector(labels=(Requirement(CLUSTER_SET_LABEL, Operator.IN, name),))


def compile_labels(selector: LabelSelector) -> Requirements:
    exact = [SelectorExpression(key, "In", (value,)) for key, value in sorted(selector.match_labels.items())]
    return tuple(_requirement(expression) for expression in (*exact, *selector.match_expressions))


_OPERATORS = {operator.value: operator for operator in Operator if operator not in (Operator.GT, Operator.LT)}


def _requirement(expression: SelectorExpression) -> Requirement:
    """Compiles one expression; errors have the wording of apimachinery's labels.NewRequirement."""
    operator = _OPERATORS.get(expression.operator)
    if operator is None:
        raise BadClusterSelector(f'"{expression.operator}" is not a valid label selector operator')
    faults = []
    if errors := names.qualified_name(expression.key):
        faults.append(f"key: Invalid value: {_show(expression.key)}: {'; '.join(errors)}")
    values = expression.values
    if operator in (Operator.IN, Operator.NOT_IN):
        if not values:
            faults.append("values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty")
    elif values:
        faults.append(
            f"values: Invalid value: {_show(list(values))}: values set must be empty for exists and does not exist"
        )
    for index, value in enumerate(values):
        if errors := names.label_value(value):
            faults.append(f"values[{index}][{expression.key}]: Invalid value: {_show(value)}: {'; '.join(errors)}")
    if faults:
        raise BadClusterSelector(faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")
    return Requirement(expression.key, operator, frozenset(values))


def _show(value: object) -> str:
    return msgspec.json.encode(value).decode()
