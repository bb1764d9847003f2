"""What a scenario means on a real cluster, as far as it can be told without one; tests/kubernetes plays them there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import CLUSTER_ROLES
from wharfinger.scenario.document import Scenario, parse_scenario
from wharfinger.scenario.running.client import Footprint
from wharfinger.scenario.running.rules import is_negative, why_not
from wharfinger.scenario.running.times import Moved, begins_at
from wharfinger.systems.placement.kinds.names import MANAGED_CLUSTER_SETS


def scenario(*steps: dict[str, Any], **more: Any) -> Scenario:
    parsed, errors = parse_scenario({"steps": list(steps), **more}, registry())
    assert not errors
    return parsed


@pytest.mark.parametrize(
    ("step", "more", "reason"),
    [
        ({"at": "100s"}, {}, ""),
        ({"at": "101s"}, {}, "it needs more than 100 seconds of virtual time"),
        (
            {"expect": {"kind": "Pod", "name": "a", "within": "2m"}},
            {},
            "an expectation waits for more than 100 seconds",
        ),
        ({}, {"start": "2026-03-01T00:00:00Z"}, ""),
        ({"fault": {"bind": "fail"}}, {}, "it lets bindings fail or be slow (see --webhook)"),
        ({"fault": {"agent": "c1", "stopped": True}}, {}, ""),
        ({"fault": {"provision": "fail"}}, {}, ""),
        ({"fault": {"restart": "scheduler"}}, {}, "it restarts scheduler (see --restart)"),
        ({"fault": {"node": "n1"}}, {}, ""),
    ],
)
def test_what_cannot_be_played_says_why(step: dict[str, Any], more: dict[str, Any], reason: str) -> None:
    assert why_not(scenario(step, **more)) == reason


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"restart": "all"}, ""),
        ({"bind": "fail", "count": 2}, ""),
        ({"bind": "slow", "delay": "25s"}, ""),
        ({"bind": "slow", "delay": "26s"}, "a binding is to be slower than 25 seconds"),
    ],
)
def test_what_can_be_played_where_it_is_said_how(fault: dict[str, Any], reason: str) -> None:
    assert why_not(scenario({"fault": fault}), restarts=True, webhook=True) == reason


@pytest.mark.needs_system("placement")
@pytest.mark.parametrize(
    ("window", "reason"),
    [
        ({}, ""),
        ({"timeZone": "UTC"}, ""),
        ({"timeZone": "Europe/Paris"}, "it speaks of times of day with timeZone, which cannot be moved to now"),
        ({"days": ["Mon"]}, "it speaks of times of day with days, which cannot be moved to now"),
    ],
)
def test_times_of_day_that_cannot_be_moved(window: dict[str, Any], reason: str) -> None:
    assert why_not(scenario({"apply": [placement({"start": "10:00", "end": "11:00", **window})]})) == reason


@pytest.mark.needs_system("placement", "scheduling_policy")
def test_a_scenario_may_delete_what_it_made_and_what_our_programs_restore() -> None:
    theirs, ours = (CLUSTER_ROLES, "", "admin"), (CLUSTER_ROLES, "", "sp:restricted")
    sets = [(MANAGED_CLUSTER_SETS, "", name) for name in ("global", "theirs")]
    footprint = Footprint(before={place: {"metadata": {"name": place[2]}} for place in (theirs, ours, *sets)})
    assert [footprint.may_delete(place) for place in (theirs, ours, *sets)] == [False, True, True, False]
    footprint.create(CLUSTER_ROLES, {"metadata": {"name": "mine", "uid": "1"}})
    assert footprint.may_delete((CLUSTER_ROLES, "", "mine"))


def placement(*windows: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "Placement",
        "metadata": {
            "name": "p",
            "namespace": "shop",
            "annotations": {"wharfinger.dev/time-windows": json.dumps({"windows": windows})},
        },
        "spec": {},
    }


@pytest.mark.needs_system("placement")
def test_times_are_moved_with_the_start_and_nothing_else_is() -> None:
    score = {
        "apiVersion": "cluster.open-cluster-management.io/v1alpha1",
        "kind": "AddOnPlacementScore",
        "metadata": {"name": "s", "namespace": "c1", "annotations": {"a": "till 2026-01-01T00:00:20Z, v1.2"}},
        "status": {"validUntil": "2026-01-01T01:00:00+01:00", "scores": [{"name": "x", "value": 30}]},
    }
    expected = {"kind": "Pod", "name": "a", "fields": {"spec.x": {"in": ["2025-12-31T23:59:59Z", "other"]}}}
    played = scenario(
        {"apply": [score]},
        {"patch": {"kind": "Pod", "name": "a", "merge": {"status": {"startTime": "2026-01-01T00:00:01Z"}}}},
        {"expect": expected},
    )
    moved = Moved(86_400.0).scenario(played)
    (document,) = moved.steps[0].apply
    assert document == {
        **score,
        "metadata": {**score["metadata"], "annotations": {"a": "till 2026-01-02T00:00:20Z, v1.2"}},
        "status": {"validUntil": "2026-01-02T00:00:00Z", "scores": [{"name": "x", "value": 30}]},
    }
    assert moved.steps[1].patches[0].merge == {"status": {"startTime": "2026-01-02T00:00:01Z"}}
    (field,) = moved.steps[2].expect[0].fields
    assert field.matches("2026-01-01T23:59:59Z") and not field.matches("2025-12-31T23:59:59Z")
    assert moved.start == played.start + 86_400


@pytest.mark.needs_system("placement")
def test_times_of_day_are_moved_by_whole_minutes() -> None:
    played = scenario({"apply": [placement({"start": "23:50", "end": "00:10"})]}, start="2026-01-01T00:00:35Z")
    now = played.start + 7 * 86_400 + 3 * 3600 + 5 * 60 + 0.25
    begin = begins_at(played, [], now)
    assert begin == played.start + 7 * 86_400 + 3 * 3600 + 6 * 60  # at second 35 of the next minute
    (document,) = Moved(begin - played.start).scenario(played).steps[0].apply
    windows = json.loads(document["metadata"]["annotations"]["wharfinger.dev/time-windows"])["windows"]
    assert windows == [{"start": "02:56", "end": "03:16"}]
    plain = scenario({})
    assert begins_at(plain, [], plain.start + 1000.25) == plain.start + 1001


@pytest.mark.parametrize(
    ("expectation", "negative"),
    [
        ({"name": "a"}, False),
        ({"name": "a", "absent": True}, True),
        ({"count": 0}, True),
        ({"count": 2}, False),
        ({"name": "a", "fields": {"spec.nodeName": {"exists": False}}}, True),
        ({"name": "a", "fields": {"spec.nodeName": None}}, True),
        ({"name": "a", "fields": {"spec.nodeName": {"not": "n1"}}}, True),
        ({"name": "a", "fields": {"status.phase": "Pending"}}, True),
        ({"name": "a", "fields": {"status.phase": "Running", "spec.nodeName": "n1"}}, False),
    ],
)
def test_what_must_hold_for_a_while(expectation: dict[str, Any], negative: bool) -> None:
    (step,) = scenario({"expect": {"kind": "Pod", **expectation}}).steps
    assert is_negative(step.expect[0]) is negative
