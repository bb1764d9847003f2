"""`wharf plan` for people: by workload, the bad news first; selectors, Markdown and --fail-on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from wharfinger.cli.main import wharf
from wharfinger.cli.output import table

Document = dict[str, Any]
Plan = Callable[..., Result]


def node(name: str, cpu: str = "4", **labels: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "20"}},
    }


def workload(name: str, replicas: int, cpu: str, kind: str = "Deployment", **pod: Any) -> Document:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    spec: Document = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers, **pod}},
    }
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def budget(name: str, least: int) -> Document:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": name}}},
    }


def units(**priorities: int) -> Document:
    return {
        "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
        "kind": "ResourcePolicy",
        "metadata": {"name": "units", "namespace": "shop"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "web"}},
            "units": [
                {"name": name, "priority": priority, "maxCount": 2, "nodeSelector": {"matchLabels": {"pool": name}}}
                for name, priority in priorities.items()
            ],
        },
    }


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """`wharf plan` of a change (documents, or options) of a cluster."""

    def run(cluster: list[Document], *change: Document | str) -> Result:
        (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": cluster}))
        documents = [each for each in change if isinstance(each, dict)]
        options = [each for each in change if isinstance(each, str)]
        if documents:
            (tmp_path / "change.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
            options += ["-f", str(tmp_path / "change.json")]
        return CliRunner().invoke(wharf, ["plan", "--cluster", str(tmp_path / "cluster.json"), *options])

    return run


OLD = [node("n1", pool="old"), node("n2", pool="old"), node("n3", cpu="8", pool="new")]
BOUND = {"nodeSelector": {"pool": "old"}}


def words(result: Result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines()]


def test_pods_that_are_replaced_have_moved_and_the_headline_says_so(plan: Plan) -> None:
    result = plan([*OLD, workload("web", 4, "1")], "--delete", "node/pool=old")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Plan: ") and lines[0].endswith(" pods move.")
    assert "~  Deployment shop/web  4/4" in result.stdout
    assert " to n3 (" in result.stdout and "Bad news" not in result.stdout


def test_a_drain_that_a_budget_blocks_comes_first_with_the_budget(plan: Plan) -> None:
    cluster = [*OLD, workload("web", 4, "1"), workload("db", 2, "1", "StatefulSet", **BOUND), budget("db", 2)]
    result = plan(cluster, "--drain", "pool=old")
    assert result.stdout.startswith("Bad news: 2 drains blocked, 1 workload whose pods could not be created anew.\n")
    rows = words(result)
    assert ["Blocked"] in rows and "Refused" not in result.stdout
    blocked = [row for row in rows if "PodDisruptionBudget" in row]
    assert [row[:4] for row in blocked] == [["!", name, "PodDisruptionBudget", "shop/db"] for name in ("n1", "n2")]
    document = json.loads(plan(cluster, "--drain", "pool=old", "-o", "json").stdout)
    assert {(each["node"], *each["budgets"]) for each in document["blocked"]} == {("n1", "shop/db"), ("n2", "shop/db")}
    assert document["summary"]["blocked"] == 2


def test_all_nodes_of_a_drain_are_cordoned_before_the_first_pod_leaves(plan: Plan) -> None:
    result = plan([*OLD, workload("web", 2, "1")], "--drain", "n1", "--drain", "n2", "-o", "json")
    changes = json.loads(result.stdout)["changes"]
    assert {each["after"]["node"] for each in changes if each["after"] and each["kind"] == "Pod"} <= {"n3"}


def test_pods_that_find_no_other_node_are_pending_not_ended(plan: Plan) -> None:
    result = plan([*OLD, workload("web", 2, "1", **BOUND)], "--drain", "pool=old")
    assert result.stdout.startswith("Bad news: 2 pods left pending.")
    assert "2/2 → 0/2  2 pods wait: 0/3 nodes are available: " in result.stdout
    assert "preemption:" not in result.stdout and "end" not in result.stdout.split()
    (found,) = json.loads(
        plan([*OLD, workload("web", 2, "1", **BOUND)], "--drain", "n1", "--drain", "n2", "-o", "json").stdout
    )["workloads"]
    assert (found["ready"], found["pods"]["pending"], found["pods"]["ended"]) == ({"before": 2, "after": 0}, 2, 0)


def test_workloads_and_single_pods_come_and_go(plan: Plan) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": "shop"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"},
    }
    result = plan([*OLD, workload("web", 2, "1")], pod, "--delete", "deployment/shop/web")
    assert ["-", "Deployment", "shop/web", "2/2", "→", "0", "2", "pods", "end"] in words(result)
    assert ["+", "Pod", "shop/one", "0", "→", "1", "starts", "on", "n1"] in words(result)


def test_scale_in_order_and_costs(plan: Plan) -> None:
    cluster = [node("n1", pool="a"), node("n2", pool="b"), units(a=2, b=1), workload("web", 4, "1")]
    result = plan(cluster, units(a=1, b=2))
    assert "Scale-in order" in result.stdout
    assert "first to go: " in result.stdout and "costs " in result.stdout
    assert result.stdout.startswith("Plan: 4 pods with another deletion cost")
    (order,) = json.loads(plan(cluster, units(a=1, b=2), "-o", "json").stdout)["scaleIn"]
    assert sorted(order["before"]) == sorted(order["after"]) and order["before"] != order["after"]


def test_pods_that_would_find_no_node_anew_are_told_although_nothing_moves(plan: Plan) -> None:
    relabelled = node("n1", pool="other")
    result = plan([node("n1", pool="old"), workload("web", 1, "1", **BOUND)], relabelled)
    assert result.stdout.startswith("Bad news: 1 workload whose pods could not be created anew.")
    assert (
        "find no node: 0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector." in result.stdout
    )
    assert (
        plan([node("n1", pool="old"), workload("web", 1, "1", **BOUND)], relabelled, "--fail-on", "pending").exit_code
        == 1
    )


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["--drain", "n1", "--fail-on", "blocked"], 1),
        (["--drain", "n1", "--fail-on", "preempted"], 2),
        (["--drain", "n3", "--fail-on", "pending,refused,preempted,blocked"], 0),
        (["--delete", "node/n1", "--fail-on", "preempted,pending"], 1),
    ],
)
def test_consequences_that_fail(plan: Plan, options: list[str], status: int) -> None:
    cluster = [node("n1"), node("n3"), workload("db", 1, "1", nodeName="n1"), budget("db", 1)]
    if options[0] == "--delete":
        cluster = [node("n1", pool="old"), workload("web", 1, "1", **BOUND)]
    result = plan(cluster, *options)
    assert (result.exit_code, "Error: --fail-on: " in result.output) == (status, status == 1), result.output


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--drain", "pool=none", "nothing matches pool=none"),
        ("--drain", "n9", 'nodes "n9" not found'),
        ("--drain", "pool in (", "pool in ("),
        ("--delete", "pod/shop/app=none", "nothing matches pod/shop/app=none"),
        ("--delete", "pod/*/web", "want KIND/[NAMESPACE/]NAME"),
        ("--fail-on", "sorrow", "'sorrow' is none of pending, refused, preempted, blocked"),
    ],
)
def test_what_does_not_exist_is_an_error(plan: Plan, option: str, value: str, told: str) -> None:
    result = plan(OLD, option, value, *(["--drain", "n1"] if option == "--fail-on" else []))
    assert (result.exit_code, told in result.output) == (1, True), result.output


@pytest.mark.parametrize(
    ("selector", "gone"),
    [
        ("pod/shop/app=web", 2),
        ("pod/*/app in (web,db)", 3),
        ("pod/shop/app!=web", 1),
        ("pod/example.com/team=a", 0),  # in namespace default
    ],
)
def test_deletions_take_selectors(plan: Plan, selector: str, gone: int) -> None:
    cluster = [*OLD, workload("web", 2, "1"), workload("db", 1, "1")]
    result = plan(cluster, "--delete", selector, "-o", "json")
    if gone:
        assert sum(each["change"] == "gone" for each in json.loads(result.stdout)["changes"]) == gone
    else:
        assert "nothing matches" in result.output


def test_markdown_for_pull_requests(plan: Plan) -> None:
    cluster = [*OLD, workload("db", 2, "1", "StatefulSet", **BOUND), budget("db", 2)]
    lines = plan(cluster, "--drain", "n1", "-o", "markdown").stdout.splitlines()
    assert lines[0] == "### wharf plan"
    assert lines[2].startswith("❌ **1 drain blocked")
    assert "| | drain of | budget | pods that stay |" in lines
    assert plan(cluster, "-f", "-", "-o", "markdown").exit_code == 1
    nothing = plan(cluster, OLD[0], "-o", "markdown")
    assert nothing.stdout.startswith("### wharf plan\n\n✅ No changes: ")


def test_tables_fit_into_the_terminal() -> None:
    rows = [("a", "one two three four five six seven eight"), ("b", "short")]
    lines = table(("name", "why"), rows, width=34).splitlines()
    assert max(map(len, lines)) <= 34
    assert lines[2] == "       seven eight"
    assert len(table(("name", "why"), rows).splitlines()) == 3
