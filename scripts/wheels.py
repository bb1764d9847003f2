"""Asks the package index whether every locked dependency has a wheel for each Python and platform: `make check-wheels`.

Then `pip`, `pipx` and `uv tool` install Wharfinger without a compiler.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
INDEX = "https://pypi.org/simple"
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))
GLIBC = 28  # 2.28: RHEL 8, Debian 10
MACOS = {"x86_64": (15, 0), "arm64": (14, 0)}


@dataclass(frozen=True)
class Target:
    """A Python on a platform."""

    python: tuple[int, int]
    system: str
    machine: str

    def __str__(self) -> str:
        return f"CPython {self.python[0]}.{self.python[1]} on {self.system} {self.machine}"

    def tags(self) -> set[Tag]:
        if self.system == "Linux":
            platforms = [f"manylinux_2_{minor}_{self.machine}" for minor in range(5, GLIBC + 1)]
            platforms += [f"manylinux{old}_{self.machine}" for old in ("1", "2010", "2014")]
        else:
            platforms = list(mac_platforms(MACOS[self.machine], self.machine))
        interpreter = f"cp{self.python[0]}{self.python[1]}"
        return {*cpython_tags(self.python, platforms=platforms), *compatible_tags(self.python, interpreter, platforms)}

    def environment(self) -> dict[str, str]:
        version = f"{self.python[0]}.{self.python[1]}"
        return {
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "python_version": version,
            "python_full_version": f"{version}.9",
            "sys_platform": "linux" if self.system == "Linux" else "darwin",
            "platform_system": "Linux" if self.system == "Linux" else "Darwin",
            "platform_machine": self.machine,
            "os_name": "posix",
        }


TARGETS = [
    Target(python, system, machine)
    for python in PYTHONS
    for system, machine in (("Linux", "x86_64"), ("Linux", "aarch64"), ("macOS", "x86_64"), ("macOS", "arm64"))
]


@dataclass(frozen=True)
class Locked:
    name: str
    version: str
    marker: str

    def wanted(self, target: Target) -> bool:
        return not self.marker or Marker(self.marker).evaluate(target.environment())


def locked(text: str) -> Iterator[Locked]:
    """The packages of a lock file."""
    for name, version, marker in re.findall(r"^([\w.-]+)==(\S+?)(?: ; (.+?))? \\$", text, re.MULTILINE):
        yield Locked(canonicalize_name(name), version, marker)


def missing(package: Locked, files: list[str]) -> list[Target]:
    """The targets for which no file of the package is a wheel."""
    tags: set[Tag] = set()
    for file in files:
        try:
            _, version, _, found = parse_wheel_filename(file)
        except InvalidWheelFilename:
            continue
        if version == Version(package.version):
            tags |= found
    return [target for target in TARGETS if package.wanted(target) and not tags & target.tags()]


def files_of(name: str) -> list[str]:
    """The files of a package, from the index as JSON or as a page."""
    request = urllib.request.Request(f"{INDEX}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5"})  # fmt: skip
    with urllib.request.urlopen(request, timeout=60) as answer:
        text, kind = answer.read().decode(), answer.headers.get_content_type()
    if kind.endswith("json"):
        return [file["filename"] for file in json.loads(text)["files"]]
    return re.findall(r">\s*([^<>\s]+\.(?:whl|tar\.gz|zip))\s*</a>", text)


def faults() -> list[str]:
    """A line for each wheel that is missing."""
    packages = list(locked((ROOT / "requirements.lock").read_text(encoding="utf-8")))
    with ThreadPoolExecutor(8) as pool:
        files = list(pool.map(lambda package: files_of(package.name), packages))
    return [
        f"{package.name} {package.version} has no wheel for {target}"
        for package, found in zip(packages, files, strict=True)
        for target in missing(package, found)
    ]


def main() -> int:
    found = faults()
    for fault in found:
        print(fault)
    print(f"{len(TARGETS)} targets, {len(found)} wheels missing")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
