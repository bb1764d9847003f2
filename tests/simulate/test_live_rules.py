"""What a scenario means on a real cluster, as far as it can be told without one; tests/kubernetes plays them there."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.kinds import registry
from wharfinger.simulate.live_rules import is_negative, why_not
from wharfinger.simulate.scenario import Scenario, parse_scenario


def scenario(*steps: dict[str, Any], **more: Any) -> Scenario:
    parsed, errors = parse_scenario({"steps": list(steps), **more}, registry())
    assert not errors
    return parsed


@pytest.mark.parametrize(
    ("step", "more", "reason"),
    [
        ({"at": "60s"}, {}, ""),
        ({"at": "61s"}, {}, "it needs more than a minute of virtual time"),
        ({"expect": {"kind": "Pod", "name": "a", "within": "2m"}}, {}, "an expectation waits for more than a minute"),
        ({}, {"start": "2026-03-01T00:00:00Z"}, "it starts at a time of its own"),
        ({"fault": {"bind": "fail"}}, {}, "bindings cannot be made to fail or be slow"),
        ({"fault": {"restart": "scheduler"}}, {}, "it restarts scheduler (see --restart)"),
        ({"fault": {"node": "n1"}}, {}, ""),
    ],
)
def test_what_cannot_be_played_says_why(step: dict[str, Any], more: dict[str, Any], reason: str) -> None:
    assert why_not(scenario(step, **more)) == reason
    assert why_not(scenario({"fault": {"restart": "all"}}), restarts=True) == ""


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
