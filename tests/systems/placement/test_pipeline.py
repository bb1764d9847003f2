"""Filters, weights, prioritizers and selection as a pure function: the rules that no object shows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.systems.placement.hub import START, add_on, additive, built_in, cluster, decision, exact, placement, score

from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.systems.placement.rules.groups import cut
from wharfinger.systems.placement.rules.pipeline import decide
from wharfinger.systems.placement.rules.plan import Misconfiguration

CLUSTERS = [cluster("c1"), cluster("c2"), cluster("c3")]


def outcome(
    made: Document, clusters: list[Document] = CLUSTERS, scores: list[Document] | None = None, decisions: Any = ()
) -> tuple[list[str], dict[str, dict[str, int]], dict[str, int], str]:
    """Who is selected, every prioritizer's scores, totals, and the fault if there is one."""
    fleet, _, result = decide(made, clusters, scores or [], decisions, START)
    names = fleet.names
    parts = {
        part.prioritizer.name: {
            names[row]: int(value)
            for row, value, scored in zip(result.rows, part.scores, part.scored, strict=True)
            if scored
        }
        for part in result.parts
    }
    fault = f"{result.plugin}:{result.message}" if result.misconfigured else ""
    totals = {names[row]: total for row, total in result.total_of().items()}
    return [names[row] for row in result.selected], parts, totals, fault


@pytest.mark.parametrize(
    ("weight", "values", "number", "selected"),
    [
        pytest.param(-1, [10, 20, 30], 1, ["c1"], id="a negative weight prefers the lowest score"),
        pytest.param(-1, [10, 20, None], 1, ["c3"], id="under a negative weight no score beats a positive one"),
        pytest.param(1, [-5, None, None], 2, ["c2", "c3"], id="no score beats a negative one"),
        pytest.param(1, [0, None, 0], 3, ["c1", "c2", "c3"], id="no score equals 0, and names break ties"),
    ],
)
def test_add_on_scores(weight: int, values: list[int | None], number: int, selected: list[str]) -> None:
    scores = [score(f"c{i}", a=value) for i, value in enumerate(values, 1) if value is not None]
    assert outcome(placement(number, prioritizerPolicy=exact(add_on(weight))), scores=scores)[0] == selected


def test_a_score_is_valid_up_to_and_including_its_instant() -> None:
    made = placement(1, prioritizerPolicy=exact(add_on()))
    assert outcome(made, scores=[score("c2", a=5, until=format_time(START))])[0] == ["c2"]
    assert outcome(made, scores=[score("c2", a=5, until=format_time(START - 1))])[0] == ["c1"]


def test_without_a_policy_names_decide() -> None:
    assert outcome(placement(2))[0] == ["c1", "c2"]
    assert outcome(placement(2, prioritizerPolicy=exact()))[2] == {"c1": 0, "c2": 0, "c3": 0}


@pytest.mark.parametrize(
    ("decisions", "balance"),
    [
        pytest.param([["c1", "c2"], ["c1", "c3"]], [-100, 0, 0], id="counts 2, 1, 1"),
        pytest.param([["c1", "c2", "x"], ["c2", "x"], ["x"]], [32, -32, 100], id="an outsider is the busiest"),
        pytest.param([], [100, 100, 100], id="no decisions anywhere"),
    ],
)
def test_balance(decisions: list[list[str]], balance: list[int]) -> None:
    others = [decision(names, f"other{i}") for i, names in enumerate(decisions)]
    own = [decision(["c1", "c2", "c3"], "p", "ns1")]
    parts = outcome(placement(prioritizerPolicy=exact(built_in("Balance"))), decisions=[*others, *own])[1]
    assert list(parts["Balance"].values()) == balance


def resources(cpu: str, memory: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory}
    return {"allocatable": amounts, "capacity": amounts}


def test_allocatable_resources_are_scored_between_the_least_and_the_most() -> None:
    three = [
        cluster("c1", **resources("10", "50")),
        cluster("c2", **resources("7", "90")),
        cluster("c3", **resources("9", "80")),
    ]
    policy = exact(built_in("ResourceAllocatableCPU"), built_in("ResourceAllocatableMemory"))
    selected, _, totals, _ = outcome(placement(2, prioritizerPolicy=policy), three)
    assert totals == {"c1": 0, "c2": 0, "c3": 83}
    assert sorted(selected) == ["c1", "c3"]
    four = [*three, cluster("c4", **resources("10", "100"))]
    selected, parts, totals, _ = outcome(placement(2, prioritizerPolicy=policy), four)
    assert parts["ResourceAllocatableMemory"]["c3"] == 19  # in doubles, cut off: not 20
    assert totals["c3"] == 52
    assert sorted(selected) == ["c3", "c4"]


def test_equal_allocatable_scores_full_marks_and_missing_capacity_nothing() -> None:
    policy = placement(prioritizerPolicy=exact(built_in("ResourceAllocatableCPU")))
    same = [cluster(name, **resources("0", "1")) for name in ("c1", "c2")]
    assert outcome(policy, same)[1]["ResourceAllocatableCPU"] == {"c1": 100, "c2": 100}
    without = [*same, cluster("c3", allocatable={"cpu": "5"})]
    assert outcome(policy, without)[1]["ResourceAllocatableCPU"] == {"c1": 100, "c2": 100}


