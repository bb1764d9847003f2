"""The data file: objects as rows in SQLite, with a write-ahead log that is synced to disk before a commit returns.

A file that is damaged, has another schema or belongs to another program is rejected and left unchanged. Only one process
at a time may open it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from threading import Lock
from typing import IO

from wharfinger.store.ledger import CommitListener, Row

APPLICATION_ID = 0x57484152  # "WHAR"
SCHEMA = 1
_MAGIC = b"SQLite format 3\0"

_TABLES = """
CREATE TABLE objects (
    created INTEGER PRIMARY KEY,  -- the version at which the object was created: unique over all kinds
    version INTEGER NOT NULL,
    grp TEXT NOT NULL,
    plural TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    uid TEXT NOT NULL,
    data BLOB NOT NULL,
    sum INTEGER NOT NULL
);
CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL);
INSERT INTO state VALUES (1, 1);
"""
_ROWS_PER_STATEMENT = 64
_RESTORE_SHIFT = 32  # bits; each start reserves 2³² versions for the case that an older copy is restored


@cache
def _put(rows: int) -> str:
    return f"INSERT OR REPLACE INTO objects VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?, ?)'] * rows)}"


class DataFileError(Exception):
    """The data file cannot be used and was not changed; the message gives the reason and the remedy."""


class DataFile:
    """The back end of one data file. Commits run one after another in a separate thread."""

    durable_at_once = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = _lock(path)
        try:
            if not path.exists():
                _make(path)
            self._connection = _open(path)
            self._starts, noted = _starts(path, self._connection)
            self._restored = noted > self._starts
            self._starts = max(self._starts, noted) + 1
        except BaseException:
            self._lock.close()
            raise
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._guard = Lock()  # guards the fields below
        self._queue: list[tuple[Sequence[Row], int]] = []
        self._busy = False  # the thread is running and will check the queue again
        self._broken = False  # a commit failed, and the listener has not called `resume` yet

    def load(self) -> tuple[int, Iterator[Row]]:
        try:
            # Removals leave no row, so they record the last version in `state`; other rows contain it.
            (version,) = self._connection.execute(
                "SELECT max(version, (SELECT ifnull(max(version), 0) FROM objects)) FROM state"
            ).fetchone()
        except (sqlite3.DatabaseError, TypeError) as error:
            self.close()
            raise _damaged(self.path, str(error)) from None
        if self._restored:
            version = max(version, self._starts << _RESTORE_SHIFT)
        return version, self._rows(version)

    def _rows(self, version: int) -> Iterator[Row]:
        seen = set()
        try:
            for values in self._connection.execute("SELECT * FROM objects ORDER BY created"):
                *fields, total = values
                row = Row(*fields)
                key = (row.group, row.plural, row.namespace, row.name)
                if total != _sum(row) or key in seen:
                    raise sqlite3.DatabaseError(f"the row of {row.plural} {row.namespace}/{row.name} is wrong")
                seen.add(key)
                yield row
        except (sqlite3.DatabaseError, TypeError, AttributeError) as error:
            self.close()
            raise _damaged(self.path, str(error)) from None
        self._count_start(version)

    def _count_start(self, version: int) -> None:
        """Counts this start in the data file and in a second file beside it.

        A data file with fewer starts than the second file is a restored older copy. Its versions then continue above all
        versions ever used, so that watchers of the lost changes must relist.
        """
        connection, draft = self._connection, Path(f"{self.path}.starts.new")
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("CREATE TABLE IF NOT EXISTS starts (id INTEGER PRIMARY KEY, count INTEGER NOT NULL)")
            connection.execute("INSERT OR REPLACE INTO starts VALUES (1, ?)", (self._starts,))
            if self._restored:
                connection.execute("UPDATE state SET version = ?", (version,))
            connection.execute("COMMIT")
            draft.write_text(f"{self._starts}\n")
            _sync(draft)
            draft.rename(f"{self.path}.starts")
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise DataFileError(f"{self.path} cannot be written: {error}") from None

    def commit(self, rows: Sequence[Row], version: int, listener: CommitListener) -> None:
        with self._guard:
            if self._broken:
                return  # the listener is about to learn of the failure and rolls these rows back too
            self._queue.append((rows, version))
            if self._busy:
                return
            self._busy = True
        self._thread.submit(self._work, asyncio.get_running_loop(), listener)

    def _work(self, loop: asyncio.AbstractEventLoop, listener: CommitListener) -> None:
        """Commits everything queued in one transaction, until the queue is empty."""
        while True:
            with self._guard:
                queue, self._queue = self._queue, []
                if not queue:
                    self._busy = False
                    return
            rows = [row for given, _ in queue for row in given] if len(queue) > 1 else queue[0][0]
            try:
                self._write(rows, queue[-1][1])
            except OSError as error:
                with self._guard:
                    self._broken, self._busy, self._queue = True, False, []
                loop.call_soon_threadsafe(listener.failed, error)
                return
            loop.call_soon_threadsafe(listener.durable, queue[-1][1])

    def resume(self) -> None:
        with self._guard:
            self._broken = False

    def _write(self, rows: Sequence[Row], version: int) -> None:
        connection = self._connection
        try:
            if len(rows) <= _ROWS_PER_STATEMENT and all(row.data is not None for row in rows):
                # A single statement is a transaction of its own; this thread need not reacquire the GIL in between.
                connection.execute(_put(len(rows)), list(chain.from_iterable(map(_values, rows))))
                return
            connection.execute("BEGIN IMMEDIATE")
            # Consecutive puts are written together; a removal must not overtake an earlier put.
            for removals, run in groupby(rows, key=lambda row: row.data is None):
                if removals:
                    connection.executemany("DELETE FROM objects WHERE created = ?", [(row.created,) for row in run])
                else:
                    connection.executemany(_put(1), map(_values, run))
            connection.execute("UPDATE state SET version = ?", (version,))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise OSError(f"{self.path}: {error}") from error

    def close(self) -> None:
        self._thread.shutdown()
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
        self._lock.close()


def _values(row: Row) -> tuple[object, ...]:
    return (
        row.created,
        row.version,
        row.group,
        row.plural,
        row.namespace,
        row.name,
        row.uid,
        row.data,
        _sum(row),
    )


def _sum(row: Row) -> int:
    """A checksum of a row, which detects damage that SQLite's own checks cannot see."""
    head = f"{row.created}\0{row.version}\0{row.group}\0{row.plural}\0{row.namespace}\0{row.name}\0{row.uid}"
    return zlib.crc32(row.data or b"", zlib.crc32(head.encode()))


