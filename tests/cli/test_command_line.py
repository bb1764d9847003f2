"""The command as a whole: every help text can be shown, slips are answered, and nothing ends in a traceback."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from wharfinger.cli.main import wharf
from wharfinger.cli.report_text import render

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(wharf, arguments)


def every_command(command: click.Command, *names: str) -> Iterator[tuple[str, ...]]:
    yield names
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from every_command(found, *names, name)


def test_every_command_and_benchmark_shows_its_help() -> None:
    shown = {names: run(*names, "--help") for names in every_command(wharf)}
    assert {("bench", "engine"), ("explain", "pod"), ("completion",)} <= shown.keys()
    assert {names: result.output for names, result in shown.items() if result.exit_code} == {}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["simulat"], "No such command 'simulat'. Did you mean simulate?"),
        (["bench", "engin"], "Did you mean engine?"),
        (["explain", "pods"], "pod"),
        (["some.thing/else"], "No such command 'some.thing/else'."),
    ],
)
def test_a_slip_in_a_command_is_answered_with_what_may_be_meant(arguments: list[str], told: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in result.output


@pytest.mark.parametrize("command", ["install --components all", "uninstall", "explain pod a/b", "classes"])
def test_a_cluster_that_cannot_be_reached_is_said_in_a_line(tmp_path: Path, command: str) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    result = run(*command.split(), "--kubeconfig", str(tmp_path / "config"))
    assert result.exit_code == 1
    assert result.output.startswith("Error: cannot connect to https://127.0.0.1:1")


def test_a_file_that_cannot_be_read_is_said_in_a_line() -> None:
    result = run("capacity", "--node-group", "/nowhere/group.yaml")
    assert (result.exit_code, result.output) == (2, "Error: /nowhere/group.yaml: No such file or directory\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_a_script_for_completion(shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_WHARF_COMPLETE" in result.output


def report(**parts: object) -> dict[str, object]:
    return {"objects": [], "unscheduled": [], "rejections": [], "expectations": [], **parts}


def test_pods_that_wait_for_the_same_reason_share_a_row() -> None:
    waiting = [{"namespace": "shop", "name": f"a{i}", "message": "no room"} for i in range(100)]
    waiting.append({"namespace": "shop", "name": "b", "message": "no such node"})
    text = render(report(unscheduled=waiting))
    assert text.splitlines() == [
        "Pending: 101 pods",
        "POD                                     WHY",
        "shop/a0, shop/a1, shop/a2 and 97 more   no room",
        "shop/b                                  no such node",
    ]
    assert len(render(report(unscheduled=waiting), everything=True).splitlines()) == 103


@pytest.mark.parametrize(
    ("held", "failed", "said"),
    [
        (1, 0, "The expectation holds."),
        (2, 0, "All 2 expectations hold."),
        (0, 1, "1 of 1 expectation failed:"),
        (2, 1, "1 of 3 expectations failed:"),
    ],
)
def test_expectations_are_counted_as_people_count(held: int, failed: int, said: str) -> None:
    expectations = [{"step": "steps[0]", "ok": number >= failed} for number in range(held + failed)]
    assert render(report(expectations=expectations)).startswith(said)
