"""Completion with live names, in a shell and by kubectl for the plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.apiserver.running import ROOT, Api
from tests.support import require

POD = {"spec": {"containers": [{"name": "c", "image": "x"}]}}


@pytest.fixture(scope="module")
def namespace(api: Api) -> str:
    found = api.namespace()
    for name in ("web-0", "web-1", "db-0"):
        api.create(f"/api/v1/namespaces/{found}/pods", {"metadata": {"name": name}, **POD})
    return found


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with the programs that kubectl looks for."""
    for name, module in (("kubectl-wharf", "main:main"), ("kubectl_complete-wharf", "completing:kubectl_main")):
        module, _, function = module.partition(":")
        program = tmp_path / name
        program.write_text(f"#!{sys.executable}\nfrom wharfinger.cli.{module} import {function}\n{function}()\n")
        program.chmod(0o755)
    return tmp_path


def completed(programs: Path, *words: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [programs / "kubectl_complete-wharf", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_names_are_those_of_the_cluster(api: Api, namespace: str, programs: Path) -> None:
    def offered(*words: str) -> list[str]:
        return completed(programs, *words, KUBECONFIG=str(api.kubeconfig))

    assert offered("explain", "pod", f"{namespace}/we") == [f"{namespace}/web-0", f"{namespace}/web-1", ":4"]
    assert offered("explain", "pod", "-n", namespace, "") == ["db-0", "web-0", "web-1", ":4"]
    assert offered("migrate", "pod", "-n", namespace, "d") == ["db-0", ":4"]
    assert namespace in offered("explain", "pod", "-n", "t-")


def test_a_cluster_that_does_not_answer_offers_nothing(programs: Path, tmp_path: Path) -> None:
    assert completed(programs, "explain", "pod", "", KUBECONFIG=str(tmp_path / "none")) == [":4"]


def test_names_in_files_options_and_commands_are_completed(programs: Path) -> None:
    state = str(ROOT / "examples/tutorials/scheduling-policy")

    assert completed(programs, "explain", "pod", "-f", state, "") == ["databases/postgres", "shop/intruder", ":4"]
    assert completed(programs, "explain", "pod", "-f", state, "-n", "shop", "") == ["intruder", ":4"]
    assert completed(programs, "version", "-o", "") == ["text", "json", "yaml", ":4"]
    assert completed(programs, "reserve", "st") == ["statefulset/", ":6"], "no space after a part of a name"
    assert completed(programs, "simulate", "-f", "") == [":0"], "the shell completes files"
    assert [line.partition("\t")[0] for line in completed(programs, "ver")] == ["version", ":4"]
    assert completed(programs, "explain", "pod", "-f", str(ROOT / "no-such-file"), "") == [":4"]


def test_contexts_are_completed(api: Api, programs: Path) -> None:
    offered = completed(programs, "explain", "pod", "--kubeconfig", str(api.kubeconfig), "--context", "")
    assert offered == ["admin@wharfinger", ":4"]


def test_kubectl_completes_the_plugin_with_live_names(api: Api, namespace: str, programs: Path) -> None:
    kubectl = require("kubectl")
    done = subprocess.run(
        [kubectl, "__complete", "wharf", "explain", "pod", f"{namespace}/web"],
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "KUBECONFIG": str(api.kubeconfig),
            "HOME": str(programs),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.stdout.splitlines() == [f"{namespace}/web-0", f"{namespace}/web-1", ":4"], done.stderr
