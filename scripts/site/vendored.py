"""Scripts that the theme loads from a content delivery network, put into the site instead."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

_REGISTRY = "https://registry.npmjs.org"
_FOLDER = "assets/javascripts"
_MERMAID = '"https://unpkg.com/mermaid@12/dist/mermaid.min.js"'
# The address of a file next to the theme's own script.
_LOCAL = """new URL("mermaid.min.js",document.querySelector("script[src*='javascripts/bundle']").src).href"""


class SiteError(Exception):
    """The site cannot be built; the message says why."""


@dataclass(frozen=True)
class _Package:
    name: str
    version: str
    integrity: str  # sha512 of the package, as in a package lock
    path: str  # of the script inside it
    file: str  # its name in the site

    @property
    def address(self) -> str:
        return f"{_REGISTRY}/{self.name}/-/{self.name}-{self.version}.tgz"


_PACKAGES = (
    _Package(
        "mermaid",
        "12.3.0",
        "4113TdXeLAsMruJ79OpFL5O8+LTFXhQqZ260rF3tgUmiNAtRm4Uume04I+65PRN6yZ69J4f8rVYWW8zRk65UYw==",
        "package/dist/mermaid.min.js",
        "mermaid.min.js",
    ),
    _Package(
        "iframe-worker",
        "1.0.4",
        "roeaaI+Lg1LJNfgpCjoRe/+WzEjy9+Z08LoEvu85MCPbBjwm+qXz8Ag5U05lHa6V1CysZyGzE0SOkAtSUA5q7Q==",
        "package/shim/index.js",
        "iframe-worker-shim.js",
    ),
)


def add_scripts(site: Path) -> None:
    """Puts the scripts into a built site, and lets the theme load its pictures' script from there."""
    for package in _PACKAGES:
        (site / _FOLDER / package.file).write_bytes(_script(package))
    bundles = list((site / _FOLDER).glob("bundle.*.js"))
    texts = {path: path.read_text(encoding="utf-8") for path in bundles}
    found = [path for path, text in texts.items() if text.count(_MERMAID) == 1]
    if not found:
        raise SiteError("the theme loads Mermaid in another way than scripts/site/vendored.py knows")
    for path in found:
        path.write_text(texts[path].replace(_MERMAID, _LOCAL), encoding="utf-8")


def _script(package: _Package) -> bytes:
    cached = _cache() / f"{package.name}-{package.version}.js"
    if not cached.exists():
        content = _inside(package, _download(package))
        cached.parent.mkdir(parents=True, exist_ok=True)
        cached.write_bytes(content)
    return cached.read_bytes()


def _download(package: _Package) -> bytes:
    try:
        with urllib.request.urlopen(package.address, timeout=60) as answer:
            content: bytes = answer.read()
    except OSError as error:
        raise SiteError(f"{package.address}: {error}; the npm registry is needed once") from error
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != package.integrity:
        raise SiteError(f"{package.address} is not what it was: its checksum differs")
    return content


def _inside(package: _Package, archive: bytes) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        member = opened.extractfile(package.path)
        assert member is not None
        return member.read()


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "wharfinger" / "site"
