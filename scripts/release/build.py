"""Makes the parts of a release, each by the tool that makes it otherwise, too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.release.archives import files_of, write_archive

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Release:
    """A release in the making."""

    version: str
    epoch: int  # the time in archives
    folder: Path  # where its files go
    revision: str = ""  # the commit
    left_out: list[str] = field(default_factory=list)  # parts that could not be made here, and why

    def run(self, *command: str | Path) -> None:
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(self.epoch), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        subprocess.run([str(word) for word in command], cwd=ROOT, env=environment, check=True)

    def attempt(self, part: str, *command: str | Path) -> bool:
        """Runs a command whose failure leaves a part out."""
        try:
            self.run(*command)
        except (subprocess.CalledProcessError, OSError) as error:
            self.left_out.append(f"{part}: {error}")
            return False
        return True


def build_package(release: Release) -> tuple[Path, Path]:
    """The wheel and the sdist."""
    release.run(sys.executable, "scripts/web.py", "--required")
    release.run(ROOT / ".venv-release/bin/hatchling", "build", "-d", release.folder, "-t", "sdist", "-t", "wheel")
    stem = f"wharfinger-{release.version}"
    return release.folder / f"{stem}-py3-none-any.whl", release.folder / f"{stem}.tar.gz"


def build_site(release: Release) -> None:
    if release.attempt("site", sys.executable, "-m", "scripts.site"):
        stem = f"wharfinger-{release.version}-site"
        write_archive(release.folder / f"{stem}.tar.gz", files_of(ROOT / "build/site", f"{stem}/"), release.epoch)


def build_man_pages(release: Release) -> None:
    folder = ROOT / "build/man/man1"
    release.run(sys.executable, "-m", "scripts.reference", "--man", folder)
    files = files_of(folder, "share/man/man1/")
    write_archive(release.folder / f"wharfinger-{release.version}-man.tar.gz", files, release.epoch)


def build_chart(release: Release) -> None:
    chart = ROOT / "charts/wharfinger"
    if not chart.exists():
        release.left_out.append("chart: there is no charts/wharfinger")
        return
    versions = _chart_versions(chart / "Chart.yaml")
    if versions != {release.version}:
        raise SystemExit(f"{chart}/Chart.yaml names {sorted(versions)}, and the release is {release.version}")
    target = release.folder / f"wharfinger-{release.version}.tgz"
    write_archive(target, files_of(chart, "wharfinger/"), release.epoch)


def _chart_versions(path: Path) -> set[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {line.partition(":")[2].strip(' "') for line in lines if line.startswith(("version:", "appVersion:"))}


def build_image(release: Release, wheel: Path) -> None:
    if not (ROOT / "scripts/image").exists():
        release.left_out.append("image: there is no scripts/image")
        return
    command = (sys.executable, "-m", "scripts.image", "--output", release.folder, "--wheel", wheel)
    release.attempt("image", *command, *(("--revision", release.revision) if release.revision else ()))


def packages_of(release: Release) -> Sequence[Path]:
    return sorted(path for path in release.folder.iterdir() if path.is_file())
