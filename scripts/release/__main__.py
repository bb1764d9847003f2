"""`make release`: builds everything that a release consists of, and checks it."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts import wheels
from scripts.release import build
from scripts.release.archives import write_checksums, wrong_checksums
from scripts.release.changelog import NoSection, section
from scripts.release.checks import CheckFailed, check_in_environment, check_in_root, unpack_image
from scripts.release.contents import faults_of_sdist, faults_of_wheel
from scripts.release.krew import write_plugin

import wharfinger

ADDRESS = "https://wharfinger.dev/releases"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.release", description=__doc__)
    parser.add_argument("--output", type=Path, default=build.ROOT / "dist/release", help="folder for the files")
    parser.add_argument("--address", default=ADDRESS, help="where the files will be served (default: %(default)s)")
    parser.add_argument("--complete", action="store_true", help="fail if a part cannot be built here")
    options = parser.parse_args()
    try:
        release = make(options.output.resolve(), options.address)
    except (CheckFailed, NoSection) as error:
        print(f"The release is not usable: {error}", file=sys.stderr)
        return 1
    for path in build.packages_of(release):
        print(f"{path.stat().st_size:>12,}  {path.name}")
    for part in release.left_out:
        print(f"left out: {part}")
    return 1 if options.complete and release.left_out else 0


def make(folder: Path, address: str) -> build.Release:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    version = wharfinger.__version__
    release = build.Release(version, _epoch(), folder, _git("rev-parse", "HEAD"))
    wheel, sdist = build.build_package(release)
    faults = faults_of_wheel(wheel) + faults_of_sdist(sdist)
    if faults:
        raise CheckFailed("\n  ".join(["wrong contents:", *faults]))
    build.build_man_pages(release)
    build.build_site(release)
    build.build_chart(release)
    build.build_image(release, wheel)
    write_plugin(folder, wheel, build.ROOT / "LICENSE", version, release.epoch, f"{address}/v{version}")
    notes = section((build.ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    (folder / "CHANGES.md").write_text(notes, encoding="utf-8")
    write_checksums(folder)
    if missing := wheels.faults():
        raise CheckFailed("\n  ".join(["dependencies without wheels:", *missing]))
    check_in_environment(wheel, version)
    _check_image(release)
    if wrong := wrong_checksums(folder):
        raise CheckFailed(f"checksums differ: {', '.join(wrong)}")
    return release


def _check_image(release: build.Release) -> None:
    archives = list(release.folder.glob("*-image*.tar"))
    if not archives:
        return
    if os.geteuid() != 0:
        release.left_out.append("check of the image: only root can change the root file system")
        return
    with tempfile.TemporaryDirectory(prefix="wharfinger-root-") as folder:
        Path(folder).chmod(0o755)  # the command runs as another user
        unpack_image(archives[0], Path(folder))
        check_in_root(Path(folder), release.version)


def _epoch() -> int:
    return int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct") or 0)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=build.ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main())
