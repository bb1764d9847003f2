"""CEL expressions over managed clusters: the variable `managedCluster`, and the functions `scores` and `parseJSON`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import msgspec
from cel_expr_python import cel

from wharfinger.api.quantity import BadQuantity, canonical
from wharfinger.api.registry import Document
from wharfinger.cel import Bindings, Environment, EvaluationError, Program, current_context
from wharfinger.cel.cost import PER_EXPRESSION
from wharfinger.cel.library import DYN, MAP, TEXT, function

ScoreLookup = Callable[[str], list[dict[str, Any]] | None]
"""The valid scores of a cluster by score resource name; None if the object does not exist or has expired."""

_COST = 5_000_000  # limit for all expressions of one selector on all clusters: a quarter of a second
_LEAST_COST_PER_CLUSTER = 10_000


def cost_per_cluster(clusters: int) -> float:
    """The limit for all expressions of a selector on one of so many clusters. Each gets the same share, so that no expression
    holds up the decisions of other placements for long, and the result does not depend on the order of clusters."""
    return max(_LEAST_COST_PER_CLUSTER, _COST / max(clusters, 1))


class ClusterExpression:
    """One compiled expression."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.uses_scores = "scores" in program.functions

    def cost(self, cluster: Bindings, limit: float = PER_EXPRESSION) -> float:
        """The estimated cost, a closer estimate where it is above the limit."""
        return self._program.cost(cluster, limit)

    def matches(self, cluster: Bindings) -> bool:
        """Whether the expression is true. Errors, non-boolean results and an exceeded cost limit do not match."""
        try:
            return self._program.evaluate(cluster) is True
        except EvaluationError:
            return False


@lru_cache(maxsize=4096)
def cluster_expression(text: str) -> ClusterExpression:
    """Raises InvalidExpression."""
    return ClusterExpression(_environment().compile(text))


def bind_cluster(document: Document, scores: ScoreLookup) -> Bindings:
    """Binds a cluster for evaluation by any number of expressions; the score lookup is the context of the bindings."""
    return _environment().bind({"managedCluster": _normalized(document)}, scores)


@cache
def _environment() -> Environment:
    return Environment(
        {"managedCluster": MAP},
        [
            function("scores", (cel.Type.List(MAP), (MAP, TEXT), _scores)),
            function("parseJSON", (DYN, (TEXT,), _parse_json)),
        ],
    )


def _scores(cluster: dict[str, Any], resource: str) -> list[dict[str, Any]]:
    lookup: ScoreLookup | None = current_context()
    found = lookup(resource) if lookup is not None and "metadata" in cluster else None
    if found is None:
        raise ValueError(f"failed to get score: {resource} not found or expired")
    return found


def _parse_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"failed to parse JSON: {error}") from None


_OMITTED_WHEN_EMPTY = (
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("metadata", "finalizers"),
    ("spec", "taints"),
    ("spec", "managedClusterClientConfigs"),
    ("status", "capacity"),
    ("status", "allocatable"),
    ("status", "clusterClaims"),
    ("status", "managedNamespaces"),
)


def _normalized(document: Document) -> Document:
    """The cluster as a typed client would send it: required fields are present, empty optional ones are absent."""
    parts = {name: dict(document.get(name) or {}) for name in ("metadata", "spec", "status")}
    for part, name in _OMITTED_WHEN_EMPTY:
        if not parts[part].get(name):
            parts[part].pop(name, None)
    parts["metadata"].setdefault("creationTimestamp", None)
    parts["spec"].setdefault("hubAcceptsClient", False)
    parts["status"]["conditions"] = parts["status"].get("conditions")
    parts["status"]["version"] = parts["status"].get("version") or {}
    for name in ("capacity", "allocatable"):
        if name in parts["status"]:
            parts["status"][name] = {key: _canonical(amount) for key, amount in parts["status"][name].items()}
    return {**document, **parts}


def _canonical(amount: Any) -> Any:
    try:
        return canonical(amount)
    except (BadQuantity, TypeError):
        return amount
