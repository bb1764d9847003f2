"""Archives that are the same for the same files: entries sorted, no owners, one time for all."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def files_of(folder: Path, prefix: str = "") -> dict[str, Path]:
    """All files of a folder by the name that they get in an archive."""
    return {prefix + str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def write_archive(target: Path, files: Mapping[str, Path | bytes], epoch: int) -> None:
    """Writes a .tar.gz with these files. Those that are executable stay executable."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, source in sorted(files.items()):
            content = source if isinstance(source, bytes) else source.read_bytes()
            executable = content.startswith(b"#!") or (isinstance(source, Path) and source.stat().st_mode & 0o100)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), epoch, 0o755 if executable else 0o644
            archive.addfile(entry, io.BytesIO(content))
    with target.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=epoch) as compressed:
        compressed.write(packed.getvalue())


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_checksums(folder: Path) -> Path:
    """Writes SHA256SUMS, which `sha256sum --check` reads, for every other file of the folder."""
    target = folder / "SHA256SUMS"
    files = sorted(path for path in folder.iterdir() if path.is_file() and path != target)
    target.write_text("".join(f"{sha256(path)}  {path.name}\n" for path in files), encoding="utf-8")
    return target


def wrong_checksums(folder: Path) -> list[str]:
    """Files of the folder that are not as SHA256SUMS says, or not in it."""
    lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    noted = {name: total for total, name in (line.split("  ", 1) for line in lines)}
    found = {path.name: sha256(path) for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS"}
    return sorted(name for name in noted.keys() | found.keys() if noted.get(name) != found.get(name))
