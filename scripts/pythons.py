"""Runs a part of the tests on every Python that Wharfinger supports, as far as it can be had: `make test-pythons`.

An interpreter is looked for on the PATH and in pyenv, and downloaded with uv otherwise. One that cannot be had is skipped
with a line.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TESTS = ("tests/cli", "tests/store", "tests/api", "tests/engine", "tests/simulate", "tests/systems", "tests/upgrades")


def main(arguments: list[str]) -> int:
    tests = arguments or [path for path in TESTS if (ROOT / path).exists()]
    failed, skipped = [], []
    for version in PYTHONS:
        python = find(version)
        if python is None:
            skipped.append(version)
            print(f"Python {version}: skipped, there is none and none could be downloaded", flush=True)
            continue
        print(f"Python {version}: {python}", flush=True)
        if not passes(environment(version, python), tests):
            failed.append(version)
    passed = [version for version in PYTHONS if version not in failed and version not in skipped]
    print(f"passed: {', '.join(passed) or 'none'}; failed: {', '.join(failed) or 'none'}; skipped: {', '.join(skipped) or 'none'}")  # fmt: skip
    return 1 if failed or not passed else 0


def find(version: str) -> str | None:
    """An interpreter of this version: on the PATH, of pyenv, or downloaded by uv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    known = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")), reverse=True)]
    found = next((each for each in known if each is not None and is_version(each, version)), None)
    return found or download(version)


def is_version(python: str, version: str) -> bool:
    told = subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
    )
    return told.stdout.strip() == version


def download(version: str) -> str | None:
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None or subprocess.run([uv, "python", "install", "--quiet", version], capture_output=True).returncode:
        return None
    found = subprocess.run([uv, "python", "find", "--no-project", version], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


def environment(version: str, python: str) -> Path:
    """The interpreter of an environment with the locked versions, which is kept in the cache."""
    lock = ROOT / "requirements-dev.lock"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wharfinger/pythons"
    folder = base / f"{version}-{digest}"
    inside = folder / "bin/python"
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", folder], check=True)
        pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--only-binary", ":all:", "--require-hashes", "-r", lock], check=True)
        (folder / ".ready").touch()
    # The package itself is that of this folder; entry points are read from its metadata.
    subprocess.run([inside, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", ROOT], check=True)
    return inside


def passes(python: Path, tests: list[str]) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run([python, "-m", "pytest", "-n", "2", "--dist", "worksteal", *tests], cwd=ROOT, env=environment)
    return run.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
