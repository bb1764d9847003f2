"""Pages, conditions, events and rescheduling on a running hub."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.systems.placement.hub import Hub, P, add_on, binding, cluster, cluster_set, exact, placement, score

from wharfinger.client.interface import EventType
from wharfinger.http.metrics import exposition
from wharfinger.systems.placement.kinds.names import (
    MANAGED_CLUSTER_SET_BINDINGS,
    MANAGED_CLUSTER_SETS,
    MANAGED_CLUSTERS,
    PLACEMENT_DECISIONS,
    PLACEMENTS,
)
from wharfinger.systems.placement.kinds.views import DISABLE_ANNOTATION, PlacementDecision
from wharfinger.systems.placement.rules.groups import SelectedGroup
from wharfinger.systems.placement.rules.pages import Page, lay_out, steps

BAD_CEL = {"requiredClusterSelector": {"celSelector": {"celExpressions": ["1 +"]}}}


def test_a_hundred_and_one_clusters_make_two_pages_of_one_group() -> None:
    with Hub() as hub:
        hub.apply(binding(), *(cluster(f"c{i:03d}") for i in range(101)), placement())
        assert {name: len(names) for name, names in hub.pages().items()} == {"p-decision-1": 100, "p-decision-2": 1}
        groups = hub.placement()["status"]["decisionGroups"]
        assert [(group["decisions"], group["clusterCount"]) for group in groups] == [
            (["p-decision-1", "p-decision-2"], 101)
        ]


def test_pages_belong_to_their_placement(hub: Hub) -> None:
    hub.apply(placement())
    page = hub.get(PLACEMENT_DECISIONS, "p-decision-1", "ns1")
    labels = page["metadata"]["labels"]
    assert (labels[P + "placement"], labels[P + "decision-group-index"], labels[P + "decision-group-name"]) == (
        "p",
        "0",
        "",
    )
    (owner,) = page["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Placement", "p", True)
    assert [item["score"] for item in page["status"]["decisions"]] == [100, 100, 100]


def test_groups_are_told_by_labels_and_status() -> None:
    with Hub() as hub:
        hub.apply(binding(), *(cluster(f"c{i}", {"canary": "yes"} if i < 3 else {}) for i in range(1, 6)))
        selector = {"labelSelector": {"matchLabels": {"canary": "yes"}}}
        group = {"groupName": "canary", "groupClusterSelector": selector}
        strategy = {"groupStrategy": {"clustersPerDecisionGroup": 2, "decisionGroups": [group]}}
        hub.apply(placement(decisionStrategy=strategy))
        told = [
            (group["decisionGroupIndex"], group["decisionGroupName"], group["clusterCount"])
            for group in hub.placement()["status"]["decisionGroups"]
        ]
        assert told == [(0, "canary", 2), (1, "", 2), (2, "", 1)]
        assert hub.pages() == {"p-decision-1": ["c1", "c2"], "p-decision-2": ["c3", "c4"], "p-decision-3": ["c5"]}


def test_conditions_say_what_is_missing() -> None:
    with Hub() as hub:
        hub.apply(cluster_set("mine"), placement(clusterSets=["mine"]))
        assert hub.condition()[:2] == ("False", "NoManagedClusterSetBindings")
        assert hub.pages() == {"p-decision-1": []}
        hub.apply(binding())
        assert hub.condition()[:2] == ("False", "NoIntersection")
        hub.apply(binding(name="mine"))
        assert hub.condition()[:2] == ("False", "AllManagedClusterSetsEmpty")
        hub.apply(cluster("c1", {P + "clusterset": "mine"}))
        assert hub.condition()[:2] == ("True", "AllDecisionsScheduled")
        assert hub.selected() == ["c1"]
        hub.apply(cluster("c1", {P + "clusterset": "other"}))
        assert hub.condition()[:2] == ("False", "AllManagedClusterSetsEmpty")
        assert hub.selected() == []


def test_a_shortfall_ends_when_clusters_join() -> None:
    with Hub() as hub:
        hub.apply(binding(), *(cluster(f"c{i}") for i in range(5)), placement(10))
        assert hub.condition() == ("False", "NotAllDecisionsScheduled", "5 cluster decisions unscheduled")
        hub.apply(*(cluster(f"d{i}") for i in range(5)))
        assert hub.condition()[:2] == ("True", "AllDecisionsScheduled")
        assert hub.placement()["status"]["numberOfSelectedClusters"] == 10


def test_none_asked_for_is_satisfied_with_none(hub: Hub) -> None:
    hub.apply(placement(0))
    assert hub.condition()[0] == "True"
    assert hub.pages() == {"p-decision-1": []}


FAULTS = pytest.mark.parametrize(
    "fault",
    [
        {"predicates": [BAD_CEL]},
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        {"prioritizerPolicy": {"mode": "Maximum"}},
    ],
    ids=["CEL", "tolerations", "mode"],
)


@FAULTS
def test_misconfiguration_keeps_the_last_decisions(hub: Hub, fault: dict[str, Any]) -> None:
    hub.apply(placement(2))
    before, satisfied = hub.pages(), hub.condition()
    hub.apply(placement(2, **fault))
    assert hub.condition("PlacementMisconfigured")[:2] == ("True", "Misconfigured")
    assert hub.pages() == before
    assert hub.condition() == satisfied
    hub.delete(MANAGED_CLUSTERS, "c1")  # who is gone leaves all the same
    assert hub.selected() == ["c2"]
    hub.apply(placement(2))
    assert hub.condition("PlacementMisconfigured")[:2] == ("False", "Succeedconfigured")
    assert hub.selected() == ["c2", "c3"]


@FAULTS
def test_explaining_a_misconfigured_placement_tells_what_the_hub_keeps(hub: Hub, fault: dict[str, Any]) -> None:
    hub.apply(placement(2))
    hub.apply(placement(2, **fault))
    story = hub.scheduling.explain(("ns1", "p"))
    assert story is not None
    assert list(story.selected) == hub.selected() == ["c1", "c2"]
    assert [each.name for each in story.clusters if each.selected] == ["c1", "c2"]
    assert (story.status, story.message) == ("Misconfigured", hub.condition("PlacementMisconfigured")[2])


def test_explaining_a_disabled_placement_tells_what_the_hub_keeps(hub: Hub) -> None:
    hub.apply(placement(1))
    changed = placement(3)
    changed["metadata"]["annotations"] = {DISABLE_ANNOTATION: "true"}
    hub.apply(changed)
    story = hub.scheduling.explain(("ns1", "p"))
    assert story is not None
    assert list(story.selected) == hub.selected() == ["c1"]
    assert (story.status, "decisions stay as they are" in story.message) == ("NotDecided", True)


def test_a_lost_binding_takes_the_clusters_even_from_a_misconfigured_placement(hub: Hub) -> None:
    hub.apply(placement())
    hub.apply(placement(prioritizerPolicy={"mode": "Maximum"}))
    hub.delete(MANAGED_CLUSTER_SET_BINDINGS, "global", "ns1")
    assert hub.selected() == []
    assert hub.condition()[1] == "NoManagedClusterSetBindings"


def test_a_page_edited_or_deleted_by_hand_is_restored(hub: Hub) -> None:
    hub.apply(placement())
    before = hub.pages()
    hub.delete(PLACEMENT_DECISIONS, "p-decision-1", "ns1")
    assert hub.pages() == before
    hub.patch(PLACEMENT_DECISIONS, "p-decision-1", {"status": {"decisions": []}}, "ns1", "status")
    assert hub.pages() == before
    hub.patch(PLACEMENT_DECISIONS, "p-decision-1", {"metadata": {"labels": None}}, "ns1")
    assert hub.pages() == before
    hub.apply(placement(1, name="q"))
    hub.patch(PLACEMENT_DECISIONS, "p-decision-1", {"metadata": {"labels": {P + "placement": "q"}}}, "ns1")
    assert hub.pages() == before
    assert hub.pages("q") == {"q-decision-1": ["c1"]}
    uid = hub.get(PLACEMENT_DECISIONS, "p-decision-1", "ns1")["metadata"]["uid"]
    hub.apply(placement(2, name="q"))
    assert hub.get(PLACEMENT_DECISIONS, "p-decision-1", "ns1")["metadata"]["uid"] == uid


@pytest.mark.parametrize("restart", [False, True])
def test_a_page_without_its_owner_is_repaired(hub: Hub, restart: bool) -> None:
    hub.apply(placement())
    (owner,) = hub.get(PLACEMENT_DECISIONS, "p-decision-1", "ns1")["metadata"]["ownerReferences"]
    guest = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}
    hub.namespace("ns1")
    for owners in (
        [],
        [{**owner, "controller": False}],
        [{**owner, "uid": "of a former placement"}],
        [{**owner, "kind": "Other", "uid": "2"}],
    ):
        if restart:
            hub.stop()
        change = {"metadata": {"ownerReferences": [guest, *owners]}}
        hub.run(hub.client.patch(PLACEMENT_DECISIONS, "p-decision-1", change, "ns1"))
        if restart:
            hub.start()
        hub.settle()
        page = hub.get(PLACEMENT_DECISIONS, "p-decision-1", "ns1")
        assert page["metadata"]["ownerReferences"] == [guest, owner]
        assert hub.pages() == {"p-decision-1": ["c1", "c2", "c3"]}


def test_every_expired_score_is_named(hub: Hub) -> None:
    for name, resource in (("c1", "one"), ("c2", "two"), ("c3", "two")):
        hub.score(name, resource, until="2025-12-31T00:00:00Z", a=1)
    hub.apply(placement(1, prioritizerPolicy=exact(add_on(1, "one"), add_on(1, "two"))))
    (warning,) = [event["message"] for event in hub.events("DecisionUpdate") if event["type"] == "Warning"]
    assert "AddOnPlacementScores c1/one expired in plugin AddOn/one/a" in warning
    assert "AddOnPlacementScores c2/two c3/two expired in plugin AddOn/two/a" in warning


def test_a_disabled_placement_is_not_touched(hub: Hub) -> None:
    hub.apply(placement(1))
    hub.apply(placement(3, annotations={P + "experimental-scheduling-disable": "true"}))
    assert hub.selected() == ["c1"]


def test_events_name_pages_and_scores(hub: Hub) -> None:
    hub.apply(placement(2))
    assert [event["message"] for event in hub.events("DecisionCreate")] == [
        "Decision p-decision-1 is created with placement p in namespace ns1"
    ]
    assert hub.events("ScoreUpdate")[0]["message"] == "c1:100 c2:100 c3:100 "
    assert all(event["involvedObject"]["kind"] == "Placement" for event in hub.events("DecisionUpdate"))
    for reason in ("DecisionCreate", "DecisionUpdate", "ScoreUpdate"):
        (event,) = hub.events(reason)
        assert event["action"] == reason + "d"
        assert (event["related"]["kind"], event["related"]["name"]) == ("PlacementDecision", "p-decision-1")


def test_a_score_that_moves_no_cluster_tells_nothing_and_is_written_at_most_once_a_minute(hub: Hub) -> None:
    hub.apply(score("c1", a=50), placement(1, prioritizerPolicy=exact(add_on())))
    told = len(hub.events())
    hub.score("c1", a=60)
    assert len(hub.events()) == told

    def shown() -> int:
        page = hub.get(PLACEMENT_DECISIONS, "p-decision-1", "ns1")
        value: int = page["status"]["decisions"][0]["score"]
        return value

    assert shown() == 50  # the first decision was written within the last minute
    hub.advance(61)
    assert shown() == 60
    assert len(hub.events()) == told


def test_membership_changes_are_written_at_once(hub: Hub) -> None:
    hub.apply(score("c1", a=50), placement(1, prioritizerPolicy=exact(add_on()), scoreRateLimit="1h"))
    hub.score("c2", a=60)
    assert hub.selected() == ["c2"]


def test_only_what_matters_reschedules(hub: Hub) -> None:
    hub.apply(
        score("c1", a=1, b=1),
        placement(1, prioritizerPolicy=exact(add_on())),
        cluster_set("others"),
        cluster("far", {P + "clusterset": "others"}),
    )
    hub.settle()
    count = hub.scheduling.decided

    def decided_by(act: Any) -> int:
        nonlocal count
        act()
        hub.settle()
        before, count = count, hub.scheduling.decided
        return count - before

    assert decided_by(lambda: hub.score("c1", a=1, b=2)) == 0  # another score of the same object
    assert decided_by(lambda: hub.score("c1", "unused", x=5)) == 0
    assert decided_by(lambda: hub.patch(MANAGED_CLUSTERS, "c1", {"metadata": {"labels": {"x": "y"}}})) == 0
    assert (
        decided_by(lambda: hub.patch(MANAGED_CLUSTERS, "c1", {"status": {"allocatable": {"cpu": "1"}}}, "", "status"))
        == 0
    )
    assert decided_by(lambda: hub.patch(PLACEMENTS, "p", {"metadata": {"labels": {"x": "y"}}}, "ns1")) == 0
    assert decided_by(lambda: hub.delete(MANAGED_CLUSTER_SETS, "others")) == 0
    assert decided_by(lambda: hub.score("c1", a=1, b=2, until="2026-06-01T00:00:00Z")) == 1  # now it may expire
    assert decided_by(lambda: hub.score("c1", a=1, b=2, until="2026-07-01T00:00:00Z")) == 0  # a renewal
    assert decided_by(lambda: hub.score("c1", a=7, b=2, until="2026-07-01T00:00:00Z")) == 1
    assert decided_by(lambda: hub.apply(cluster("c9"))) >= 1
    assert decided_by(lambda: hub.advance(3600)) <= 1  # the score in the decision


def test_a_restart_changes_nothing(hub: Hub) -> None:
    hub.apply(score("c2", a=5), placement(2, prioritizerPolicy=exact(add_on())), placement(name="q"))
    version = hub.store.version
    pages, told = hub.pages(), hub.placement()
    hub.restart()
    hub.settle()
    assert (hub.pages(), hub.placement()) == (pages, told)
    assert hub.store.version == version


def watch_pages(hub: Hub) -> list[set[str]]:
    """The clusters on all pages, after each event."""
    seen: list[set[str]] = []
    contents: dict[str, set[str]] = {}

    async def follow() -> None:
        stream = hub.client.watch(PLACEMENT_DECISIONS, "ns1", view=PlacementDecision, resource_version="0")
        async for event in stream:
            if event.object is None:
                continue
            if event.type is EventType.DELETED:
                contents.pop(event.object.metadata.name, None)
            else:
                names = [item.cluster_name for item in event.object.status.decisions]
                assert len(names) <= 100
                contents[event.object.metadata.name] = set(names)
            seen.append(set().union(*contents.values()))

    hub.watcher = hub.loop.create_task(follow())  # type: ignore[attr-defined]  # kept alive by the hub
    hub.settle()
    return seen


@pytest.mark.parametrize("sort_by", ["ClusterName", "Score"])
def test_no_selected_cluster_is_ever_absent(sort_by: str) -> None:
    with Hub() as hub:
        hub.apply(binding(), *(cluster(f"m{i:03d}") for i in range(150)))
        hub.apply(placement(sortBy=sort_by, prioritizerPolicy=exact(add_on()), scoreRateLimit="1s"))
        everyone = set(hub.selected())
        seen = watch_pages(hub)
        start = len(seen)
        hub.apply(cluster("a000"))
        for i in range(140, 150):
            hub.score(f"m{i}", a=i - 100)
        hub.advance(5)
        assert hub.selected() == sorted(everyone | {"a000"})
        assert sorted(name for names in hub.pages().values() for name in names) == sorted(everyone | {"a000"})
        assert all(everyone <= clusters for clusters in seen[start:])


def test_any_re_paging_keeps_selected_clusters_present_and_pages_small() -> None:
    source = random.Random(7)
    for _ in range(60):
        names = [f"c{i:03d}" for i in range(420)]
        held = sorted(source.sample(range(420), source.randint(0, 320)))
        existing = {
            page.name: page.clusters for page in lay_out("p", [SelectedGroup("", tuple(held))], names, {}, sticky=False)
        }
        chosen = source.sample(range(420), source.randint(0, 320))
        size = source.choice([40, 100, 320])
        groups = [SelectedGroup("", tuple(chosen[i : i + size])) for i in range(0, len(chosen), size)]
        wanted = lay_out("p", groups or [SelectedGroup("", ())], names, existing, sticky=source.random() < 0.5)
        check_steps(existing, wanted)


def check_steps(existing: dict[str, tuple[str, ...]], wanted: list[Page]) -> None:
    final = {page.name: page.clusters for page in wanted}
    now = dict(existing)
    must_stay = {c for names in existing.values() for c in names} & {c for names in final.values() for c in names}
    for step in steps("p", existing, wanted):
        if step.clusters is None:
            del now[step.page]
        else:
            now[step.page] = step.clusters
        assert must_stay <= {cluster_name for names in now.values() for cluster_name in names}
        assert all(len(names) <= 100 for names in now.values())
    assert now == final


def test_metrics_tell_what_takes_time(hub: Hub) -> None:
    hub.apply(placement(predicates=[{"requiredClusterSelector": {"celSelector": {"celExpressions": ["true"]}}}]))
    text = exposition(hub.metrics).decode()
    for name in ("scheduling_duration", "bind_duration", "cel_runtime_duration"):
        assert f"scheduling_{name}_seconds_count" in text
    assert 'scheduling_plugin_duration_seconds_count{plugin_type="prioritizer",plugin_name="Balance"}' in text
    assert 'le="1000"' in text
