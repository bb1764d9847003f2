"""The Go programs of these tests, built once and kept outside the tree: a client of Open Cluster Management's API, its hub,
and its integration specs of placement.

The specs start an API server and a controller of their own. They are built from a copy of the module in which
`hub/specs/` takes the place of what starts those, so that they run on a hub that is there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.kubernetes.binaries import NoBinaries

HERE = Path(__file__).resolve().parent
CLIENT, HUB, SPECS = "client", "hub", "specs.test"
SOURCES = {CLIENT: "client", HUB: "hub", SPECS: "hub"}
MODULE, API = "open-cluster-management.io/ocm", "open-cluster-management.io/api"
_UTIL = "test/integration/util"
REPLACED = {  # files of the copy
    "test/integration/placement/suite_test.go": "hub/specs/suite/suite_test.go",
    "pkg/placement/controllers/manager.go": "hub/specs/controllers/manager.go",
}
_KEPT_OF_UTIL = "recorder.go"  # all that the specs need; the others need programs of cloud providers


def version_of(module: str, folder: str) -> str:
    """The version that go.mod pins."""
    found = re.search(
        rf"^\s*(?:require )?{re.escape(module)} v(\S+)", (HERE / folder / "go.mod").read_text(), re.MULTILINE
    )
    assert found is not None, f"{folder}/go.mod does not require {module}"
    return found[1]


def find_or_build() -> dict[str, Path]:
    """The paths of all programs. Takes some minutes where they have to be built first."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wharfinger"
    folder = root / f"ocm-{version_of(MODULE, 'hub')}"
    paths = {name: folder / f"{name}-{_fingerprint(source)}" for name, source in SOURCES.items()}
    if all(path.exists() for path in paths.values()):
        return paths
    if shutil.which("go") is None:
        raise NoBinaries("no programs of Open Cluster Management: install Go to build them")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name, path in paths.items():
            if not path.exists():
                print(f"Building {name} (once; some minutes on two cores) ...", flush=True)
                _BUILDERS[name](folder / f"{name}.partial")
                for old in folder.glob(f"{name}-*"):
                    old.unlink()
                (folder / f"{name}.partial").replace(path)
    return paths


def definitions() -> list[Path]:
    """The files with the CustomResourceDefinitions of Open Cluster Management's cluster API."""
    return sorted((_source(API, "client") / "cluster").rglob("*.crd.yaml"))


def _fingerprint(source: str) -> str:
    """Of the Go files in a folder: programs that are not built from them are built again."""
    files = sorted(path for path in (HERE / source).rglob("*") if path.suffix in (".go", ".mod", ".sum"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(HERE)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _source(module: str, folder: str) -> Path:
    """Where the module cache has a module; go.sum of the folder says what it must be."""
    version = f"v{version_of(module, folder)}"
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{module}@{version}"],
        cwd=HERE / folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NoBinaries(f"{module} {version} could not be fetched: {done.stdout}{done.stderr}".strip())
    return Path(json.loads(done.stdout)["Dir"])


def _build_client(target: Path) -> None:
    _go(["build", "-o", str(target), "."], "client")


def _build_hub(target: Path) -> None:
    _go(["build", "-o", str(target), "."], "hub")


def _build_specs(target: Path) -> None:
    copy = target.with_suffix(".source")
    shutil.rmtree(copy, ignore_errors=True)
    try:
        shutil.copytree(_source(MODULE, "hub"), copy / "ocm", copy_function=shutil.copyfile)
        for path in (copy / "ocm" / _UTIL).glob("*.go"):
            if path.name != _KEPT_OF_UTIL:
                path.unlink()
        for path, ours in REPLACED.items():
            shutil.copyfile(HERE / ours, copy / "ocm" / path)
        (copy / "go.mod").write_text(f"{(HERE / 'hub/go.mod').read_text()}\nreplace {MODULE} => {copy / 'ocm'}\n")
        shutil.copyfile(HERE / "hub/go.sum", copy / "go.sum")
        _go(
            ["test", "-c", f"-modfile={copy / 'go.mod'}", "-o", str(target), f"{MODULE}/test/integration/placement"],
            "hub",
        )
    finally:
        shutil.rmtree(copy, ignore_errors=True)


_BUILDERS = {CLIENT: _build_client, HUB: _build_hub, SPECS: _build_specs}


def _go(arguments: list[str], folder: str) -> None:
    command = ["go", arguments[0], "-ldflags", "-s -w", *arguments[1:]]
    done = subprocess.run(command, cwd=HERE / folder, check=False)
    if done.returncode:
        raise NoBinaries(f"{' '.join(command[:2])} failed in tests/ocm/{folder} (exit code {done.returncode})")
