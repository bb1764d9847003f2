"""`wharf fuzz`: histories repeat to the byte, failures shrink to scenarios that fail, and kept scenarios pass."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.fuzz.mutations import MUTATIONS, STEPS, mutated

from wharfinger.cli.main import wharf
from wharfinger.cli.scenario_runs import run_file
from wharfinger.controllers.pod_owner import PodOwner
from wharfinger.fuzz.campaign import run_seed
from wharfinger.fuzz.playing import play_seed
from wharfinger.fuzz.profiles import PROFILES

SEEDS = sorted((Path(__file__).parent / "seeds").glob("*.yaml"))


def written(seed: int, steps: int) -> tuple[int, int, list[str]]:
    played = play_seed(seed, steps, PROFILES["default"])
    assert not played.violations, played.violations[0]
    return played.version, played.digest, [json.dumps(step.written()) for step in played.steps]


def test_a_seed_gives_the_same_history_to_the_byte() -> None:
    assert written(4, 60) == written(4, 60)
    assert written(4, 20) != written(5, 20)


def test_nothing_of_a_history_stays_in_memory() -> None:
    before = sum(isinstance(each, PodOwner) for each in gc.get_objects())
    play_seed(4, 10, PROFILES["default"])
    assert sum(isinstance(each, PodOwner) for each in gc.get_objects()) == before


@pytest.mark.parametrize("profile", PROFILES)
def test_short_histories_of_every_profile_hold(profile: str) -> None:
    verdict = run_seed(1, 20 if profile == "large" else 40, profile, shrink_seconds=0)
    assert not verdict.violations, verdict.violations[0].message


@pytest.mark.parametrize("file", SEEDS, ids=lambda file: file.stem)
def test_what_was_found_once_stays_fixed(file: Path) -> None:
    (verdict,) = run_file(file, 0)
    assert verdict.ok, verdict.problems


def test_a_failure_is_shrunk_to_a_scenario_that_fails_and_passes_once_fixed(tmp_path: Path) -> None:
    mutation = MUTATIONS[0]
    file = tmp_path / "found.yaml"
    with mutated(mutation):
        verdict = run_seed(mutation.seed, STEPS, mutation.profile, 5.0, (mutation.invariant,))
        first = verdict.violations[0]
        assert first.invariant == mutation.invariant
        assert first.shrunk_to < first.step
        file.write_text(first.scenario)
        (again,) = run_file(file, 0)
        assert any(mutation.invariant in problem for problem in again.problems), again.problems
    (fixed,) = run_file(file, 0)
    assert not any(mutation.invariant in problem for problem in fixed.problems), fixed.problems


def test_the_command_prints_json_and_exits_by_outcome(tmp_path: Path) -> None:
    arguments = ["fuzz", "--seed", "3", "--steps", "30", "-o", "json", "--save", str(tmp_path)]
    good = CliRunner().invoke(wharf, arguments)
    assert good.exit_code == 0, good.output
    found = json.loads(good.stdout)
    assert [name for name in found if name not in ("apiVersion", "kind")] == [
        "seed",
        "steps",
        "stepsPerSecond",
        "violations",
    ]
    assert (found["seed"], found["violations"]) == (3, [])
    assert CliRunner().invoke(wharf, ["fuzz", "--seeds", "5..1"]).exit_code == 2
    assert CliRunner().invoke(wharf, ["fuzz", "--profile", "none"]).exit_code == 2
    assert CliRunner().invoke(wharf, ["fuzz", "--seed", "1", "--seeds", "1..2"]).exit_code == 2
