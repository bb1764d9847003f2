"""Where the tier against a real Kubernetes takes its programs from, and what it says where there are none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")


def find(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """On a machine without Go, with nothing built before."""
    clean = {key: value for key, value in os.environ.items() if key not in ("KUBEBUILDER_ASSETS", "WHARF_REQUIRE")}
    return subprocess.run(
        [sys.executable, "-m", "tests.kubernetes.binaries"],
        env={**clean, "PATH": str(folder), "XDG_CACHE_HOME": str(folder), **env},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def assets(folder: Path, *names: str) -> str:
    (folder / "assets").mkdir()
    for name in names:
        (folder / "assets" / name).touch(mode=0o755)
    return str(folder / "assets")


def test_assets_that_are_complete_are_used_as_they_are(tmp_path: Path) -> None:
    done = find(tmp_path, KUBEBUILDER_ASSETS=assets(tmp_path, *PROGRAMS), WHARF_REQUIRE="kubernetes")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (None, "no kube-apiserver, kube-controller-manager, kube-scheduler, kubectl: set KUBEBUILDER_ASSETS"),
        (("etcd", "kube-apiserver", "kubectl"), "no kube-controller-manager, kube-scheduler: set KUBEBUILDER_ASSETS"),
        (("kube-apiserver",), "but there is no etcd in it"),
    ],
)
def test_without_assets_and_go_one_line_says_that_the_tier_is_skipped_unless_it_must_run(
    tmp_path: Path, there: tuple[str, ...] | None, said: str
) -> None:
    env = {} if there is None else {"KUBEBUILDER_ASSETS": assets(tmp_path, *there)}
    done = find(tmp_path, **env)
    (line,) = done.stdout.splitlines()
    assert done.returncode == 75
    assert line.startswith("Skipped the tests against a real Kubernetes: ") and said in line
    required = find(tmp_path, **env, WHARF_REQUIRE="kubectl, kubernetes")
    assert required.returncode == 1 and said in required.stderr
