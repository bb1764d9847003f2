"""Completion with live names, in a shell and by kubectl for the plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.apiserver.running import ROOT, Api
from tests.support import require

from wharfinger.cli import completing

POD = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
STATE = str(ROOT / "examples/tutorials/scheduling-policy")
PATIENT = 60.0  # seconds: a busy machine may need more than the time that a user has

Offered = Callable[..., list[str]]


@pytest.fixture(scope="module")
def namespace(api: Api) -> str:
    found = api.namespace()
    for name in ("web-0", "web-1", "db-0"):
        api.create(f"/api/v1/namespaces/{found}/pods", {"metadata": {"name": name}, **POD})
    return found


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], api: Api) -> Offered:
    """What is printed for kubectl after these words."""
    monkeypatch.setattr(completing, "SECONDS", PATIENT)

    def ask(*words: str, kubeconfig: str = str(api.kubeconfig)) -> list[str]:
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        monkeypatch.setattr(sys, "argv", ["kubectl_complete-wharf", *words])
        completing.kubectl_main()
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.splitlines()

    return ask


def test_names_are_those_of_the_cluster(namespace: str, offered: Offered) -> None:
    assert offered("explain", "pod", f"{namespace}/we") == [f"{namespace}/web-0", f"{namespace}/web-1", ":4"]
    assert {f"{namespace}/web-0", f"{namespace}/db-0"} <= set(offered("explain", "pod", ""))
    assert offered("explain", "pod", "-n", namespace, "") == ["db-0", "web-0", "web-1", ":4"]
    assert offered("migrate", "pod", "-n", namespace, "d") == ["db-0", ":4"]
    assert offered("reserve", "-n", namespace, "deployment/") == [":4"]
    assert namespace in offered("explain", "pod", "-n", "t-")


def test_a_cluster_that_cannot_be_reached_offers_nothing(offered: Offered, tmp_path: Path) -> None:
    assert offered("explain", "pod", "", kubeconfig=str(tmp_path / "none")) == [":4"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("explain", "pod", "-f", STATE, ""), ["databases/postgres", "shop/intruder", ":4"]),
        (("explain", "pod", "-f", STATE, "-n", "shop", ""), ["intruder", ":4"]),
        (("explain", "pod", "-f", f"{STATE}/no-such-file", ""), [":4"]),
        (("plan", "--cluster", f"{STATE}/cluster.yaml", "--drain", "d"), ["db-1", ":4"]),
        (("explain", "workload", "deployment", "-f", STATE, ""), [":4"]),
        (("version", "-o", ""), ["text", "json", "yaml", ":4"]),
        (("reserve", "st"), ["statefulset/", ":6"]),  # no space after a part of a name
        (("migrate", ""), ["pod", ":4"]),
        (("simulate", "-f", ""), [":0"]),  # the shell completes files
        (("ver",), ["version\tPrint the version.", ":4"]),
    ],
)
def test_names_in_files_values_and_commands_are_completed(
    words: tuple[str, ...], expected: list[str], offered: Offered
) -> None:
    assert offered(*words) == expected


def test_contexts_are_completed(api: Api, offered: Offered) -> None:
    found = offered("explain", "pod", "--kubeconfig", str(api.kubeconfig), "--context", "")

    assert found == ["admin@wharfinger", ":4"]


def test_kubectl_completes_the_plugin_with_live_names(api: Api, namespace: str, tmp_path: Path) -> None:
    kubectl = require("kubectl")
    for name in ("kubectl-wharf", "kubectl_complete-wharf"):
        program = tmp_path / name
        program.write_text(
            f"#!{sys.executable}\n"
            "from wharfinger.cli import completing\n"
            f"completing.SECONDS = {PATIENT}\n"
            "completing.kubectl_main()\n"
        )
        program.chmod(0o755)

    done = subprocess.run(
        [kubectl, "__complete", "wharf", "explain", "pod", f"{namespace}/web"],
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "KUBECONFIG": str(api.kubeconfig),
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
    )

    assert done.stdout.splitlines() == [f"{namespace}/web-0", f"{namespace}/web-1", ":4"], done.stderr
