"""CEL over clusters: the libraries that Kubernetes brings, ours, and what counts as a match."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.cel import InvalidExpression
from wharfinger.cel.cost import PER_EXPRESSION
from wharfinger.systems.placement.rules.cel import bind_cluster, cluster_expression

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


SUBJECT = bind_cluster(CLUSTER, scores)


@pytest.mark.parametrize(
    "expression",
    [
        'managedCluster.metadata.labels["version"].matches("^1[.](14|15)[.][0-9]+$")',
        "managedCluster.status.clusterClaims.exists(c, c.value.parseJSON().H100.exists(e, e.large == 2))",
        'managedCluster.scores("demo").filter(s, s.name == "cpu").all(e, e.value == 3)',
        'quantity(managedCluster.status.allocatable.memory).isGreaterThan(quantity("1Gi"))',
        'quantity(managedCluster.status.allocatable.cpu) == quantity("2000m")',
        'quantity("1Gi").add(quantity("1Gi")).compareTo(quantity("2Gi")) == 0 && quantity("5").sub(3).asInteger() == 2',
        'isQuantity("1Gi") && !isQuantity("1Gx") && quantity("-1").sign() == -1 && !quantity("50m").isInteger()',
        'quantity("50k").asApproximateFloat() == 50000.0',
        'semver(managedCluster.status.version.kubernetes.substring(1)).isGreaterThan(semver("1.29.4"))',
        'semver("v1.31", true).isLessThan(semver("1.31.1")) && semver("1.2.3-rc.1").isLessThan(semver("1.2.3"))',
        'isSemver("1.2.3") && !isSemver("v1.2.3") && isSemver("v1.2", true) && semver("1.2.3").minor() == 2',
        'semver("1.2.3-alpha.2").compareTo(semver("1.2.3-alpha.10")) == -1',
        'ip("10.0.0.1").family() == 4 && ip("::1").isLoopback() && isIP("1.2.3.4") && !isIP("1.2.3.04")',
        'ip.isCanonical("::1") && !ip.isCanonical("0::1") && ip("10.0.0.1").isGlobalUnicast()',
        'cidr("10.0.0.0/8").containsIP(ip("10.2.3.4")) && cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16")',
        'cidr("10.1.2.3/8").masked() == cidr("10.0.0.0/8") && cidr("10.0.0.0/8").prefixLength() == 8',
        'cidr("10.0.0.5/8").ip() == ip("10.0.0.5") && isCIDR("::/0") && !isCIDR("10.0.0.0")',
        'url("https://a.b:8443/p?x=1&x=2").getHost() == "a.b:8443" && url("https://a.b/p").getPort() == ""',
        'url("https://[::1]:80/p").getHostname() == "::1" && url("/p?x=1").getQuery()["x"] == ["1"] && !isURL("x")',
        "[1, 2, 3].isSorted() && [3, 1].min() == 1 && [3, 1].max() == 3 && [1, 2].sum() == 3",
        '["a", "b", "a"].lastIndexOf("a") == 2 && ["a"].indexOf("z") == -1 && "abc".indexOf("c") == 2',
        '"abc 123".find("[0-9]+") == "123" && "1a2b".findAll("[0-9]") == ["1", "2"] && "1a2".findAll("[0-9]", 1) == ["1"]',
        '!format.dns1123Label().validate("good").hasValue() && format.dns1123Label().validate("BAD").hasValue()',
        'format.dns1123Label().validate("BAD").value().size() == 1 && !format.uuid().validate("x").value().isSorted() == false',
        'managedCluster.?metadata.?nope.orValue("x") == "x" && optional.none().hasValue() == false',
        '"%s-%d".format(["a", 1]) == "a-1" && "A".lowerAscii() == "a" && "a,b".split(",").size() == 2',
        "managedCluster.spec.hubAcceptsClient && !has(managedCluster.spec.taints) && has(managedCluster.status.version)",
        'cel.bind(x, managedCluster.metadata.name, x + x == "c1c1")',
        "managedCluster.nope == 1 || true",
    ],
)
def test_true(expression: str) -> None:
    assert cluster_expression(expression).matches(SUBJECT)


@pytest.mark.parametrize(
    "expression",
    [
        "managedCluster.metadata.name",
        "managedCluster.metadata.labels.absent == 'x'",
        'managedCluster.scores("absent").all(s, true)',
        'quantity("nonsense") == quantity("1")',
        'semver("1").major() == 1',
        '"x".parseJSON() == null',
        '"aaaa".find("(a+)+$") == "aaaa"',
        '"aaaa".find("(?=a)") == ""',
        'ip("10.0.0.1").isGreaterThan(ip("10.0.0.0"))',
        '[1, "a"].max() == 1',
        "1 == 2",
    ],
)
def test_errors_and_anything_but_true_do_not_match(expression: str) -> None:
    assert not cluster_expression(expression).matches(SUBJECT)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("nosuch == 1", "undeclared reference to 'nosuch' (in container '')"),
        ("1 +", "Syntax error"),
        ("1 + 'a'", "found no matching overload for '_+_'"),
        ("quantity(1)", "found no matching overload for 'quantity'"),
    ],
)
def test_what_does_not_compile_is_refused_in_cels_words(expression: str, words: str) -> None:
    with pytest.raises(InvalidExpression, match="compilation failed: ERROR: <input>:1:") as refusal:
        cluster_expression(expression)
    assert words in str(refusal.value)


def nested(depth: int) -> str:
    numbers = "[1,2,3,4,5,6,7,8,9,10]"
    body = "true"
    for level in range(depth):
        body = f"{numbers}.all(x{level}, {body})"
    return body


def test_the_cost_limit_stops_expensive_expressions_and_no_others() -> None:
    cheap, dear = cluster_expression(nested(3)), cluster_expression(nested(6))
    assert cheap.matches(SUBJECT)
    assert dear.cost(SUBJECT) > PER_EXPRESSION > cheap.cost(SUBJECT)
    assert not dear.matches(SUBJECT)


def test_cost_grows_with_the_document() -> None:
    claims = [{"name": f"n{i}", "value": "v"} for i in range(1000)]
    large = bind_cluster({**CLUSTER, "status": {**CLUSTER["status"], "clusterClaims": claims}}, scores)
    expression = cluster_expression(
        "managedCluster.status.clusterClaims.all(a, managedCluster.status.clusterClaims.all(b, a != b || true))"
    )
    assert expression.matches(SUBJECT)
    assert not expression.matches(large)


def test_expressions_know_whether_they_read_scores() -> None:
    assert cluster_expression('[managedCluster].exists(c, {"k": c.scores("demo")}.k.size() == 2)').uses_scores
    assert not cluster_expression('managedCluster.metadata.name == "scores"').uses_scores
