"""Rollouts over decision groups."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from wharfinger.cli.main import wharf
from wharfinger.systems.placement.rules.rollout import (
    ClusterRollout,
    MandatoryGroup,
    Rollout,
    RolloutGroup,
    RolloutStatus,
    RolloutStrategy,
    RolloutType,
    roll_out,
    waves,
)

GROUPS = [RolloutGroup(0, "canary", ("c1", "c2")), RolloutGroup(1, "", ("c3", "c4")), RolloutGroup(2, "", ("c5",))]
NOW = 1000.0
OK, BUSY, BAD = RolloutStatus.SUCCEEDED, RolloutStatus.PROGRESSING, RolloutStatus.FAILED


def rolled(
    strategy: RolloutStrategy, groups: list[RolloutGroup] = GROUPS, since: float = NOW - 50, **known: RolloutStatus
) -> Rollout:
    return roll_out(strategy, groups, {name: ClusterRollout(status, since) for name, status in known.items()}, NOW)


def test_all_goes_everywhere_at_once_whatever_failed() -> None:
    answer = rolled(RolloutStrategy(), c1=BAD, gone=OK)
    assert sorted(answer.to_roll_out) == ["c1", "c2", "c3", "c4", "c5"]
    assert answer.removed == ["gone"]
    assert not answer.breached


PROGRESSIVE = RolloutStrategy(RolloutType.PROGRESSIVE, max_concurrency=2)


@pytest.mark.parametrize(
    ("known", "clusters"),
    [
        ({}, ["c1", "c2"]),
        ({"c1": OK, "c2": BUSY}, ["c1", "c2", "c3"]),
        ({"c1": OK, "c2": OK}, ["c1", "c2", "c3", "c4"]),
        ({"c1": RolloutStatus.SKIP}, ["c2", "c3"]),
    ],
)
def test_progressive_takes_slots_in_name_order(known: dict[str, RolloutStatus], clusters: list[str]) -> None:
    assert sorted(rolled(PROGRESSIVE, **known).to_roll_out) == clusters


def test_a_success_holds_its_slot_while_it_soaks() -> None:
    strategy = RolloutStrategy(RolloutType.PROGRESSIVE, max_concurrency=1, min_success_time=60)
    answer = rolled(strategy, c1=OK)
    assert answer.to_roll_out == ["c1"]
    assert answer.recheck_after == 10
    assert rolled(strategy, since=NOW - 60, c1=OK).to_roll_out == ["c1", "c2"]


def test_a_deadline_makes_a_time_out_which_counts_as_failure() -> None:
    strategy = RolloutStrategy(RolloutType.PROGRESSIVE, max_concurrency=1, progress_deadline=60, max_failures=1)
    assert rolled(strategy, c1=BUSY).recheck_after == 10
    late = rolled(strategy, since=NOW - 60, c1=BUSY)
    assert (late.timed_out, late.to_roll_out, late.breached) == (["c1"], ["c2"], False)
    assert rolled(strategy, since=NOW - 60, c1=BUSY, c2=BAD).breached


@pytest.mark.parametrize(
    ("allowed", "breached"), [(0, True), (1, False), (99, False), (Fraction(1, 5), False), (Fraction(0), True)]
)
def test_failures_allowed(allowed: int | Fraction, breached: bool) -> None:
    assert rolled(RolloutStrategy(RolloutType.PROGRESSIVE, max_failures=allowed), c1=BAD).breached is breached


def test_more_failures_allowed_than_clusters_means_all_of_them() -> None:
    strategy = RolloutStrategy(RolloutType.PROGRESSIVE, max_failures=99)
    assert not rolled(strategy, c1=BAD, c2=BAD, c3=BAD, c4=BAD).breached


def test_per_group_waits_for_the_group_before() -> None:
    strategy = RolloutStrategy(RolloutType.PROGRESSIVE_PER_GROUP, max_failures=1)
    assert rolled(strategy).to_roll_out == ["c1", "c2"]
    assert rolled(strategy, c1=OK, c2=BUSY).to_roll_out == ["c1", "c2"]
    assert rolled(strategy, c1=OK, c2=BAD).to_roll_out == ["c1", "c2", "c3", "c4"]
    assert rolled(strategy, c1=BAD, c2=BAD).breached


@pytest.mark.parametrize("kind", [RolloutType.PROGRESSIVE, RolloutType.PROGRESSIVE_PER_GROUP])
def test_mandatory_groups_run_first_without_any_failure(kind: RolloutType) -> None:
    strategy = RolloutStrategy(kind, max_failures=5, mandatory=(MandatoryGroup(index=2), MandatoryGroup("canary")))
    assert rolled(strategy).to_roll_out == ["c5"]
    assert rolled(strategy, c5=OK).to_roll_out == ["c5", "c1", "c2"]
    assert rolled(strategy, c5=BAD).breached
    assert sorted(rolled(strategy, c5=OK, c1=OK, c2=OK).to_roll_out) == ["c1", "c2", "c3", "c4", "c5"]


def test_nothing_to_wait_for_asks_for_no_further_look() -> None:
    assert rolled(RolloutStrategy(RolloutType.PROGRESSIVE, progress_deadline=math.inf), c1=BUSY).recheck_after is None


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (RolloutStrategy(), [["c1", "c2", "c3", "c4", "c5"]]),
        (PROGRESSIVE, [["c1", "c2"], ["c3", "c4"], ["c5"]]),
        (RolloutStrategy(RolloutType.PROGRESSIVE_PER_GROUP), [["c1", "c2"], ["c3", "c4"], ["c5"]]),
        (
            RolloutStrategy(RolloutType.PROGRESSIVE, mandatory=(MandatoryGroup("canary"),)),
            [["c1", "c2"], ["c3", "c4", "c5"]],
        ),
    ],
)
def test_waves_reach_all_clusters_if_all_succeed(strategy: RolloutStrategy, expected: list[list[str]]) -> None:
    assert waves(strategy, GROUPS, {}) == expected


def test_waves_begin_with_what_is_known() -> None:
    known = {"c1": ClusterRollout(OK), "c2": ClusterRollout(BUSY), "c3": ClusterRollout(BAD)}
    assert waves(PROGRESSIVE, GROUPS, known) == []  # no failure is allowed
    assert waves(RolloutStrategy(RolloutType.PROGRESSIVE, max_concurrency=2, max_failures=1), GROUPS, known) == [
        ["c4"],
        ["c5"],
    ]


DECISIONS = """
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: PlacementDecision
metadata:
  name: web-decision-{number}
  namespace: apps
  labels:
    cluster.open-cluster-management.io/placement: web
    cluster.open-cluster-management.io/decision-group-index: "{index}"
    cluster.open-cluster-management.io/decision-group-name: "{name}"
