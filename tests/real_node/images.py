"""Images made of busybox and given files, for machines that reach no registry."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

IMAGE = "wharfinger.test/busybox:1"


def busybox() -> Path | None:
    found = shutil.which("busybox")
    return Path(found) if found and b"ld-linux" not in Path(found).read_bytes()[:4096] else None


def digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


@dataclass(frozen=True)
class Image:
    """Its only layer, a tar archive, and its configuration, a JSON document."""

    layer: bytes
    config: bytes

    def save(self, path: Path, *names: str) -> None:
        """In the layout of `docker save`."""
        manifest = [{"Config": "config.json", "RepoTags": names, "Layers": ["layer.tar"]}]
        contents = {
            "config.json": self.config,
            "layer.tar": self.layer,
            "manifest.json": json.dumps(manifest).encode(),
        }
        with tarfile.open(path, "w") as tar:
            for name, content in contents.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))


def make_image(files: Mapping[str, Path] | None = None, **settings: Any) -> Image:
    """Its command sleeps unless the settings name another, so that it can be the pause image, too."""
    layer = _layer(files or {})
    config = {
        "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sleep", "1000000"], **settings},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
    }
    return Image(layer, json.dumps(config).encode())


def _layer(files: Mapping[str, Path]) -> bytes:
    program = busybox()
    assert program is not None
    applets = subprocess.run([program, "--list"], check=True, capture_output=True, text=True, timeout=60).stdout.split()
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "tmp", "etc", "proc", "sys", "dev", "www"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        tar.add(program, "bin/busybox")
        for applet in applets:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            if applet != "busybox":
                tar.addfile(entry)
        for name, file in files.items():
            tar.add(file, name)
    return layer.getvalue()
