"""Setting a condition: when its transition time moves, and where in the list it goes."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.conditions import (
    condition_document,
    find_condition,
    is_true,
    new_condition,
    set_condition,
    transition_time,
    without_condition,
)
from wharfinger.api.registry import Document
from wharfinger.api.views.meta import Condition

EARLIER, NOW = 0.0, 60.0
EARLIER_TEXT, NOW_TEXT = "1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z"
OTHER = new_condition("Other", True, "", "", EARLIER)


def ready(status: bool, reason: str, now: float = NOW) -> Document:
    return new_condition("Ready", status, reason, "", now)


@pytest.mark.parametrize(
    ("condition", "options", "expected"),
    [
        pytest.param(ready(False, "A"), {}, NOW_TEXT, id="a new status moves the time"),
        pytest.param(ready(True, "A"), {}, EARLIER_TEXT, id="the same status keeps it"),
        pytest.param(ready(True, "B"), {}, EARLIER_TEXT, id="a new reason keeps it"),
        pytest.param(ready(True, "B"), {"reason_is_transition": True}, NOW_TEXT, id="unless reasons are transitions"),
        pytest.param(ready(True, "A"), {"reason_is_transition": True}, EARLIER_TEXT, id="the same reason keeps it"),
    ],
)
def test_transition_time(condition: Document, options: dict[str, Any], expected: str) -> None:
    conditions = set_condition([ready(True, "A", EARLIER), OTHER], condition, **options)
    assert [each["type"] for each in conditions] == ["Ready", "Other"]
    assert conditions[0] == {**condition, "lastTransitionTime": expected}


def test_a_condition_of_a_new_type_is_appended() -> None:
    assert set_condition([OTHER], ready(True, "A")) == [OTHER, ready(True, "A")]


def test_append_moves_the_condition_to_the_end() -> None:
    conditions = set_condition([ready(True, "A", EARLIER), OTHER], ready(False, "B"), append=True)
    assert conditions == [OTHER, ready(False, "B")]


def test_a_condition_of_the_same_status_and_reason_may_be_kept() -> None:
    before = [{**ready(True, "A", EARLIER), "message": "old"}, OTHER]
    assert set_condition(before, ready(True, "A"), append=True, keep_if_same_reason=True) == before
    assert set_condition(before, ready(True, "B"), append=True, keep_if_same_reason=True)[-1]["reason"] == "B"


def test_a_previous_condition_without_time_gets_one() -> None:
    before = {"type": "Ready", "status": "True"}
    assert transition_time(before, "True", NOW_TEXT) == NOW_TEXT
    assert transition_time(Condition(type="Ready", status="True"), "True", NOW_TEXT) == NOW_TEXT
    assert transition_time(None, "True", NOW_TEXT) == NOW_TEXT


def test_finding_and_removing() -> None:
    conditions = [ready(False, "A"), OTHER]
    assert find_condition(conditions, "Other") is OTHER
    assert find_condition(conditions, "Missing") is None
    assert (is_true(conditions, "Other"), is_true(conditions, "Ready"), is_true(conditions, "Missing")) == (
        True,
        False,
        False,
    )
    assert without_condition(conditions, "Ready") == [OTHER]


def test_the_document_of_a_view_has_no_empty_members() -> None:
    view = Condition(type="Ready", status="True", last_transition_time=NOW_TEXT, observed_generation=3)
    assert condition_document(view) == {
        "type": "Ready",
        "status": "True",
        "lastTransitionTime": NOW_TEXT,
        "observedGeneration": 3,
    }
