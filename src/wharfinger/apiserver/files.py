"""Files of the data directory: written atomically and readable by their owner only."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def private_directory(path: Path) -> Path:
    """Creates the directory with mode 0700, or changes the mode of an existing one."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)
    return path


def write_private(path: Path, content: bytes | str) -> None:
    """Replaces the file atomically: readers, also after a crash, see either the old or the new content."""
    data = content.encode() if isinstance(content, str) else content
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()
        raise
