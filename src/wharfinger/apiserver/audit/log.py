"""The audit log file: written by a thread in batches, rotated by size, with old files removed by age and number.

Rotated files are named like those of kube-apiserver: `audit-2026-01-01T00-00-00.000.log`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Generic, TypeVar

log = logging.getLogger(__name__)

STDOUT = "-"
_DELAY = 0.2  # seconds from an event to its write: how much is written at once, and lost in a crash
_BATCH = 2_000  # events that are handed over without delay
_PENDING = 100_000  # events that may wait for a slow disk; more are dropped, and counted
_MB = 1024 * 1024
_DAY = 86_400.0

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class AuditLogSettings:
    """`path` is a file, or `-` for the standard output. The limits are those of kube-apiserver; 0 is no limit, for the size
    100 MB."""

    path: str
    max_size: int = 0  # megabytes of the file before it is rotated
    max_backups: int = 0  # rotated files to keep
    max_age: int = 0  # days to keep rotated files


class AuditLog(Generic[E]):
    """`add` is called in the event loop; `encode` runs in the thread and returns the lines of an event."""

    def __init__(self, settings: AuditLogSettings, encode: Callable[[E], bytes]) -> None:
        self._file = _RotatedFile(settings)
        self._encode = encode
        self._events: list[E] = []
        self._pending = 0  # events handed over and not written
        self._batches: SimpleQueue[list[E] | None] = SimpleQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self.dropped = 0
        self.failed = 0
        self._silent = False  # whether a failure has been logged

    def start(self) -> None:
        """Opens the file. Raises OSError."""
        self._file.open()
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)
        self._thread.start()

    def add(self, event: E) -> None:
        self._events.append(event)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DELAY, self._hand_over)
        elif len(self._events) >= _BATCH:
            self._timer.cancel()
            self._hand_over()

    def _hand_over(self) -> None:
        self._timer = None
        events, self._events = self._events, []
        if self._pending + len(events) > _PENDING:
            self.dropped += len(events)
            return
        self._pending += len(events)
        self._batches.put(events)

    async def stop(self) -> None:
        """Returns when everything is written."""
        if self._timer is not None:
            self._timer.cancel()
        self._hand_over()
        self._batches.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        self._file.close()

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            try:
                self._file.write([self._encode(event) for event in batch])
                self._silent = False
            except Exception as error:
                self.failed += len(batch)
                if not self._silent:
                    self._silent = True
                    log.error("cannot write the audit log: %s", error)
            self._pending -= len(batch)


class _RotatedFile:
    def __init__(self, settings: AuditLogSettings) -> None:
        self._path = Path(settings.path)
        self._standard = settings.path == STDOUT
        self._limit = (settings.max_size or 100) * _MB
        self._settings = settings
        self._file: BinaryIO | None = None
        self._size = 0

    def open(self) -> None:
        if self._standard:
            self._file = sys.stdout.buffer
            return
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._size = os.fstat(descriptor).st_size
        self._remove_old()

    def close(self) -> None:
        if self._file is not None and not self._standard:
            self._file.close()
        self._file = None

    def write(self, lines: Sequence[bytes]) -> None:
        start = 0
        while start < len(lines):
            end, size = start, 0
            while end < len(lines) and (self._standard or self._size + size + len(lines[end]) <= self._limit):
                size += len(lines[end])
                end += 1
            if end == start and self._size:  # the file is full
                self._rotate()
                continue
            end = max(end, start + 1)  # one event that is larger than the limit
            self._append(b"".join(lines[start:end]))
            start = end

    def _append(self, data: bytes) -> None:
        if self._file is None:
            self.open()
        assert self._file is not None
        view = memoryview(data)
        while view:
            written = self._file.write(view) or 0
            view = view[written:]
        self._size += len(data)
        if self._standard:
            self._file.flush()

    def _rotate(self) -> None:
        self.close()
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")[:-3]
        self._path.rename(self._backup(moment))
        self.open()

    def _backup(self, moment: str) -> Path:
        chosen = self._path.with_name(f"{self._path.stem}-{moment}{self._path.suffix}")
        number = 1
        while chosen.exists():  # several rotations within a millisecond
            chosen = self._path.with_name(f"{self._path.stem}-{moment}{number:03}{self._path.suffix}")
            number += 1
        return chosen

    def _remove_old(self) -> None:
        stem, suffix = self._path.stem, self._path.suffix
        backups = sorted(self._path.parent.glob(f"{stem}-[0-9][0-9][0-9][0-9]-*T*{suffix}"), reverse=True)
        kept = self._settings.max_backups
        oldest = time.time() - self._settings.max_age * _DAY
        for index, backup in enumerate(backups):
            aged = self._settings.max_age and backup.stat().st_mtime < oldest
            if (kept and index >= kept) or aged:
                backup.unlink(missing_ok=True)
