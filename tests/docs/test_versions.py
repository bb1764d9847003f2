"""Kubernetes' version: everything that names it names the same."""

from __future__ import annotations

import re
from pathlib import Path

from wharfinger.api.kubernetes_version import REFERENCE, RELEASES

ROOT = Path(__file__).resolve().parents[2]


def test_the_programs_of_the_real_cluster_tier_are_those_of_the_reference() -> None:
    release = RELEASES[REFERENCE]
    pinned = (ROOT / "tests/kubernetes/binaries/go.mod").read_text()
    assert f"require k8s.io/kubernetes v{release}\n" in pinned
    staging = re.findall(r"^\tk8s\.io/\S+ => k8s\.io/\S+ (\S+)$", pinned, re.MULTILINE)
    assert set(staging) == {f"v0{release.removeprefix('1')}"}


def test_every_version_has_recorded_answers_and_is_documented() -> None:
    files = [path.name for path in (ROOT / "tests/fidelity/cases").iterdir()]
    documented = (ROOT / "docs/configuration.md").read_text()
    for version, release in RELEASES.items():
        assert any(f"kube-scheduler-{release}." in name for name in files)
        assert f'`"{version}"`' in documented


def test_pages_name_releases_that_are_followed() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {found for page in pages for found in re.findall(r"v1\.\d+\.\d+\b", page.read_text())}
    assert named - {"v1.38.0"} <= {f"v{release}" for release in RELEASES.values()}
    for page in ("README.md", "docs/concepts.md", "docs/kubernetes.md", "docs/conformance.md"):
        assert f"v{RELEASES[REFERENCE]}" in (ROOT / page).read_text(), page
