"""`wharf bench … --save` and `--against`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from wharfinger.bench.baseline import comparison, numbers_of
from wharfinger.cli.main import wharf

SMALL = ["bench", "engine", "--workload", "SchedulingBasic", "--nodes", "5", "--pods", "5"]


def test_results_are_saved_and_compared_with_what_was_saved(tmp_path: Path) -> None:
    file = tmp_path / "before.json"
    saved = CliRunner().invoke(wharf, [*SMALL, "--save", str(file)])
    assert saved.exit_code == 0, saved.output
    numbers = json.loads(file.read_text())["results"]["SchedulingBasic"]
    assert numbers["nodes"] == 5
    assert numbers["decisions_per_second"] > 0
    compared = CliRunner().invoke(wharf, [*SMALL, "--against", str(file), "-o", "json"])
    assert json.loads(compared.stdout)["workload"] == "SchedulingBasic"
    assert "rows_per_decision" in compared.stderr
    assert "+0.0%" in compared.stderr


def test_a_file_that_is_no_baseline_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    for text in ("{}", "[", '{"kind": "BenchmarkBaseline", "results": {"a": {"b": "c"}}}'):
        file = tmp_path / "other.json"
        file.write_text(text)
        refused = CliRunner().invoke(wharf, [*SMALL, "--against", str(file)])
        assert refused.exit_code == 2
        assert "is not a baseline that --save wrote" in refused.stderr
        assert "decisions/s" not in refused.stdout


def test_changes_are_relative_and_new_results_are_named() -> None:
    before = numbers_of([{"workload": "a", "rate": 100, "deep": {"p99": 2.0}, "gone": 1}])
    now = numbers_of([{"workload": "a", "rate": 80, "deep": {"p99": 3.0}, "new": 1}, {"workload": "b", "rate": 1}])
    told = [" ".join(line.split()) for line in comparison(before, now)]
    assert told[1:] == ["a rate 100 80 -20.0%", "a deep.p99 2 3 +50.0%", "b not in the baseline"]
    assert numbers_of({"flag": True, "rate": 1}) == {"result 1": {"rate": 1}}
