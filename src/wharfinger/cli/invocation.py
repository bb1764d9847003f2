"""How to call this installation of `wharf`, for hints that can be copied."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def folder_to_add() -> Path | None:
    """The folder of our commands, if it is not on the PATH."""
    folder = _folder()
    if folder is None:
        return None
    found = shutil.which("wharf")
    return None if found is not None and Path(found).resolve() == (folder / "wharf").resolve() else folder


def shown(command: str) -> str:
    """The command as a shell finds it: its name, or its relative path."""
    folder = folder_to_add()
    if folder is None:
        return command
    path = folder / command
    return min(os.path.relpath(path), str(path), key=len)


def _folder() -> Path | None:
    for place in (Path(sys.argv[0]).parent, Path(sys.executable).parent):
        if os.access(place / "wharf", os.X_OK):
            return place.absolute()
    return None
