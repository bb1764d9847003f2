"""Every scenario of the documentation holds, played as `wharf test` plays it."""

from pathlib import Path

import pytest

from wharfinger.cli.scenario_runs import collect, run_file

ROOT = Path(__file__).parents[2]
FILES = collect([str(ROOT / "scenarios")])


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT / "scenarios")))
def test_scenario(file: Path) -> None:
    verdicts = run_file(file, seed=0)
    assert verdicts, "a scenario file without a scenario"
    problems = [f"{verdict.name}\n" + "\n".join(verdict.problems) for verdict in verdicts if not verdict.ok]
    assert not problems, "\n".join(problems)
