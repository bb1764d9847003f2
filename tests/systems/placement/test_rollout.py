"""Rollouts over decision groups."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from wharfinger.systems.placement.rules.rollout import (
    ClusterStatus,
    Group,
    GroupRef,
    Rollout,
    Status,
    Strategy,
    Type,
    roll_out,
)

GROUPS = [Group(0, "canary", ("c1", "c2")), Group(1, "", ("c3", "c4")), Group(2, "", ("c5",))]
NOW = 1000.0
OK, BUSY, BAD = Status.SUCCEEDED, Status.PROGRESSING, Status.FAILED


def rolled(strategy: Strategy, groups: list[Group] = GROUPS, since: float = NOW - 50, **known: Status) -> Rollout:
    return roll_out(strategy, groups, {name: ClusterStatus(status, since) for name, status in known.items()}, NOW)


def test_all_goes_everywhere_at_once_whatever_failed() -> None:
    answer = rolled(Strategy(), c1=BAD, gone=OK)
    assert sorted(answer.to_roll_out) == ["c1", "c2", "c3", "c4", "c5"]
    assert answer.removed == ["gone"]
    assert not answer.breached


PROGRESSIVE = Strategy(Type.PROGRESSIVE, max_concurrency=2)


@pytest.mark.parametrize(
    ("known", "clusters"),
    [
        ({}, ["c1", "c2"]),
        ({"c1": OK, "c2": BUSY}, ["c1", "c2", "c3"]),
        ({"c1": OK, "c2": OK}, ["c1", "c2", "c3", "c4"]),
        ({"c1": Status.SKIP}, ["c2", "c3"]),
    ],
)
def test_progressive_takes_slots_in_name_order(known: dict[str, Status], clusters: list[str]) -> None:
    assert sorted(rolled(PROGRESSIVE, **known).to_roll_out) == clusters


def test_a_success_holds_its_slot_while_it_soaks() -> None:
    strategy = Strategy(Type.PROGRESSIVE, max_concurrency=1, min_success_time=60)
    answer = rolled(strategy, c1=OK)
    assert answer.to_roll_out == ["c1"]
    assert answer.recheck_after == 10
    assert rolled(strategy, since=NOW - 60, c1=OK).to_roll_out == ["c1", "c2"]


def test_a_deadline_makes_a_time_out_which_counts_as_failure() -> None:
    strategy = Strategy(Type.PROGRESSIVE, max_concurrency=1, progress_deadline=60, max_failures=1)
    assert rolled(strategy, c1=BUSY).recheck_after == 10
    late = rolled(strategy, since=NOW - 60, c1=BUSY)
    assert (late.timed_out, late.to_roll_out, late.breached) == (["c1"], ["c2"], False)
    assert rolled(strategy, since=NOW - 60, c1=BUSY, c2=BAD).breached


@pytest.mark.parametrize(
    ("allowed", "breached"), [(0, True), (1, False), (99, False), (Fraction(1, 5), False), (Fraction(0), True)]
)
def test_failures_allowed(allowed: int | Fraction, breached: bool) -> None:
    assert rolled(Strategy(Type.PROGRESSIVE, max_failures=allowed), c1=BAD).breached is breached


def test_more_failures_allowed_than_clusters_means_all_of_them() -> None:
    strategy = Strategy(Type.PROGRESSIVE, max_failures=99)
    assert not rolled(strategy, c1=BAD, c2=BAD, c3=BAD, c4=BAD).breached


def test_per_group_waits_for_the_group_before() -> None:
    strategy = Strategy(Type.PROGRESSIVE_PER_GROUP, max_failures=1)
    assert rolled(strategy).to_roll_out == ["c1", "c2"]
    assert rolled(strategy, c1=OK, c2=BUSY).to_roll_out == ["c1", "c2"]
    assert rolled(strategy, c1=OK, c2=BAD).to_roll_out == ["c1", "c2", "c3", "c4"]
    assert rolled(strategy, c1=BAD, c2=BAD).breached


@pytest.mark.parametrize("kind", [Type.PROGRESSIVE, Type.PROGRESSIVE_PER_GROUP])
def test_mandatory_groups_run_first_without_any_failure(kind: Type) -> None:
    strategy = Strategy(kind, max_failures=5, mandatory=(GroupRef(index=2), GroupRef("canary")))
    assert rolled(strategy).to_roll_out == ["c5"]
    assert rolled(strategy, c5=OK).to_roll_out == ["c5", "c1", "c2"]
    assert rolled(strategy, c5=BAD).breached
    assert sorted(rolled(strategy, c5=OK, c1=OK, c2=OK).to_roll_out) == ["c1", "c2", "c3", "c4", "c5"]


def test_nothing_to_wait_for_asks_for_no_further_look() -> None:
    assert rolled(Strategy(Type.PROGRESSIVE, progress_deadline=math.inf), c1=BUSY).recheck_after is None
