"""The parts of a release that are cheap to make: archives, checksums, notes, and the checks of contents."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from scripts.release.archives import files_of, sha256, write_archive, write_checksums, wrong_checksums
from scripts.release.build import Release, build_chart
from scripts.release.changelog import NoSection, section
from scripts.release.checks import unpack_image
from scripts.release.contents import PAGE, faults_of_sdist, faults_of_wheel

ROOT = Path(__file__).parents[2]
NEEDED = (
    "wharfinger/py.typed",
    "wharfinger/cli/main.py",
    PAGE,
    *(
        f"wharfinger/systems/{name}/__init__.py"
        for name in ("placement", "reservation", "resource_class", "resource_policy", "scheduling_policy")
    ),
)
PROGRAMS = "[console_scripts]\nkubectl-wharf = x:y\nkubectl_complete-wharf = x:y\nwharf = x:y\n"


def wheel(folder: Path, names: tuple[str, ...], programs: str = PROGRAMS) -> Path:
    path = folder / "wharfinger-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
        archive.writestr("wharfinger-1.2.3.dist-info/entry_points.txt", programs)
    return path


def test_a_whole_wheel_has_no_faults(tmp_path: Path) -> None:
    assert faults_of_wheel(wheel(tmp_path, NEEDED)) == []


@pytest.mark.parametrize(
    ("names", "programs", "fault"),
    [
        (tuple(name for name in NEEDED if name != PAGE), PROGRAMS, f"{PAGE} is missing"),
        ((*NEEDED, ".cache/x"), PROGRAMS, ".cache/x does not belong there"),
        ((*NEEDED, "tests/test_x.py"), PROGRAMS, "tests/test_x.py does not belong there"),
        ((*NEEDED, "wharfinger/__pycache__/x.pyc"), PROGRAMS, "wharfinger/__pycache__/x.pyc does not belong there"),
        (NEEDED, "wharf = x:y\nkubectl-wharf = x:y\n", "the program kubectl_complete-wharf is missing"),
    ],
)
def test_faults_of_a_wheel_are_named(tmp_path: Path, names: tuple[str, ...], programs: str, fault: str) -> None:
    found = wheel(tmp_path, names, programs)

    assert faults_of_wheel(found) == [f"{found.name}: {fault}"]


def test_an_sdist_without_the_page_or_with_an_environment_is_refused(tmp_path: Path) -> None:
    sources = (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "requirements.lock",
        "mkdocs.yml",
        "docs/README.md",
    )
    names = [*(f"src/{name}" for name in NEEDED), *sources, "tests/upgrades/state.db"]
    whole, broken = tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"
    write_archive(whole, {f"wharfinger-1.2.3/{name}": b"" for name in names}, 0)
    write_archive(broken, {f"wharfinger-1.2.3/{name}": b"" for name in [*names[3:], ".venv/bin/python"]}, 0)

    assert faults_of_sdist(whole) == []
    assert faults_of_sdist(broken) == [
        *(f"b.tar.gz: src/{name} is missing" for name in NEEDED[:3]),
        "b.tar.gz: .venv/bin/python does not belong there",
    ]


def test_archives_of_the_same_files_are_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "b").write_text("text")
        (folder / "a").write_text("#!/bin/sh\n")
        os.utime(folder / "a", (len(name), 5 if name == "one" else 6))
        write_archive(tmp_path / f"{name}.tar.gz", files_of(folder, "top/"), 1_700_000_000)

    assert sha256(tmp_path / "one.tar.gz") == sha256(tmp_path / "two.tar.gz")
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        entries = [(entry.name, entry.mode, entry.mtime, entry.uid) for entry in archive]
    assert entries == [("top/a", 0o755, 1_700_000_000, 0), ("top/inner/b", 0o644, 1_700_000_000, 0)]


def test_checksums_are_those_that_sha256sum_reads(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_text("a")
    (tmp_path / "b.tar.gz").write_text("b")
    write_checksums(tmp_path)

    assert wrong_checksums(tmp_path) == []
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)

    (tmp_path / "a.whl").write_text("changed")
    (tmp_path / "c").write_text("new")
    assert wrong_checksums(tmp_path) == ["a.whl", "c"]


def test_notes_are_the_section_of_the_version_or_what_is_unreleased() -> None:
    changelog = "# Changelog\n\n## Unreleased\n\n- New.\n\n## 0.2.0 (2026-12-01)\n\n- Second.\n\n## 0.1.0\n\n- First.\n"

    assert section(changelog, "0.2.0") == "## 0.2.0\n\n- Second.\n"
    assert section(changelog, "0.1.0") == "## 0.1.0\n\n- First.\n"
    assert section(changelog, "0.3.0") == "## 0.3.0\n\n- New.\n"
    with pytest.raises(NoSection, match=r"0\.3\.0"):
        section("# Changelog\n\n## 0.2.0\n\n- Second.\n", "0.3.0")


def test_the_changelog_has_notes_for_this_version() -> None:
    import wharfinger

    assert "- " in section((ROOT / "CHANGELOG.md").read_text(), wharfinger.__version__)


def test_the_layers_of_an_image_are_put_over_each_other(tmp_path: Path) -> None:
    blobs: dict[str, bytes] = {}

    def blob(content: bytes) -> dict[str, str]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}"}

    def layer(files: dict[str, bytes]) -> dict[str, str]:
        write_archive(tmp_path / "layer", files, 0)
        return blob((tmp_path / "layer").read_bytes())

    manifest = {"layers": [layer({"etc/a": b"old", "etc/b": b"b"}), layer({"etc/a": b"new", "usr/bin/x": b"#!x"})]}
    index = {"manifests": [blob(json.dumps(manifest).encode())]}
    write_archive(tmp_path / "image.tar", {**blobs, "index.json": json.dumps(index).encode()}, 0)

    unpack_image(tmp_path / "image.tar", tmp_path / "root")

    assert (tmp_path / "root/etc/a").read_text() == "new"
    assert (tmp_path / "root/etc/b").read_text() == "b"
    assert os.access(tmp_path / "root/usr/bin/x", os.X_OK)


def test_a_chart_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chart = tmp_path / "charts/wharfinger"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text('name: wharfinger\nversion: 1.2.3\nappVersion: "1.2.3"\n')
    (chart / "templates/x.yaml").write_text("x")
    monkeypatch.setattr("scripts.release.build.ROOT", tmp_path)

    build_chart(Release("1.2.3", 0, tmp_path))
    with tarfile.open(tmp_path / "wharfinger-1.2.3.tgz") as archive:
        assert archive.getnames() == ["wharfinger/Chart.yaml", "wharfinger/templates/x.yaml"]

    with pytest.raises(SystemExit, match=r"1\.2\.4"):
        build_chart(Release("1.2.4", 0, tmp_path))