status: {{decisions: [{clusters}]}}
"""


def test_the_command_shows_waves_over_the_decisions(tmp_path: Path) -> None:
    def decisions(number: int, index: int, name: str, *clusters: str) -> str:
        each = ", ".join(f"{{clusterName: {cluster}, reason: ''}}" for cluster in clusters)
        return DECISIONS.format(number=number, index=index, name=name, clusters=each)

    file = tmp_path / "decisions.yaml"
    file.write_text(
        "---".join([decisions(1, 0, "canary", "c1"), decisions(2, 1, "", "c2", "c3"), decisions(3, 1, "", "c4")])
    )
    options = ["--type", "Progressive", "--max-concurrency", "50%", "--mandatory-group", "canary"]
    shown = CliRunner().invoke(wharf, ["rollout", "apps/web", "-f", str(file), *options])
    assert shown.output == "WAVE   CLUSTERS\n1      c1\n2      c2, c3\n3      c4\n"
    stuck = CliRunner().invoke(wharf, ["rollout", "apps/web", "-f", str(file), *options, "--known", "c1=Failed"])
    assert stuck.output == "WAVE   CLUSTERS\n\nNot reached, because more clusters failed than allowed: c2, c3, c4\n"
    assert stuck.exit_code == 1
    absent = CliRunner().invoke(wharf, ["rollout", "apps/other", "-f", str(file)])
    assert absent.exit_code == 1 and "no decisions" in absent.output
