"""Progress of long work on a terminal's standard error; silent everywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE = 0.7  # seconds before anything is shown: short work needs no bar
_BETWEEN = 0.1  # seconds between two drawings
_WIDTH = 30


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """Gives a function (what, done, total) that draws one line and takes it away at the end; none where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    drawn, next_drawing = False, time.monotonic() + _PATIENCE

    def tell(what: str, done: int, total: int) -> None:
        nonlocal drawn, next_drawing
        now = time.monotonic()
        if now < next_drawing:
            return
        next_drawing = now + _BETWEEN
        filled = _WIDTH * done // total if total else 0
        bar = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {done}/{total}" if total else f"{done}"
        sys.stderr.write(f"\r\033[K{what} {bar}")
        sys.stderr.flush()
        drawn = True

    try:
        yield tell
    finally:
        if drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
