"""CEL expressions over managed clusters: the functions of placement, and what counts as a match."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.cel.cost import PER_EXPRESSION
from wharfinger.systems.placement.rules.cel import bind_cluster, cluster_expression, cost_per_cluster
from wharfinger.systems.placement.rules.fleet import Fleet
from wharfinger.systems.placement.rules.selectors import Selector

CLUSTER: dict[str, Any] = {
    "metadata": {"name": "c1", "labels": {"version": "1.14.3"}},
    "spec": {"hubAcceptsClient": True, "taints": []},
    "status": {
        "allocatable": {"memory": "1.5Gi", "cpu": 2},
        "version": {"kubernetes": "v1.30.2"},
        "clusterClaims": [{"name": "gpu", "value": '{"H100":[{"large":2}]}'}],
    },
}


def scores(resource: str) -> list[dict[str, Any]] | None:
    return [{"name": "cpu", "value": 3}, {"name": "mem", "value": 4}] if resource == "demo" else None


BOUND = bind_cluster(CLUSTER, scores)


@pytest.mark.parametrize(
    "expression",
    [
        'managedCluster.metadata.labels["version"].matches("^1[.](14|15)[.][0-9]+$")',
        "managedCluster.status.clusterClaims.exists(c, c.value.parseJSON().H100.exists(e, e.large == 2))",
        'managedCluster.scores("demo").filter(s, s.name == "cpu").all(e, e.value == 3)',
        'quantity(managedCluster.status.allocatable.memory).isGreaterThan(quantity("1Gi"))',
        'quantity(managedCluster.status.allocatable.cpu) == quantity("2000m")',
        'semver(managedCluster.status.version.kubernetes.substring(1)).isGreaterThan(semver("1.29.4"))',
        'managedCluster.?metadata.?nope.orValue("x") == "x" && optional.none().hasValue() == false',
        "managedCluster.spec.hubAcceptsClient && !has(managedCluster.spec.taints) && has(managedCluster.status.version)",
        'cel.bind(x, managedCluster.metadata.name, x + x == "c1c1")',
        "managedCluster.nope == 1 || true",
    ],
)
def test_expressions_that_match(expression: str) -> None:
    assert cluster_expression(expression).matches(BOUND)


@pytest.mark.parametrize(
    "expression",
    [
        "managedCluster.metadata.name",
        "managedCluster.metadata.labels.absent == 'x'",
        'managedCluster.scores("absent").all(s, true)',
        '"x".parseJSON() == null',
        "1 == 2",
    ],
)
def test_errors_and_anything_but_true_do_not_match(expression: str) -> None:
    assert not cluster_expression(expression).matches(BOUND)


def nested(depth: int) -> str:
    numbers = "[1,2,3,4,5,6,7,8,9,10]"
    body = "true"
    for level in range(depth):
        body = f"{numbers}.all(x{level}, {body})"
    return body


def test_the_cost_limit_stops_expensive_expressions_and_no_others() -> None:
    cheap, dear = cluster_expression(nested(3)), cluster_expression(nested(6))
    assert cheap.matches(BOUND)
    assert dear.cost(BOUND) > PER_EXPRESSION > cheap.cost(BOUND)
    assert not dear.matches(BOUND)


def test_cost_grows_with_the_document() -> None:
    claims = [{"name": f"n{i}", "value": "v"} for i in range(1000)]
    large = bind_cluster({**CLUSTER, "status": {**CLUSTER["status"], "clusterClaims": claims}}, scores)
    expression = cluster_expression(
        "managedCluster.status.clusterClaims.all(a, managedCluster.status.clusterClaims.all(b, a != b || true))"
    )
    assert expression.matches(BOUND)
    assert not expression.matches(large)


def test_expressions_that_read_scores_are_recognized() -> None:
    assert cluster_expression('[managedCluster].exists(c, {"k": c.scores("demo")}.k.size() == 2)').uses_scores
    assert not cluster_expression('managedCluster.metadata.name == "scores"').uses_scores


def test_clusters_share_the_budget_of_a_selector() -> None:
    assert cost_per_cluster(1) == 100 * cost_per_cluster(100)
    assert cost_per_cluster(10**6) == cost_per_cluster(10**7) > 0
    selector = Selector(expressions=(nested(3), nested(3)))
    cost = cluster_expression(nested(3)).cost(BOUND)
    assert selector.evaluates(BOUND, 2 * cost)
    assert not selector.evaluates(BOUND, 2 * cost - 1)


def test_an_expression_that_is_expensive_on_many_clusters_matches_none_of_them() -> None:
    """It would hold up the decisions for all other placements."""
    fleets = {count: Fleet() for count in (1, 500)}
    for count, fleet in fleets.items():
        for number in range(count):
            name = f"cluster{number}"
            fleet.put_cluster({**CLUSTER, "metadata": {**CLUSTER["metadata"], "name": name}})
    expensive = Selector(expressions=(nested(3),) * 10)
    assert fleets[1].matching(expensive, 0.0).sum() == 1
    assert fleets[500].matching(expensive, 0.0).sum() == 0
    assert fleets[500].matching(Selector(expressions=(nested(2),)), 0.0).sum() == 500


def test_scores_can_be_looked_at_on_any_number_of_clusters() -> None:
    cluster = bind_cluster({"metadata": {"name": "c"}, "spec": {}}, lambda resource: [{"name": "demo", "value": 90}])
    expression = cluster_expression("managedCluster.scores('demo').filter(s, s.name == 'demo').all(e, e.value > 80)")
    assert expression.cost(cluster) <= cost_per_cluster(1_000_000)
    assert expression.matches(cluster)