def test_steady_outweighs_a_better_newcomer() -> None:
    policy = additive(built_in("Steady", 3), built_in("ResourceAllocatableCPU"), built_in("ResourceAllocatableMemory"))
    sizes = {"c1": ("10", "50"), "c2": ("7", "90"), "c3": ("9", "80"), "c4": ("10", "100")}
    clusters = [cluster(name, **resources(*size)) for name, size in sizes.items()]
    made = placement(2, prioritizerPolicy=policy)
    assert sorted(outcome(made, clusters, decisions=[decision(["c1", "c3"], "p", "ns1")])[0]) == ["c1", "c3"]


def test_weight_zero_turns_a_default_off() -> None:
    assert list(outcome(placement(prioritizerPolicy=additive(built_in("Steady", 0))))[1]) == ["Balance"]


def test_the_last_of_a_repeated_configuration_counts() -> None:
    policy = exact(add_on(5), add_on(2), built_in("Steady", 9), built_in("Steady", 1))
    assert outcome(placement(prioritizerPolicy=policy), scores=[score("c1", a=10)])[2] == {"c1": 20, "c2": 0, "c3": 0}


LABELLED = [cluster("c1", {"a": "1"}), cluster("c2", {"b": "1"}, claims={"k": "v"}), cluster("c3")]


def labels(**match: str) -> Document:
    return {"requiredClusterSelector": {"labelSelector": {"matchLabels": match}}}


def test_predicates_are_ored_and_their_parts_anded() -> None:
    assert sorted(outcome(placement(predicates=[labels(a="1"), labels(b="1")]), LABELLED)[0]) == ["c1", "c2"]
    both = labels(b="1")
    both["requiredClusterSelector"]["claimSelector"] = {
        "matchExpressions": [{"key": "k", "operator": "In", "values": ["w"]}]
    }
    assert outcome(placement(predicates=[both]), LABELLED)[0] == []
    assert outcome(placement(predicates=[{}]), LABELLED)[0] == ["c1", "c2", "c3"]


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"tolerations": [{"operator": "Equal"}]}, "TaintToleration:If the key is empty"),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            "TaintToleration:If the operator is Exists",
        ),
        ({"predicates": [{"requiredClusterSelector": {"celSelector": {"celExpressions": ["1 +"]}}}]}, "Predicate:comp"),
        ({"predicates": [labels(**{"bad key!": "x"})]}, "Predicate:key: Invalid value"),
        ({"prioritizerPolicy": {"mode": "Maximum"}}, ":incorrect prioritizer policy mode: Maximum"),
        ({"prioritizerPolicy": {"configurations": [{"weight": 1}]}}, ":scoreCoordinate field is required"),
        ({"prioritizerPolicy": exact(built_in("Spread"))}, ":incorrect builtin prioritizer: Spread"),
        (
            {"prioritizerPolicy": exact({"scoreCoordinate": {"type": "AddOn"}, "weight": 1})},
            ":addOn should not be empty",
        ),
    ],
)
def test_misconfiguration_is_named_with_its_plugin(spec: dict[str, Any], fault: str) -> None:
    selected, _, _, found = outcome(placement(**spec))
    assert found.startswith(fault)
    assert selected == []


def test_faults_go_unreported_when_no_candidate_is_left() -> None:
    made = placement(predicates=[labels(a="2")], tolerations=[{"operator": "Equal"}])
    assert outcome(made, LABELLED)[3] == ""


def test_taints_are_tolerated_for_a_time() -> None:
    ages = {"c1": 8, "c2": 9, "c3": 10}
    clusters = [
        cluster(name, taints=[{"key": "x", "effect": "NoSelect", "timeAdded": format_time(START - age)}])
        for name, age in ages.items()
    ]
    tolerations = [{"key": "x", "operator": "Exists", "tolerationSeconds": 10}]
    own = [decision(["c1", "c2", "c3"], "p", "ns1")]
    fleet, _, result = decide(placement(tolerations=tolerations), clusters, [], own, START)
    assert sorted(fleet.names[row] for row in result.selected) == ["c1", "c2"]
    assert result.next_change == START + 1


@pytest.mark.parametrize(
    ("taint", "toleration", "passes"),
    [
        ({"effect": "NoSelect"}, None, False),
        ({"effect": "PreferNoSelect"}, None, True),
        ({"effect": "NoSelectIfNew"}, None, False),
        ({"effect": "NoSelect", "value": "v"}, {"key": "k", "value": "v"}, True),
        ({"effect": "NoSelect", "value": "v"}, {"key": "k", "value": "w"}, False),
        ({"effect": "NoSelect", "value": "v"}, {"key": "k", "operator": "Exists"}, True),
        ({"effect": "NoSelect"}, {"operator": "Exists"}, True),
        ({"effect": "NoSelect"}, {"operator": "Exists", "effect": "NoSelectIfNew"}, False),
        ({"effect": "NoSelect"}, {"key": "k", "operator": "Exists", "tolerationSeconds": 9}, False),
        ({"effect": "NoSelect"}, {"key": "k", "operator": "Nonsense"}, False),
    ],
)
def test_tolerations(taint: Document, toleration: Document | None, passes: bool) -> None:
    made = placement(tolerations=[toleration] if toleration else [])
    assert bool(outcome(made, [cluster("c1", taints=[{"key": "k", **taint}])])[0]) is passes


