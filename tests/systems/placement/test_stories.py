"""The user stories of the design document, and the scenarios of scores, taints and weights, on a running hub."""

from __future__ import annotations

from tests.systems.placement.hub import Hub, add_on, built_in, exact, placement, score

from wharfinger.scenario.document import ScenarioFault
from wharfinger.systems.placement.kinds.names import ADDON_PLACEMENT_SCORES, MANAGED_CLUSTERS
from wharfinger.systems.placement.scenario import PlacementScenario

NO_SELECT = {"key": "down", "effect": "NoSelect"}


def test_scores_pushed_from_members_select_the_best_clusters(hub: Hub) -> None:
    hub.apply(score("c1", a=80), score("c2", a=90), score("c3", a=100), placement(2, prioritizerPolicy=exact(add_on())))
    assert hub.selected() == ["c2", "c3"]
    hub.score("c1", a=100)
    assert hub.selected() == ["c1", "c3"]


def test_disaster_recovery_switches_and_comes_back(hub: Hub) -> None:
    hub.apply(score("c1", a=100), score("c2", a=0), score("c3", a=-1), placement(1, prioritizerPolicy=exact(add_on())))
    assert hub.selected() == ["c1"]
    hub.taint("c1", NO_SELECT)
    assert hub.selected() == ["c2"]
    hub.taint("c1")
    assert hub.selected() == ["c1"]


def test_disaster_recovery_stays_where_the_weights_say_so(hub: Hub) -> None:
    policy = exact(add_on(), built_in("Steady", 3))
    hub.apply(score("c1", a=100), score("c2", a=0), score("c3", a=-1), placement(1, prioritizerPolicy=policy))
    hub.taint("c1", NO_SELECT)
    assert hub.selected() == ["c2"]
    hub.taint("c1")
    assert hub.selected() == ["c2"]


def test_a_third_party_score_moves_a_steady_decision_only_by_a_larger_lead(hub: Hub) -> None:
    hub.apply(score("c1", a=0), placement(1, prioritizerPolicy=exact(add_on(), built_in("Steady"))))
    assert hub.selected() == ["c1"]
    hub.score("c2", a=50)
    assert hub.selected() == ["c1"]
    hub.score("c1", a=-60)
    hub.score("c2", a=90)
    assert hub.selected() == ["c2"]


def test_an_expired_score_counts_nothing_and_is_warned_of(hub: Hub) -> None:
    hub.apply(
        score("c1", a=30, until="2025-12-31T00:00:00Z"),
        score("c2", a=40),
        score("c3", a=50),
        placement(2, prioritizerPolicy=exact(add_on())),
    )
    assert hub.selected() == ["c2", "c3"]
    warnings = [event for event in hub.events("DecisionUpdate") if event["type"] == "Warning"]
    assert any("c1/demo expired" in event["message"] and "AddOn/demo/a" in event["message"] for event in warnings)


def test_an_expiry_takes_effect_at_its_instant(hub: Hub) -> None:
    hub.apply(
        score("c1", a=50, until="2026-01-01T00:10:00Z"),
        score("c2", a=40),
        placement(1, prioritizerPolicy=exact(add_on())),
    )
    assert hub.selected() == ["c1"]
    hub.advance(600 - hub.loop.time())
    assert hub.selected() == ["c1"]  # valid up to and including the instant
    hub.advance(1)
    assert hub.selected() == ["c2"]


def test_cel_selects_by_scores_and_follows_them(hub: Hub) -> None:
    expression = 'managedCluster.scores("demo").all(s, s.value > 80)'
    predicate = {"requiredClusterSelector": {"celSelector": {"celExpressions": [expression]}}}
    hub.apply(score("c1", a=70), score("c2", a=90), placement(predicates=[predicate]))
    assert hub.selected() == ["c2"]
    hub.delete(ADDON_PLACEMENT_SCORES, "demo", "c2")
    assert hub.selected() == []
    assert hub.condition()[1] == "NoManagedClusterMatched"
    hub.score("c2", a=95, until="2026-01-01T01:00:00Z")
    assert hub.selected() == ["c2"]
    hub.advance(3700)
    assert hub.selected() == []


def test_a_toleration_ends_at_its_instant(hub: Hub) -> None:
    tolerated = [{"key": "down", "operator": "Exists", "tolerationSeconds": 30}]
    hub.apply(placement(tolerations=tolerated))
    hub.taint("c1", NO_SELECT)
    started = hub.loop.time()
    assert hub.selected() == ["c1", "c2", "c3"]
    hub.advance(29)
    assert hub.selected() == ["c1", "c2", "c3"]
    hub.advance(started + 31 - hub.loop.time())
    assert hub.selected() == ["c2", "c3"]


def test_no_select_if_new_keeps_who_is_decided(hub: Hub) -> None:
    hub.apply(placement(1))
    assert hub.selected() == ["c1"]
    hub.taint("c1", {"key": "full", "effect": "NoSelectIfNew"})
    hub.taint("c2", {"key": "full", "effect": "NoSelectIfNew"})
    assert hub.selected() == ["c1"]
    hub.apply(placement(3))
    assert hub.selected() == ["c1", "c3"]


def test_a_deleted_cluster_leaves_at_once_even_while_a_finalizer_holds_it(hub: Hub) -> None:
    hub.patch(MANAGED_CLUSTERS, "c1", {"metadata": {"finalizers": ["example.com/hold"]}})
    hub.apply(placement())
    assert hub.selected() == ["c1", "c2", "c3"]
    hub.delete(MANAGED_CLUSTERS, "c1")
    assert hub.find(MANAGED_CLUSTERS, "c1") is not None
    assert hub.selected() == ["c2", "c3"]


def agent_fault(hub: Hub, name: str, *, stopped: bool) -> None:
    """Stops the simulated agent of a cluster, or lets it work again, as a scenario does."""
    fault = ScenarioFault(agent=name, stopped=stopped)
    hub.run(PlacementScenario().simulate_fault(fault, hub.client, hub.clock.now()))
    hub.settle()


def test_a_lease_that_stops_removes_the_cluster_after_five_durations(hub: Hub) -> None:
    hub.apply(placement())
    agent_fault(hub, "c1", stopped=True)
    hub.advance(299)
    assert hub.selected() == ["c1", "c2", "c3"]
    hub.advance(2)
    assert hub.selected() == ["c2", "c3"]
    found = hub.get(MANAGED_CLUSTERS, "c1")
    available = next(c for c in found["status"]["conditions"] if c["type"] == "ManagedClusterConditionAvailable")
    assert available["status"] == "Unknown"
    assert [taint["key"] for taint in found["spec"]["taints"]] == ["cluster.open-cluster-management.io/unreachable"]
    agent_fault(hub, "c1", stopped=False)
    assert hub.selected() == ["c1", "c2", "c3"]
