"""Printing: aligned tables, JSON and YAML, colour only where it is wanted."""

from __future__ import annotations

import io
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from wharfinger.cli.options import cluster_options, open_client, output_option
from wharfinger.cli.output import as_json, as_yaml, emit, paint, table


def test_a_table_is_aligned_as_kubectl_does() -> None:
    rows = [("web-1", 2, True), ("database", None, "")]
    assert table(["name", "ready", "done"], rows) == (
        "NAME       READY    DONE\nweb-1      2        true\ndatabase   <none>   <none>"
    )


def test_colour_does_not_count_for_the_width() -> None:
    styled = click.style("ok", fg="green")
    assert table(["a", "b"], [(styled, "x"), ("long", "y")]).splitlines()[1] == f"{styled}     x"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "env", "coloured"),
    [
        (Terminal(), {}, True),
        (io.StringIO(), {}, False),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (Terminal(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour(stream: io.StringIO, env: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert (paint("x", "red", stream=stream) != "x") is coloured


def test_json_and_yaml_keep_the_order_of_keys() -> None:
    value = {"kind": "A", "apiVersion": "v1", "items": [1, "é"]}
    assert (
        as_json(value)
        == '{\n    "kind": "A",\n    "apiVersion": "v1",\n    "items": [\n        1,\n        "é"\n    ]\n}'
    )
    assert as_yaml(value) == "kind: A\napiVersion: v1\nitems:\n- 1\n- é"


@click.command
@cluster_options
@output_option("json", "yaml", default="yaml")
def show(kubeconfig: str | None, context: str | None, output: str) -> None:
    access = open_client(kubeconfig, context).access
    emit({"server": access.server, "context": access.context}, output, kind="Answer")


def test_the_shared_options_lead_to_a_cluster(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(
        "clusters: [{name: c, cluster: {server: 'http://one'}}, {name: d, cluster: {server: 'http://two'}}]\n"
        "contexts: [{name: one, context: {cluster: c}}, {name: two, context: {cluster: d}}]\ncurrent-context: one\n"
    )
    run = CliRunner()
    assert run.invoke(show, ["--kubeconfig", str(file)]).output == (
        "apiVersion: wharfinger.dev/v1alpha1\nkind: Answer\nserver: http://one\ncontext: one\n"
    )
    told = run.invoke(show, ["--kubeconfig", str(file), "--context", "two", "-o", "json"])
    assert told.output == (
        '{\n    "apiVersion": "wharfinger.dev/v1alpha1",\n    "kind": "Answer",\n'
        '    "server": "http://two",\n    "context": "two"\n}\n'
    )
    wrong = run.invoke(show, ["--kubeconfig", str(file), "--context", "three"])
    assert wrong.exit_code == 2
    assert wrong.output == f'Error: {file}: contexts: no context named "three" (known: one, two)\n'
