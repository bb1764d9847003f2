"""Uses a release as its users do: from a clean virtual environment, and from the root file system of the image."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
STORY = ROOT / "examples/tutorials/resource-policy"


class CheckFailed(Exception):
    """A check of the release failed; the message says which."""


def check_in_environment(wheel: Path, version: str, python: str = sys.executable) -> None:
    """Installs the wheel with the locked versions into an empty environment, and runs its programs there."""
    with tempfile.TemporaryDirectory(prefix="wharfinger-release-") as folder:
        base = Path(folder)
        programs = base / "environment/bin"
        _run([python, "-m", "venv", str(base / "environment")])
        pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--only-binary", ":all:", "--require-hashes", "-r", str(ROOT / "requirements.lock")])
        _run([*pip, "--no-deps", str(wheel)])
        _use([str(programs / "wharf")], version, STORY, base)
        if f"wharf {version}" not in _run([str(programs / "kubectl-wharf"), "version"], base):
            raise CheckFailed("kubectl-wharf does not tell the version")
        if "explain" not in _run([str(programs / "kubectl_complete-wharf"), "ex"], base):
            raise CheckFailed("kubectl_complete-wharf completes nothing")


def unpack_image(archive: Path, root: Path) -> None:
    """Puts the layers of an OCI archive over each other, as a container runtime does."""
    with tarfile.open(archive) as image:

        def read(name: str) -> IO[bytes]:
            found = image.extractfile(name)
            assert found is not None
            return found

        def blob(descriptor: dict[str, Any]) -> IO[bytes]:
            return read(f"blobs/{descriptor['digest'].replace(':', '/')}")

        manifest = json.load(blob(json.load(read("index.json"))["manifests"][0]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=blob(layer)) as files:
                files.extractall(root, filter="tar")


def check_in_root(root: Path, version: str) -> None:
    """Runs the command in a root file system, as the container does; needs to be root."""
    story = root / "tmp/story"
    story.mkdir(parents=True, exist_ok=True)
    for file in STORY.glob("*.yaml"):
        (story / file.name).write_bytes(file.read_bytes())
    program = next((path for path in ("usr/local/bin/wharf", "usr/bin/wharf", "opt/wharfinger/bin/wharf") if (root / path).exists()), None)  # fmt: skip
    if program is None:
        raise CheckFailed(f"there is no wharf in {root}")
    _use(["chroot", "--userspec=65532:65532", str(root), f"/{program}"], version, Path("/tmp/story"), ROOT)


def _use(wharf: Sequence[str], version: str, story: Path, folder: Path) -> None:
    if _run([*wharf, "version"], folder) != f"wharf {version}\n":
        raise CheckFailed(f"{wharf[-1]} version does not say {version}")
    simulated = _run([*wharf, "simulate", "-f", f"{story}/cluster.yaml", "-f", f"{story}/policy.yaml"], folder)
    if "shop/web   static   10         4      4" not in simulated:
        raise CheckFailed(f"a simulation gives another outcome:\n{simulated}")
    for command in (["up", "--help"], ["scheduler", "--help"], ["webhook", "--help"], ["crds", "-o", "json"]):
        _run([*wharf, *command], folder)


def _run(command: Sequence[str], folder: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise CheckFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
