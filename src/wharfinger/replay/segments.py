"""The files of a recording: rows are appended to a journal, one JSON line each, which is turned into a Parquet file when
it is full. What a killed recorder left is read as far as it is whole, and continued.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from wharfinger.replay.extras import require_extra
from wharfinger.simulate.inputs import BadInput

if TYPE_CHECKING:
    import polars as pl

JOURNAL = "journal.jsonl"
SEGMENT = "events-%06d.parquet"
SEGMENTS = "events-*.parquet"
ROWS_PER_SEGMENT = 20_000
SCHEMA = ("time", "version", "type", "api_version", "kind", "namespace", "name", "uid", "object")


MARKS = ("started", "stopped", "listed")  # types of rows that are about the recorder, or a kind, and not an object


class RecordedRow(msgspec.Struct, array_like=True, frozen=True):
    """One change of an object, as it was seen. The object is JSON; it is empty for a deletion and for marks."""

    time: float  # when the recorder saw it, in seconds since the epoch
    version: int  # the resource version of the change; 0 if unknown
    type: str  # present, added, modified or deleted; or a mark
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    object: str = ""


class SegmentWriter:
    def __init__(self, folder: Path, rows: int = ROWS_PER_SEGMENT) -> None:
        """Continues what is in the folder."""
        require_extra("polars")
        self._folder = folder
        self._limit = rows
        folder.mkdir(parents=True, exist_ok=True)
        self._journal = folder / JOURNAL
        self._file: IO[bytes] = self._journal.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise BadInput([f"{folder}: another `wharf record` writes to it"]) from None
        self._count = _repair(self._journal)
        self._next = 1 + max((int(path.stem.rpartition("-")[2]) for path in folder.glob(SEGMENTS)), default=0)

    def write(self, row: RecordedRow) -> None:
        self._file.write(msgspec.json.encode(row) + b"\n")
        self._count += 1
        if self._count >= self._limit:
            self.rotate()

    def flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def rotate(self) -> None:
        """Makes the journal a Parquet file. It is renamed into place before the journal is emptied; a crash between the
        two is noticed by the reader, which skips a journal that begins like the last file."""
        self.flush()
        if not self._count:
            return
        path = self._folder / (SEGMENT % self._next)
        partial = path.with_suffix(".partial")
        _frame(_journal_rows(self._journal)).write_parquet(partial, compression="zstd")
        partial.replace(path)
        self._file.truncate(0)
        self._count, self._next = 0, self._next + 1

    def close(self) -> None:
        self.rotate()
        self._journal.unlink(missing_ok=True)
        self._file.close()

    def abandon(self) -> None:
        """Closes the journal as it is, as if the process were gone."""
        self._file.close()


def _repair(journal: Path) -> int:
    """Cuts off a last line that was not written completely; returns the number of lines."""
    if not journal.exists():
        return 0
    data = journal.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole != len(data):
        with journal.open("r+b") as file:
            file.truncate(whole)
    last = sorted(journal.parent.glob(SEGMENTS))
    if whole and last and _same_start(last[-1], data[:whole]):
        journal.write_bytes(b"")
        return 0
    return data.count(b"\n", 0, whole)


def _same_start(segment: Path, data: bytes) -> bool:
    import polars as pl

    frame = pl.read_parquet(segment, n_rows=1)
    return bool(frame.height) and RecordedRow(*frame.row(0)) == msgspec.json.decode(
        data.split(b"\n", 1)[0], type=RecordedRow
    )


def _frame(rows: list[RecordedRow]) -> pl.DataFrame:
    import polars as pl

    schema = {name: pl.Float64 if name == "time" else pl.Int64 if name == "version" else pl.String for name in SCHEMA}
    return pl.DataFrame([msgspec.structs.astuple(row) for row in rows], schema=schema, orient="row")


def _journal_rows(journal: Path) -> list[RecordedRow]:
    decode = msgspec.json.Decoder(RecordedRow).decode
    with journal.open("rb") as file:
        return [decode(line) for line in file if line.endswith(b"\n")]


def recorded_rows(folder: Path) -> Iterator[tuple[str, RecordedRow]]:
    """All rows in the order in which they were written, each with the place it is at. Raises ValueError, with the
    place, for one that cannot be read."""
    require_extra("polars")
    import polars as pl

    first: RecordedRow | None = None
    for path in sorted(folder.glob(SEGMENTS)):
        try:
            frame = pl.read_parquet(path, columns=list(SCHEMA))
        except (OSError, pl.exceptions.PolarsError) as error:
            raise ValueError(f"{path}: cannot be read: {error}") from error
        for index, values in enumerate(frame.iter_rows()):
            row = RecordedRow(*values)
            first = row if index == 0 else first
            yield f"{path}: row {index + 1}", row
    journal = folder / JOURNAL
    if journal.exists():
        decode = msgspec.json.Decoder(RecordedRow).decode
        with journal.open("rb") as file:
            for index, line in enumerate(file):
                if not line.endswith(b"\n"):
                    return  # still being written
                try:
                    row = decode(line)
                except msgspec.DecodeError as error:
                    raise ValueError(f"{journal}: line {index + 1}: {error}") from error
                if index == 0 and row == first:
                    return  # this is the last file, which could not be removed from the journal any more
                yield f"{journal}: line {index + 1}", row
