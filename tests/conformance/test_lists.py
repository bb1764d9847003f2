"""The lists of upstream's specs, and what the runner makes of results."""

from __future__ import annotations

import pytest
from tests.conformance.__main__ import AREAS, SpecResult, chosen, focus, listed, report, result
from tests.kubernetes.binaries import cache
from tests.support import missing

NAME = "[sig-apps] Job should (sometimes) fail. [Conformance]"


def test_every_spec_is_in_one_list_with_a_reason() -> None:
    impossible, failing, quick = listed("impossible.txt"), listed("failing.txt"), listed("quick.txt")
    assert all(impossible.values()) and all(failing.values())
    assert not set(impossible) & set(failing)
    assert not set(quick) & (set(impossible) | set(failing))
    assert impossible and quick
    on_node, failing_there = listed("impossible_on_node.txt"), listed("failing_on_node.txt")
    assert {*on_node, *failing_there} <= set(impossible) and all((*on_node.values(), *failing_there.values()))
    assert not set(on_node) & set(failing_there)


def test_every_listed_spec_exists() -> None:
    program = cache() / "e2e.test"
    if not program.exists():
        missing("conformance", "python -m tests.kubernetes.binaries e2e.test makes it")
    known = set(chosen(program, AREAS, []))
    for name in ("impossible.txt", "impossible_on_node.txt", "failing.txt", "failing_on_node.txt", "quick.txt"):
        assert set(listed(name)) <= known


def test_a_focus_matches_one_name_literally() -> None:
    assert focus(NAME) == r"\[sig-apps\] Job should \(sometimes\) fail\. \[Conformance\]$"


@pytest.mark.parametrize(
    ("spec", "setup", "expected"),
    [
        ({"State": "passed", "RunTime": 2e9}, None, SpecResult(NAME, True, 2.0)),
        (
            {"State": "failed", "RunTime": 1e9, "Failure": {"Message": "a\n b"}},
            None,
            SpecResult(NAME, False, 1.0, "a b"),
        ),
        ({"State": "skipped", "RunTime": 0, "Failure": {"Message": "no"}}, None, SpecResult(NAME, False, 0.0, "no")),
        (None, {"Failure": {"Message": "no nodes"}}, SpecResult(NAME, False, 0, "no nodes")),
        (None, None, SpecResult(NAME, False, 0, "not run")),
    ],
)
def test_results(spec: dict[str, object] | None, setup: dict[str, object] | None, expected: SpecResult) -> None:
    assert result(NAME, spec, setup) == expected


def test_the_table_counts_what_is_possible(capsys: pytest.CaptureFixture[str]) -> None:
    results = {
        "[sig-apps] a": SpecResult("[sig-apps] a", True, 1),
        "[sig-apps] b": SpecResult("[sig-apps] b", False, 1, "x"),
    }
    unexpected = report(
        ["[sig-apps] a", "[sig-apps] b", "[sig-apps] c"], {"[sig-apps] c": "runs a server"}, {}, results, 60
    )
    shown = capsys.readouterr().out
    assert unexpected == ["[sig-apps] b"]
    assert shown.splitlines()[2].split() == ["sig-apps", "1", "1", "1", "50%"]
    assert "Failed: [sig-apps] b\n  x" in shown and "[sig-apps] c: runs a server" in shown
    assert report(["[sig-apps] b"], {}, {"[sig-apps] b": "known"}, {"[sig-apps] b": results["[sig-apps] b"]}, 60) == []
