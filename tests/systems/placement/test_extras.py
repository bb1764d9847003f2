"""What we add by annotation: replica division, fair ties, minimum gain, time windows, penalties, reasons, explanations."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.systems.placement.hub import START, Hub, add_on, binding, cluster, decision, exact, placement, score

from wharfinger.api.times import parse_time
from wharfinger.systems.placement.kinds.names import MANAGED_CLUSTERS, PLACEMENT_DECISIONS, PLACEMENTS
from wharfinger.systems.placement.rules.explain import debug_document, explain
from wharfinger.systems.placement.rules.extras import Replicas, Window
from wharfinger.systems.placement.rules.pipeline import decide
from wharfinger.systems.placement.rules.replicas import divide
from wharfinger.systems.placement.rules.windows import next_change, open_at

PREFIX = "wharfinger.dev/"


def annotated(**values: Any) -> dict[str, str]:
    return {
        PREFIX + key.replace("_", "-"): value if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
    }


@pytest.mark.parametrize(
    ("setting", "weights", "shares"),
    [
        (Replicas(total=10), [1, 1, 1], [4, 3, 3]),
        (Replicas(total=10), [2, 1, 1], [5, 3, 2]),
        (Replicas(total=0), [1, 1], [0, 0]),
        (Replicas(total=10, max_per_cluster=4), [8, 1, 1], [4, 3, 3]),
        (Replicas(total=10, max_per_cluster=3), [1, 1, 1], [3, 3, 3]),
        (Replicas(total=10, min_per_cluster=2), [1, 0, 0], [6, 2, 2]),
        (Replicas(total=10), [0, 0], [0, 0]),
        (Replicas(total=10, strategy="Aggregated"), [1, 1, 1], [10, 0, 0]),
        (Replicas(total=10, strategy="Aggregated", max_per_cluster=6), [1, 1, 1], [6, 4, 0]),
    ],
)
def test_replica_division(setting: Replicas, weights: list[int], shares: list[int]) -> None:
    from fractions import Fraction

    found = divide(setting, [(f"c{i}", Fraction(weight)) for i, weight in enumerate(weights)])
    assert list(found.values()) == shares


def test_replicas_follow_the_decision(hub: Hub) -> None:
    hub.apply(placement(2, annotations=annotated(replicas={"total": 5})))

    def shares() -> Any:
        page = hub.get(PLACEMENT_DECISIONS, "p-decision-1", "ns1")
        text = page["metadata"].get("annotations", {}).get(PREFIX + "replicas")
        return text and json.loads(text)

    assert shares() == {"c1": 3, "c2": 2}
    hub.taint("c1", {"key": "x", "effect": "NoSelect"})
    assert shares() == {"c2": 3, "c3": 2}
    hub.apply(placement(2))
    assert shares() is None


def names(made: Any, clusters: Any, scores: Any = (), decisions: Any = (), now: float = START) -> list[str]:
    fleet, _, result = decide(made, clusters, scores, decisions, now)
    return [fleet.names[row] for row in result.selected]


THREE = [cluster(name) for name in ("c1", "c2", "c3")]


def shares_of(hub: Hub) -> Any:
    page = hub.get(PLACEMENT_DECISIONS, "p-decision-1", "ns1")
    return json.loads(page["metadata"]["annotations"][PREFIX + "replicas"])


@pytest.mark.parametrize(
    ("weight_by", "resource", "amounts"),
    [("AllocatableCPU", "cpu", ("3", "1", "6")), ("AllocatableMemory", "memory", ("3Gi", "1Gi", "6Gi"))],
)
def test_replicas_follow_the_resources_that_weigh_them(
    weight_by: str, resource: str, amounts: tuple[str, str, str]
) -> None:
    def sized(name: str, amount: str) -> Any:
        return cluster(name, allocatable={resource: amount}, capacity={resource: amount})

    with Hub() as hub:
        hub.apply(binding(), sized("c1", amounts[0]), sized("c2", amounts[1]))
        hub.apply(
            placement(prioritizerPolicy=exact(), annotations=annotated(replicas={"total": 8, "weightBy": weight_by}))
        )
        assert shares_of(hub) == {"c1": 6, "c2": 2}
        status = {"allocatable": {resource: amounts[2]}, "capacity": {resource: amounts[2]}}
        hub.patch(MANAGED_CLUSTERS, "c2", {"status": status}, subresource="status")
        assert shares_of(hub) == {"c1": 3, "c2": 5}


@pytest.mark.parametrize(
    ("setting", "number", "reason", "words"),
    [
        ({"total": 6}, 3, "AllReplicasPlaced", "6 replicas"),
        ({"total": 0}, 0, "AllReplicasPlaced", "0 replicas"),
        ({"total": 12, "maxPerCluster": 2}, 3, "ClustersFull", "6 of 12 replicas fit on no cluster"),
        ({"total": 12, "maxPerCluster": 2, "strategy": "Aggregated"}, 3, "ClustersFull", "6 of 12 replicas"),
        ({"total": 12}, 0, "NoClusterSelected", "12 of 12 replicas"),
        ({"total": 12, "weights": {"elsewhere": 1}}, 3, "NoWeight", "12 of 12 replicas"),
        ({"total": 12, "weightBy": "AllocatableCPU"}, 3, "NoWeight", "12 of 12 replicas"),
        ({"total": 12, "weights": {"c1": 1}, "maxPerCluster": 5}, 3, "NoWeight", "7 of 12 replicas"),
        ({"total": 5, "minPerCluster": 2}, 3, "BelowMinimum", "c3 has 1"),
    ],
)
def test_replicas_that_fit_nowhere_are_a_condition(
    hub: Hub, setting: dict[str, Any], number: int, reason: str, words: str
) -> None:
    hub.apply(placement(number, annotations=annotated(replicas=setting)))
    status, found, message = hub.condition("wharfinger.dev/ReplicasPlaced")
    assert (status, found) == ("True" if reason == "AllReplicasPlaced" else "False", reason)
    assert words in message
    hub.patch(PLACEMENTS, "p", {"metadata": {"annotations": {PREFIX + "replicas": None}}}, "ns1")
    with pytest.raises(AssertionError, match="no condition"):
        hub.condition("wharfinger.dev/ReplicasPlaced")


def test_the_expiry_of_a_score_that_only_a_time_window_reads_is_noticed(hub: Hub) -> None:
    busy = "managedCluster.scores('load').exists(s, s.name == 'busy' && s.value > 50)"
    windows = {
        "windows": [{"start": "20:00", "end": "21:00"}],
        "clusterSelector": {"celSelector": {"celExpressions": [busy]}},
    }
    hub.score("c1", "load", until="2026-01-01T00:01:00Z", busy=90)
    hub.apply(placement(annotations=annotated(time_windows=windows)))
    assert hub.selected() == ["c2", "c3"]
    hub.advance(59)
    assert hub.selected() == ["c2", "c3"]
    hub.advance(2)
    assert hub.selected() == ["c1", "c2", "c3"]


def test_the_end_of_a_preference_that_was_tolerated_is_noticed(hub: Hub) -> None:
    hub.apply(
        placement(
            1,
            prioritizerPolicy=exact(),
            tolerations=[{"key": "old", "operator": "Exists", "tolerationSeconds": 30}],
            annotations=annotated(prefer_no_select_weight=1),
        )
    )
    hub.taint("c1", {"key": "old", "effect": "PreferNoSelect"})
    assert hub.selected() == ["c1"]
    hub.advance(29)
    assert hub.selected() == ["c1"]
    hub.advance(2)
    assert hub.selected() == ["c2"]


def test_fair_ties_are_spread_over_clusters_and_never_change() -> None:
    clusters = [cluster(f"c{i}") for i in range(10)]
    firsts = []
    for number in range(200):
        made = placement(1, name=f"p{number}", prioritizerPolicy=exact(), annotations=annotated(tie_break="Fair"))
        firsts += names(made, clusters)
        assert names(made, clusters) == firsts[-1:]
    assert len(set(firsts)) == 10
    assert max(firsts.count(name) for name in set(firsts)) < 45


@pytest.mark.parametrize(("lead", "selected"), [(9, "c1"), (10, "c2"), (11, "c2")])
def test_a_minimum_gain_keeps_decisions_from_flapping(lead: int, selected: str) -> None:
    made = placement(1, prioritizerPolicy=exact(add_on()), annotations=annotated(minimum_gain=10))
    scores = [score("c1", a=0), score("c2", a=lead)]
    assert names(made, THREE, scores, [decision(["c1"], "p", "ns1")]) == [selected]
    assert names(made, THREE, scores) == ["c2"]  # a first decision has nothing to keep


def test_scores_that_wobble_move_nothing(hub: Hub) -> None:
    hub.apply(
        score("c1", a=50),
        score("c2", a=49),
        placement(1, prioritizerPolicy=exact(add_on()), annotations=annotated(minimum_gain=5)),
    )
    for value in (52, 48, 53, 47):
        hub.score("c2", a=value)
        assert hub.selected() == ["c1"]
    hub.score("c2", a=55)
    assert hub.selected() == ["c2"]


NIGHT = Window(start="22:00", end="06:00", time_zone="Europe/Berlin")
WEEKEND = Window(start="00:00", end="00:00", days=("Sat", "Sun"))


@pytest.mark.parametrize(
    ("window", "moment", "is_open", "change"),
    [
        (NIGHT, "2026-01-05T20:59:59Z", False, "2026-01-05T21:00:00Z"),
        (NIGHT, "2026-01-05T21:00:00Z", True, "2026-01-06T05:00:00Z"),
        (NIGHT, "2026-07-05T20:00:00Z", True, "2026-07-06T04:00:00Z"),  # summer time
        (WEEKEND, "2026-01-03T12:00:00Z", True, "2026-01-04T00:00:00Z"),
        (WEEKEND, "2026-01-05T12:00:00Z", False, "2026-01-10T00:00:00Z"),
    ],
)
def test_time_windows(window: Window, moment: str, is_open: bool, change: str) -> None:
    now = parse_time(moment)
    assert open_at([window], now) is is_open
    assert next_change([window], now) == parse_time(change)


@pytest.mark.parametrize(("outside", "later"), [("Remove", ["c2", "c3"]), ("Keep", ["c1", "c2", "c3"])])
def test_outside_its_window_a_cluster_is_not_selected(outside: str, later: list[str]) -> None:
    windows = {
        "windows": [{"start": "00:00", "end": "08:00"}],
        "clusterSelector": {"labelSelector": {"matchLabels": {"night": "yes"}}},
        "outside": outside,
    }
    with Hub() as hub:
        hub.apply(binding(), cluster("c1", {"night": "yes"}), cluster("c2"), cluster("c3"))
        hub.apply(placement(annotations=annotated(time_windows=windows)))
        assert hub.selected() == ["c1", "c2", "c3"]
        hub.advance(8 * 3600)
        assert hub.selected() == later
        hub.apply(cluster("c4", {"night": "yes"}))
        assert hub.selected() == later
        hub.advance(16 * 3600)
        assert hub.selected() == ["c1", "c2", "c3", "c4"]


def test_prefer_no_select_can_be_made_to_count() -> None:
    clusters = [cluster("c1", taints=[{"key": "old", "effect": "PreferNoSelect"}]), cluster("c2")]
    assert names(placement(1, prioritizerPolicy=exact()), clusters) == ["c1"]
    counting = placement(1, prioritizerPolicy=exact(), annotations=annotated(prefer_no_select_weight=1))
    assert names(counting, clusters) == ["c2"]
    tolerant = placement(
        1,
        prioritizerPolicy=exact(),
        tolerations=[{"key": "old", "operator": "Exists"}],
        annotations=annotated(prefer_no_select_weight=1),
    )
    assert names(tolerant, clusters) == ["c1"]


def test_the_summary_of_unselected_clusters_is_bounded() -> None:
    with Hub() as hub:
        hub.apply(binding(), *(cluster(f"c{i:02d}", {"region": "a" if i < 5 else "b"}) for i in range(30)))
        predicate = {"requiredClusterSelector": {"labelSelector": {"matchLabels": {"region": "a"}}}}
        hub.apply(placement(2, predicates=[predicate], annotations=annotated(unselected_reasons=2)))
        status, reason, message = hub.condition("wharfinger.dev/UnselectedClusters")
        assert (status, reason) == ("True", "NotSelected")
        assert message.startswith("28 not selected, 25 by Predicate, 3 by Score: c02 (")
        assert message.endswith("and 26 more")
        hub.apply(placement(2, predicates=[predicate]))
        with pytest.raises(AssertionError):
            hub.condition("wharfinger.dev/UnselectedClusters")


CLUSTERS = [
    cluster("best", {"region": "a"}),
    cluster("good", {"region": "a"}),
    cluster("tainted", {"region": "a"}, taints=[{"key": "k", "value": "v", "effect": "NoSelect"}]),
    cluster("away", {"region": "b"}),
]
REGION_A = {"requiredClusterSelector": {"labelSelector": {"matchLabels": {"region": "a"}}}}


def test_explanations_name_every_clusters_reason_and_every_prioritizers_part() -> None:
    with Hub() as hub:
        hub.apply(binding(), *CLUSTERS, score("best", a=7), score("good", a=3))
        hub.apply(placement(1, predicates=[REGION_A], prioritizerPolicy=exact(add_on(2))))
        version = hub.store.version
        story = hub.scheduling.explain(("ns1", "p"))
        assert hub.store.version == version
    assert story is not None
    clusters = {told.name: told for told in story.clusters}
    assert story.selected == ("best",)
    assert (clusters["best"].total, clusters["best"].rank, clusters["best"].parts[0].contribution) == (14, 1, 14)
    assert (clusters["good"].plugin, clusters["good"].reason) == ("Score", "6, the last one selected has 14")
    assert (clusters["tainted"].plugin, clusters["tainted"].reason) == (
        "TaintToleration",
        "k=v:NoSelect (not tolerated)",
    )
    assert clusters["away"].plugin == "Predicate"
    assert "region must be in (a), but it is 'b'" in clusters["away"].reason
    assert story.document()["clusters"]["good"]["scores"] == {"AddOn/demo/a": {"weight": 2, "score": 3}}


def test_explaining_without_a_binding_says_so(hub: Hub) -> None:
    hub.apply(placement(namespace="unbound"))
    story = hub.scheduling.explain(("unbound", "p"))
    assert story is not None
    assert {told.reason for told in story.clusters} == {"is in no eligible cluster set"}
    assert hub.scheduling.explain(("unbound", "other")) is None


def test_the_debug_document_is_upstreams() -> None:
    made = placement(predicates=[REGION_A])
    fleet, plan, result = decide(made, CLUSTERS, now=START)
    told = debug_document(fleet, made, result)
    assert [stage["name"] for stage in told["filteredPipelineResults"]] == ["Predicate", "Predicate,TaintToleration"]
    assert [part["name"] for part in told["prioritizeResults"]] == ["Balance", "Steady"]
    assert [entry["clusterName"] for entry in told["aggregatedScores"]] == ["best", "good"]
    assert explain(fleet, plan, fleet.present, result, START).status == "Success"
