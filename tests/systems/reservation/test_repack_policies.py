"""RepackPolicies: what is valid, when a run begins, which moves begin, and when it is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wharfinger.api.kinds import registry
from wharfinger.api.times import format_time, parse_time
from wharfinger.simulate.inputs import read_inputs
from wharfinger.simulate.simulation import SimulationOptions, simulate
from wharfinger.systems.reservation.controllers.repack_policies import RepackPolicyController
from wharfinger.systems.reservation.kinds.repack_policy import KIND
from wharfinger.systems.reservation.rules import repacking as rules

Document = dict[str, Any]
CREATED = "2026-01-01T00:05:00Z"
ROOT = Path(__file__).resolve().parents[3]


def policy(goal: Document | None = None, **spec: Any) -> Document:
    made: Document = {
        "apiVersion": "wharfinger.dev/v1alpha1",
        "kind": "RepackPolicy",
        "metadata": {"name": "p", "creationTimestamp": CREATED},
        "spec": {"schedule": "0 * * * *", "goal": {"freeNodes": 1} if goal is None else goal, **spec},
    }
    assert KIND.default is not None
    KIND.default(made)
    return made


@pytest.mark.parametrize(
    ("made", "path"),
    [
        (policy(), ""),
        (policy({"freeNodes": 2, "nodes": "pool in (a,b)"}), ""),
        (policy({"defragment": "nvidia.com/gpu"}), ""),
        (policy({}), "spec.goal"),
        (policy({"room": True, "evenZones": True}), "spec.goal"),
        (policy({"freeNodes": 0}), "spec.goal.freeNodes"),
        (policy({"room": True, "nodes": "a=b"}), "spec.goal.nodes"),
        (policy({"freeNodes": 1, "nodes": "a in ("}), "spec.goal.nodes"),
        (policy(schedule="every day"), "spec.schedule"),
        (policy(timeZone="Atlantis"), "spec.timeZone"),
        (policy(window="0s"), "spec.window"),
        (policy(window="soon"), "spec.window"),
        (policy(maxMoves=0), "spec.maxMoves"),
        (policy(atOnce=0), "spec.atOnce"),
    ],
)
def test_validation(made: Document, path: str) -> None:
    assert KIND.validate is not None
    assert [fault.path for fault in KIND.validate(made, None)] == ([path] if path else [])


@pytest.mark.parametrize(
    ("now", "last", "due", "missed"),
    [
        ("2026-01-01T00:30:00Z", "", None, None),  # created after the first window began
        ("2026-01-01T01:00:00Z", "", "2026-01-01T01:00:00Z", None),
        ("2026-01-01T01:14:59Z", "", "2026-01-01T01:00:00Z", None),
        ("2026-01-01T01:15:00Z", "", None, "2026-01-01T01:00:00Z"),  # nobody was there while it was open
        ("2026-01-01T01:10:00Z", "2026-01-01T01:00:00Z", None, None),  # used already
    ],
)
def test_a_run_begins_within_a_window_and_once(now: str, last: str, due: str | None, missed: str | None) -> None:
    made = policy(window="15m")
    if last:
        made["status"] = {"lastScheduleTime": last}
    found = rules.times_of(made, parse_time(now))
    assert (found.due and format_time(found.due)) == due
    assert (found.missed and format_time(found.missed)) == missed
    assert found.next is not None and found.next > parse_time(now)


def run(*states: str) -> Document:
    moves = [{"pod": f"ns/p{index}", "from": "a", "to": "b", "state": state} for index, state in enumerate(states)]
    for move in moves:
        if move["state"] == rules.FAILED:
            move["message"] = "no room"
    return {"started": CREATED, "until": "2026-01-01T01:00:00Z", "moves": moves, "freed": ["a"]}


P, R, S, F = rules.PENDING, rules.RUNNING, rules.SUCCEEDED, rules.FAILED


@pytest.mark.parametrize(
    ("states", "spec", "late", "begins", "outcome"),
    [
        ((P, P, P), {"atOnce": 2}, False, 2, None),
        ((R, P, P), {"atOnce": 2}, False, 1, None),
        ((R, R, P), {"atOnce": 2}, False, 0, None),
        ((S, P), {"atOnce": 1, "suspend": True}, False, 0, None),
        ((S, S), {"atOnce": 1}, False, 0, "Completed"),
        ((F, P), {"atOnce": 1}, False, 0, "Stopped"),
        ((F, R), {"atOnce": 2}, False, 0, None),  # what has begun is awaited
        ((S, P), {"atOnce": 1}, True, 0, "WindowClosed"),
        ((R, P), {"atOnce": 1}, True, 0, None),
    ],
)
def test_moves_begin_and_runs_end(
    states: tuple[str, ...], spec: Document, late: bool, begins: int, outcome: str | None
) -> None:
    now = parse_time("2026-01-01T01:00:00Z" if late else "2026-01-01T00:30:00Z")
    made = run(*states)
    assert len(rules.to_begin(made, spec, now)) == begins
    found = rules.outcome_of_run(made, spec, now)
    assert (None if found is None else found[0]) == outcome
    assert rules.half_freed(made) == ([] if set(states) == {S} else ["a"])


def test_a_job_has_the_same_name_in_the_same_run_only() -> None:
    first, other = run(P), {**run(P), "started": "2026-01-02T00:00:00Z"}
    move = first["moves"][0]
    assert rules.job_name("p", first, move) == rules.job_name("p", first, dict(move))
    assert rules.job_name("p", first, move) != rules.job_name("p", other, move)
    assert len(rules.job_name("x" * 200, first, move)) <= 63


def test_a_move_that_outlasts_the_window_is_awaited_and_not_asked_about_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    reconcile = RepackPolicyController.reconcile

    async def counted(self: RepackPolicyController, key: str) -> None:
        asked.append(key)
        await reconcile(self, key)

    monkeypatch.setattr(RepackPolicyController, "reconcile", counted)
    file = ROOT / "scenarios/reservation/repack-policy-budget.yaml"  # a budget holds a move back for a minute
    report = simulate(read_inputs([(str(file), file.read_bytes())], registry()), SimulationOptions())
    assert all(each["ok"] for each in report["expectations"])
    assert 10 < len(asked) < 50
