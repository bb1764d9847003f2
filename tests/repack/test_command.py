"""`wharf repack` as a script uses it."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result
from tests.repack.worlds import node, pod, replica_set

from wharfinger.cli.commands.repack import command


def run(tmp_path: Path, *arguments: str) -> Result:
    objects = [
        *(node("a", 4000, 8000), node("b", 4000, 8000)),
        *(replica_set("web", 1, 1000, 100), pod("web-0", "a", 1000, 100, owner="web")),
        *(replica_set("db", 1, 3000, 100), pod("db-0", "b", 3000, 100, owner="db")),
    ]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return CliRunner().invoke(command, ["--cluster", str(file), *arguments])


def test_json_has_the_documented_fields(tmp_path: Path) -> None:
    result = run(tmp_path, "--free-nodes", "1", "-o", "json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["moves"] == [{"pod": "default/web-0", "from": "a", "to": "b", "why": "frees a"}]
    assert (found["freed"], found["bound"], found["optimal"]) == (["a"], 1, True)


def test_an_impossible_goal_exits_with_one(tmp_path: Path) -> None:
    result = run(tmp_path, "--free-nodes", "2", "-o", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["blocked"]


def test_bad_input_exits_with_two(tmp_path: Path) -> None:
    assert run(tmp_path).exit_code == 2
    assert run(tmp_path, "--free-all").exit_code == 2
    assert run(tmp_path, "--free-nodes", "1", "--nodes", "x in (").exit_code == 2
    assert run(tmp_path, "--free-nodes", "1", "--apply").exit_code == 2


def test_people_read_what_moves_and_why(tmp_path: Path) -> None:
    text = run(tmp_path, "--free-nodes", "1").stdout
    assert "1 move frees a; no plan has fewer" in text
    markdown = run(tmp_path, "--free-nodes", "1", "-o", "markdown").stdout
    assert "| default/web-0 | a | b | frees a |" in markdown