def groups(made: Document, clusters: list[Document]) -> list[tuple[str, list[str]]]:
    fleet, plan, result = decide(made, clusters, now=START)
    found = cut(fleet, plan, result.selected_totals, result.selected, START)
    assert not isinstance(found, Misconfiguration)
    return [(group.name, [fleet.names[row] for row in group.rows]) for group in found]


def strategy(size: int | str, *named: Document) -> Document:
    return {"groupStrategy": {"clustersPerDecisionGroup": size, "decisionGroups": list(named)}}


CANARY = {"groupName": "canary", "groupClusterSelector": {"labelSelector": {"matchLabels": {"canary": "yes"}}}}


@pytest.mark.parametrize(
    ("size", "total", "sizes"),
    [
        ("25%", 3, [1, 1, 1]),
        ("30%", 5, [2, 2, 1]),
        ("7%", 100, [7] * 14 + [2]),
        ("100%", 4, [4]),
        ("3", 7, [3, 3, 1]),
        (2, 5, [2, 2, 1]),
        (99, 5, [5]),
    ],
)
def test_group_sizes(size: int | str, total: int, sizes: list[int]) -> None:
    clusters = [cluster(f"c{i:03d}") for i in range(total)]
    assert [len(names) for _, names in groups(placement(decisionStrategy=strategy(size)), clusters)] == sizes


def test_named_groups_come_first_and_empty_ones_take_no_place() -> None:
    clusters = [cluster(f"c{i}", {"canary": "yes"} if i in (2, 4) else {}) for i in range(1, 6)]
    nobody = {"groupName": "nobody", "groupClusterSelector": {"labelSelector": {"matchLabels": {"x": "y"}}}}
    found = groups(placement(decisionStrategy=strategy(2, nobody, CANARY)), clusters)
    assert found == [("canary", ["c2", "c4"]), ("", ["c1", "c3"]), ("", ["c5"])]


def test_sort_by_score_orders_before_groups_are_cut() -> None:
    made = placement(prioritizerPolicy=exact(add_on()), sortBy="Score", decisionStrategy=strategy(2))
    fleet, plan, result = decide(made, CLUSTERS, [score("c3", a=9), score("c2", a=5)], now=START)
    found = cut(fleet, plan, result.selected_totals, result.selected, START)
    assert not isinstance(found, Misconfiguration)
    assert [[fleet.names[row] for row in group.rows] for group in found] == [["c3", "c2"], ["c1"]]


def spread(*terms: tuple[str, int, str]) -> Document:
    return {
        "spreadConstraints": [
            {"topologyKey": key, "topologyKeyType": "Label", "maxSkew": skew, "whenUnsatisfiable": unsatisfiable}
            for key, skew, unsatisfiable in terms
        ]
    }


REGIONS = [cluster(f"a{i}", {"region": "a"}) for i in range(4)] + [cluster("b0", {"region": "b"}), cluster("z0")]


@pytest.mark.parametrize(
    ("number", "terms", "selected", "missing"),
    [
        (2, [("region", 1, "DoNotSchedule")], ["a0", "b0"], 0),
        (4, [("region", 1, "DoNotSchedule")], ["a0", "b0", "a1"], 1),
        (4, [("region", 2, "DoNotSchedule")], ["a0", "a1", "b0", "a2"], 0),
        (None, [("region", 1, "DoNotSchedule")], ["a0", "b0", "a1"], 3),
        (3, [("region", 1, "ScheduleAnyway")], ["a0", "b0", "z0"], 0),
        (None, [("region", 1, "ScheduleAnyway")], ["a0", "b0", "z0", "a1", "a2", "a3"], 0),
    ],
)
def test_spread(number: int | None, terms: list[tuple[str, int, str]], selected: list[str], missing: int) -> None:
    made = placement(number, prioritizerPolicy=exact(), spreadPolicy=spread(*terms))
    fleet, _, result = decide(made, REGIONS, now=START)
    assert [fleet.names[row] for row in result.selected] == selected
    assert result.missing == missing


def test_the_design_documents_words_mean_the_same() -> None:
    old = {
        "apiVersion": "cluster.open-cluster-management.io/v1alpha1",
        "kind": "Placement",
        "metadata": {"name": "p", "namespace": "ns1"},
        "spec": {
            "numberOfClusters": 3,
            "prioritizerPolicy": {
                "mode": "Exact",
                "configurations": [
                    {"scoreCoordinate": {"type": "BuildIn", "buildIn": "Steady"}, "weight": 3},
                    {"name": "Balance"},
                    add_on(1),
                ],
            },
        },
    }
    assert list(outcome(old)[1]) == ["Steady", "Balance", "AddOn/demo/a"]