def _damaged(path: Path, why: str) -> DataFileError:
    return DataFileError(
        f"{path} is damaged and was left as it is ({why}); restore it from a backup, or move it away to start empty"
    )


def _lock(path: Path) -> IO[str]:
    """Locks a file beside the data file for this process; the lock ends with the process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        holder = Path(f"{path}.lock").open("a+", encoding="utf-8")  # noqa: SIM115 - held as long as the store
    except OSError as error:
        raise DataFileError(f"{path} cannot be opened: {error}") from None
    try:
        fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder.seek(0)
        owner = holder.read().strip()
        holder.close()
        by = f" (process {owner})" if owner else ""
        raise DataFileError(f"{path} is in use by another process{by}; stop that first") from None
    holder.seek(0)
    holder.truncate()
    holder.write(f"{os.getpid()}\n")
    holder.flush()
    return holder


def _make(path: Path) -> None:
    """Creates a new data file under a temporary name first, so that a crash never leaves an incomplete one."""
    draft = Path(f"{path}.new")
    for leftover in (draft, Path(f"{draft}-journal"), Path(f"{draft}-wal"), Path(f"{draft}-shm")):
        leftover.unlink(missing_ok=True)
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_TABLES)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.Error as error:
        raise DataFileError(f"{path} cannot be made: {error}") from None
    finally:
        connection.close()
    _sync(draft)
    draft.rename(path)
    _sync(path.parent)


def _starts(path: Path, connection: sqlite3.Connection) -> tuple[int, int]:
    """The number of starts, as recorded in the data file and in the file beside it."""
    try:
        row = connection.execute("SELECT count FROM starts").fetchone()
    except sqlite3.OperationalError:
        row = None  # a file from before starts were counted
    try:
        noted = int(Path(f"{path}.starts").read_text())
    except (OSError, ValueError):
        noted = 0
    return int(row[0]) if row is not None else 0, noted


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _open(path: Path) -> sqlite3.Connection:
    # Check the header first: SQLite would treat an empty file as a new database.
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except OSError as error:
        raise DataFileError(f"{path} cannot be opened: {error}") from None
    if head[: len(_MAGIC)] != _MAGIC:
        what = "is empty" if not head else "is not an SQLite file"
        raise DataFileError(f"{path} {what}, so it is no data file of Wharfinger; it was left as it is")
    if len(head) < 100 or int.from_bytes(head[68:72], "big") != APPLICATION_ID:
        raise DataFileError(f"{path} is an SQLite file of another program; it was left as it is")
    schema = int.from_bytes(head[60:64], "big")
    if schema > SCHEMA:
        raise DataFileError(
            f"{path} was written by a newer version of Wharfinger (data schema {schema}, and this one knows {SCHEMA}); "
            "it was left as it is: start the newer version, or restore a backup"
        )
    if schema < SCHEMA:
        raise DataFileError(
            f"{path} has data schema {schema}, which no version of Wharfinger wrote; it was left as it is"
        )
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise DataFileError(f"{path} cannot be opened: {error}") from None
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -16000")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        connection.execute("SELECT version FROM state")
        connection.execute("SELECT * FROM objects LIMIT 1")
    except sqlite3.OperationalError as error:
        connection.close()
        if "locked" in str(error):
            raise DataFileError(f"{path} is in use by another process; stop that first") from None
        raise _damaged(path, str(error)) from None
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _damaged(path, str(error)) from None
    return connection
