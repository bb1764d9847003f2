"""What the image's own Python does with the image's files: compiles and packs. Imports nothing but the standard library."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import py_compile
import sys
import tarfile
from pathlib import Path


def compile_all(tree: Path) -> None:
    """Bytecode for every module: on a read-only file system none can be written later. It is never compared with the
    sources, whose times are those of the image."""
    for source in sorted(each for each in tree.rglob("*.py") if not each.is_symlink()):
        py_compile.compile(
            str(source),
            dfile=f"/{source.relative_to(tree)}",
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


class Digesting(io.RawIOBase):
    """Passes on what is written, and remembers its digest and length."""

    def __init__(self, target: io.IOBase) -> None:
        self._target = target
        self._digest = hashlib.sha256()
        self.length = 0

    @property
    def digest(self) -> str:
        return f"sha256:{self._digest.hexdigest()}"

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:  # type: ignore[no-untyped-def]
        self._digest.update(data)
        self.length += len(data)
        self._target.write(data)
        return len(data)


def pack(tree: Path, target: Path, epoch: int) -> dict[str, object]:
    """A compressed layer of the tree: entries in order, all of them root's and of one time."""
    with target.open("wb") as file:
        outer = Digesting(file)
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=outer, mtime=0) as compressed:
            inner = Digesting(compressed)
            with tarfile.open(fileobj=inner, mode="w|", format=tarfile.GNU_FORMAT) as tar:
                for path in sorted(tree.rglob("*")):
                    _add(tar, path, str(path.relative_to(tree)), epoch)
    return {"digest": outer.digest, "size": outer.length, "diff_id": inner.digest, "unpacked": inner.length}


def _add(tar: tarfile.TarFile, path: Path, name: str, epoch: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.mtime = epoch
    mode = path.lstat().st_mode
    if path.is_symlink():
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
        tar.addfile(entry)
    elif path.is_dir():
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if mode & 0o1000 else 0o755
        tar.addfile(entry)
    else:
        entry.size, entry.mode = path.stat().st_size, 0o755 if mode & 0o100 else 0o644
        with path.open("rb") as content:
            tar.addfile(entry, content)


if __name__ == "__main__":
    action, folder, *more = sys.argv[1:]
    if action == "compile":
        compile_all(Path(folder))
    else:
        print(json.dumps(pack(Path(folder), Path(more[0]), int(more[1]))))
