"""Progress of long operations on standard error, if it is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE = 0.7  # seconds before anything is shown
_BETWEEN = 0.1  # seconds between updates
_WIDTH = 30


class Progress:
    """Redraws one line; `clear` removes it so that other output can follow."""

    def __init__(self) -> None:
        self._drawn = False
        self._next_drawing = time.monotonic() + _PATIENCE

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next_drawing:
            return
        self._next_drawing = now + _BETWEEN
        filled = _WIDTH * done // total if total else 0
        bar = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {done}/{total}" if total else f"{done}"
        sys.stderr.write(f"\r\033[K{what} {bar}")
        sys.stderr.flush()
        self._drawn = True

    def clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._drawn = False


@contextmanager
def progress() -> Iterator[Progress | None]:
    """The callback for progress; None if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    told = Progress()
    try:
        yield told
    finally:
        told.clear()
