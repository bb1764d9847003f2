"""The files of the image, as three trees that become its layers: Debian, locked dependencies, Wharfinger.

What seldom changes comes first, so that an upgrade fetches only the last one.
"""

from __future__ import annotations

import configparser
import email
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scripts.image import debian, inside
from scripts.image.debian import PYTHON, BuildError, DebianPackage

SITE = f"usr/local/lib/{PYTHON}/dist-packages"
_DROPPED_FOLDERS = ("__pycache__", "bin", "include", "test", "tests")
_DROPPED_PATHS = ("numpy/_pyinstaller", "numpy/distutils", "numpy/doc", "numpy/f2py")
_DROPPED_SUFFIXES = (".a", ".c", ".cpp", ".h", ".hpp", ".pxd", ".pyi", ".pyx", ".pyx.in")
# What pip writes about the machine that installed, and for uninstalling.
_DROPPED_METADATA = ("INSTALLER", "RECORD", "REQUESTED", "WHEEL", "direct_url.json")


@dataclass(frozen=True, slots=True)
class PythonPackage:
    name: str
    version: str
    license: str


class ImagePython:
    """The Python of the tree of Debian's packages, run by its own loader with its own libraries."""

    def __init__(self, root: Path, *sites: Path) -> None:
        (loader,) = root.glob("usr/lib*/ld-linux-*.so.*")
        libraries = next(path.parent for path in root.glob("usr/lib/*/libc.so.6"))
        self._command = [str(loader), "--inhibit-cache", "--library-path", str(libraries)]
        self._command.append(str(root / "usr/bin" / PYTHON))
        self._sites = sites

    def run(self, *arguments: str | Path, **environment: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
        made = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": ":".join(map(str, self._sites))}
        done = subprocess.run(
            [*self._command, "-s", *map(str, arguments)],
            env={**kept, **made, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BuildError(f"the image's Python failed: {done.stderr.strip()[-2000:] or done.stdout.strip()}")
        return done.stdout


@dataclass(frozen=True, slots=True)
class Layer:
    digest: str  # of the compressed layer
    size: int
    diff_id: str  # digest of the unpacked layer
    unpacked: int


@dataclass(frozen=True, slots=True)
class Trees:
    folder: Path
    debian_packages: list[DebianPackage]
    python_packages: list[PythonPackage]

    @property
    def layers(self) -> list[Path]:
        return [self.folder / name for name in ("debian", "dependencies", "application")]

    def python(self) -> ImagePython:
        return ImagePython(self.layers[0], *(tree / SITE for tree in self.layers[1:]))


def lay_out(folder: Path, project: Path, wheel: Path | None = None) -> Trees:
    """Makes the trees in an empty folder."""
    root = folder / "debian"
    root.mkdir(parents=True)
    packages = debian.unpack(debian.fetch(folder), root)
    debian.complete(root)
    python = ImagePython(root)
    install(python, folder / "dependencies" / SITE, "--require-hashes", "-r", project / "requirements.lock")
    with tempfile.TemporaryDirectory() as built:
        install(python, folder / "application" / SITE, wheel or build_wheel(project, Path(built)))
    _commands(folder / "application")
    compile_trees(python, *(folder / name for name in ("debian", "dependencies", "application")))
    found = [*_installed(folder / "dependencies" / SITE), *_installed(folder / "application" / SITE)]
    trees = Trees(folder, packages, found)
    trees.python().run("-c", _CHECK)
    return trees


def build_wheel(project: Path, target: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(target), str(project)]
    if subprocess.run(command, check=False).returncode:
        raise BuildError("the wheel cannot be built")
    (wheel,) = target.glob("*.whl")
    return wheel


def install(python: ImagePython, site: Path, *wanted: str | Path) -> None:
    """Installs wheels into a folder, with the pip that runs here, and removes what no program needs."""
    import pip

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pip").symlink_to(Path(pip.__file__).parent)
        arguments = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--no-deps"]
        arguments += ["--only-binary=:all:", "--no-warn-script-location", "--root-user-action=ignore"]
        python.run(*arguments, f"--target={site}", *wanted, PYTHONPATH=folder)
    prune(site)


def prune(site: Path) -> None:
    for path in sorted(site.rglob("*"), reverse=True):
        inside_site = str(path.relative_to(site))
        if path.is_dir() and not path.is_symlink():
            if path.name in _DROPPED_FOLDERS or inside_site in _DROPPED_PATHS:
                shutil.rmtree(path)
        elif path.name.endswith(_DROPPED_SUFFIXES) or (
            path.parent.name.endswith(".dist-info") and path.name in _DROPPED_METADATA
        ):
            path.unlink()


def _commands(tree: Path) -> None:
    """The commands of the package, each a few lines for the image's Python."""
    (points,) = (tree / SITE).glob("*.dist-info/entry_points.txt")
    parser = configparser.ConfigParser()
    parser.read(points)
    folder = tree / "usr/local/bin"
    folder.mkdir(parents=True)
    for name, target in parser["console_scripts"].items():
        module, _, function = target.partition(":")
        text = f"#!/usr/bin/python3\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def compile_trees(python: ImagePython, *trees: Path) -> None:
    for tree in trees:
        python.run(inside.__file__, "compile", tree)


def _installed(site: Path) -> list[PythonPackage]:
    found = []
    for path in sorted(site.glob("*.dist-info/METADATA")):
        metadata = email.message_from_string(path.read_text())
        stated = metadata["License-Expression"] or metadata["License"] or ""
        found.append(PythonPackage(metadata["Name"], metadata["Version"], stated.strip().partition("\n")[0]))
    return found


def pack(trees: Trees, folder: Path, epoch: int) -> list[Layer]:
    """A blob for each layer, named by its digest."""
    return [pack_layer(trees.python(), tree, folder, epoch) for tree in trees.layers]


def pack_layer(python: ImagePython, tree: Path, folder: Path, epoch: int) -> Layer:
    partial = folder / tree.name
    described = json.loads(python.run(inside.__file__, "pack", tree, partial, str(epoch)))
    layer = Layer(**described)
    partial.rename(folder / layer.digest.removeprefix("sha256:"))
    return layer


# Every module that is linked with a library, and every command, has to start.
_CHECK = """
import bz2, ctypes, hashlib, lzma, sqlite3, ssl, uuid, zoneinfo, zlib
import aiohttp, cel_expr_python, cryptography.x509, google.protobuf, grpc, httptools, msgspec, numpy, re2, uvloop, yaml, zstandard
from click.testing import CliRunner
from wharfinger.cli.main import wharf
for command in ("scheduler", "controllers", "webhook", "placement", "dashboard", "install"):
    done = CliRunner().invoke(wharf, [command, "--help"])
    assert done.exit_code == 0, (command, done.output, done.exception)
"""
