"""What a wheel and an sdist must have, and must not have."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

PAGE = "wharfinger/dashboard/static/index.html"
_NEEDED = (
    "wharfinger/py.typed",
    "wharfinger/cli/main.py",
    PAGE,
    *(f"wharfinger/systems/{name}/__init__.py" for name in ("placement", "reservation", "resource_class")),
    *(f"wharfinger/systems/{name}/__init__.py" for name in ("resource_policy", "scheduling_policy")),
)
_SOURCES = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "requirements.lock",
    "mkdocs.yml",
    "docs/README.md",
)
# Caches, environments and results: never wanted. Tests and the rest of the sources: not in a wheel.
_RUBBISH = re.compile(r"(^|/)(__pycache__|node_modules|\.venv[^/]*|\.mypy_cache|\.ruff_cache|\.cache|\.hypothesis|\.wharf|build|dist)/|\.pyc$|\.db(-wal|-shm)?$")  # fmt: skip
_NOT_IN_WHEELS = re.compile(r"^(tests|docs|scripts|examples|scenarios|web|charts)/")
_SCRIPTS = ("wharf = ", "kubectl-wharf = ", "kubectl_complete-wharf = ")


def faults_of_wheel(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        programs = next((archive.read(name).decode() for name in names if name.endswith("/entry_points.txt")), "")
    faults = [f"{name} is missing" for name in _NEEDED if name not in names]
    faults += [
        f"{name} does not belong there" for name in names if _RUBBISH.search(name) or _NOT_IN_WHEELS.search(name)
    ]
    faults += [f"the program {script.removesuffix(' = ')} is missing" for script in _SCRIPTS if script not in programs]
    return [f"{wheel.name}: {fault}" for fault in faults]


def faults_of_sdist(sdist: Path) -> list[str]:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    needed = [*(f"src/{name}" for name in _NEEDED), *_SOURCES]
    faults = [f"{name} is missing" for name in needed if name not in names]
    faults += [f"{name} does not belong there" for name in _rubbish(names)]
    return [f"{sdist.name}: {fault}" for fault in faults]


def _rubbish(names: Iterable[str]) -> list[str]:
    # Data files that tests read are wanted.
    return [name for name in names if _RUBBISH.search(name) and not name.startswith("tests/")]
