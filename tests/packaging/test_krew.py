"""The kubectl plugin of a release: the manifest, and what the launcher runs."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from scripts.release.archives import sha256
from scripts.release.krew import write_plugin

ROOT = Path(__file__).parents[2]


@pytest.fixture
def plugin(tmp_path: Path) -> tuple[Path, Path]:
    wheel = tmp_path / "wharfinger-1.2.3-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    return write_plugin(tmp_path, wheel, ROOT / "LICENSE", "1.2.3", 0, "https://example.com/v1.2.3/")


def test_the_manifest_names_the_archive_with_its_checksum(plugin: tuple[Path, Path]) -> None:
    archive, manifest = plugin
    document = yaml.safe_load(manifest.read_text())
    (platform,) = document["spec"]["platforms"]

    assert document["metadata"] == {"name": "wharf"}
    assert document["spec"]["version"] == "v1.2.3"
    assert platform["uri"] == "https://example.com/v1.2.3/kubectl-wharf-1.2.3.tar.gz"
    assert platform["sha256"] == sha256(archive)
    with tarfile.open(archive) as opened:
        assert platform["bin"] in opened.getnames()
        assert "LICENSE" in opened.getnames()


@pytest.mark.parametrize(
    ("there", "run"),
    [
        (("wharf", "uv", "pipx"), "wharf explain pod a b"),
        (("uv", "pipx"), "uv tool run --quiet --from {folder}/wharfinger-1.2.3-py3-none-any.whl wharf explain pod a b"),
        (("pipx",), "pipx run --spec {folder}/wharfinger-1.2.3-py3-none-any.whl wharf explain pod a b"),
    ],
)
def test_the_launcher_runs_what_is_there(
    plugin: tuple[Path, Path], tmp_path: Path, there: tuple[str, ...], run: str
) -> None:
    folder, programs = tmp_path / "store", tmp_path / "bin"
    programs.mkdir()
    with tarfile.open(plugin[0]) as archive:
        archive.extractall(folder, filter="data")
    (programs / "kubectl-wharf").symlink_to(folder / "kubectl-wharf")  # as Krew does
    for name in there:
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (programs / name).chmod(0o755)

    done = subprocess.run(
        [programs / "kubectl-wharf", "explain", "pod", "a b"],
        env={"PATH": f"{programs}:{_tools(tmp_path)}"},
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stdout.strip()) == (0, run.format(folder=folder))


def test_without_any_of_them_the_launcher_says_what_it_needs(plugin: tuple[Path, Path], tmp_path: Path) -> None:
    with tarfile.open(plugin[0]) as archive:
        archive.extractall(tmp_path / "store", filter="data")

    done = subprocess.run(
        [tmp_path / "store/kubectl-wharf"], env={"PATH": _tools(tmp_path)}, capture_output=True, text=True
    )

    assert done.returncode == 127
    assert "needs wharf, uv or pipx" in done.stderr


def _tools(folder: Path) -> str:
    """A folder with the few programs that the launcher itself uses."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("dirname", "readlink", "sh"):
        path = next(Path(each) / name for each in os.defpath.split(":") if (Path(each) / name).exists())
        (tools / name).symlink_to(path)
    return str(tools)
