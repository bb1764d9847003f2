"""Every scenario of the documentation holds, played as `wharf test` plays it, and says nothing that the reference lacks."""

from pathlib import Path

import pytest
from tests.scenarios.messages import unlisted

from wharfinger.cli.scenario_runs import collect, run_file
from wharfinger.simulate.cluster import SimulatedCluster

ROOT = Path(__file__).parents[2]
FILES = collect([str(ROOT / "scenarios")])


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT / "scenarios")))
def test_scenario(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    close = SimulatedCluster.close

    def read_and_close(cluster: SimulatedCluster) -> None:
        texts.extend(unlisted(cluster))
        close(cluster)

    monkeypatch.setattr(SimulatedCluster, "close", read_and_close)
    verdicts = run_file(file, seed=0)
    assert verdicts, "a scenario file without a scenario"
    problems = [f"{verdict.name}\n" + "\n".join(verdict.problems) for verdict in verdicts if not verdict.ok]
    assert not problems, "\n".join(problems)
    assert not texts, "docs/reference/messages.md, made by scripts/reference, lacks this"
