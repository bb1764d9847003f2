"""Traces as tables: a folder with `trace.yaml`, which maps columns to fields, and the tables as Parquet or CSV files.

A row that cannot be true is refused. All such rows are listed, each with its file and line; none is dropped silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from wharfinger.api.times import BadTime, parse_time
from wharfinger.replay.extras import require_extra
from wharfinger.simulate.inputs import BadInput

if TYPE_CHECKING:
    import polars as pl

API_VERSION, KIND = "wharfinger.dev/v1alpha1", "Trace"
FILE = "trace.yaml"
TABLES, CSV, EVENTS = "tables", "csv", "k8s-events"  # formats; the first two are the same
FORMATS = (TABLES, CSV, EVENTS)
FIELDS = {
    "nodes": ("name", "from", "to", "price", "allocatable", "labels", "taints", "devices", "manifest"),
    "work": (
        "name",
        "namespace",
        "arrival",
        "submitted",
        "run_time",
        "departure",
        "stopping",
        "phase",
        "preempted",
        "priority",
        "owner",
        "workload",
        "requests",
        "labels",
        "devices",
        "manifest",
        "node",
        "bound",
        "present",
    ),
    "objects": ("time", "deleted", "manifest"),
}
REQUIRED = {"nodes": ("name",), "work": ("name", "arrival"), "objects": ("manifest",)}
MAPS = ("allocatable", "labels", "requests", "devices")  # fields whose parts may be columns: `requests.cpu`
MOST_PROBLEMS = 10_000
_DEFAULT_START = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class TableMapping:
    """How one table is read: its files, which column a field is in, units to append, and fields with one value."""

    files: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """What `trace.yaml` says."""

    format: str
    start: float
    tables: Mapping[str, TableMapping]
    document: Mapping[str, Any]


class TraceRow:
    """One row of a table. A field that is read wrongly is reported once and read as None."""

    def __init__(self, values: dict[str, Any], where: str, problems: list[str]) -> None:
        self._values = values
        self.where = where
        self._problems = problems

    def refuse(self, message: str) -> None:
        self._problems.append(f"{self.where}: {message}")

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def text(self, name: str, default: str = "") -> str:
        found = self._values.get(name)
        return default if found is None else str(found)

    def number(self, name: str) -> float | None:
        found = self._values.get(name)
        if found is None:
            return None
        try:
            number = float(found)
        except (TypeError, ValueError):
            number = float("nan")
        if number != number or number in (float("inf"), float("-inf")):
            self.refuse(f"{name}: {found!r} is not a number")
            return None
        return number

    def flag(self, name: str) -> bool:
        found = str(self._values.get(name) or "").strip().lower()
        if found not in ("", "true", "false", "0", "1"):
            self.refuse(f"{name}: {found!r} is neither true nor false")
        return found in ("true", "1")

    def time(self, name: str, start: float) -> float | None:
        """Seconds since the epoch, of RFC 3339 text or of seconds since the start of the trace."""
        found = self._values.get(name)
        if isinstance(found, str) and "T" in found:
            try:
                return parse_time(found)
            except BadTime as error:
                self.refuse(f"{name}: {error}")
                return None
        seconds = self.number(name)
        if seconds is not None and seconds < 0:
            self.refuse(f"{name}: {seconds:g} s is before the start of the trace")
            return None
        return None if seconds is None else start + seconds

    def mapping(self, name: str) -> dict[str, Any]:
        """The JSON object in the column, and the columns of its parts."""
        found = self.json(name, dict)
        parts = {
            key.removeprefix(f"{name}."): value
            for key, value in self._values.items()
            if key.startswith(f"{name}.") and value is not None
        }
        return {**(found or {}), **parts}

    def json(self, name: str, type: type[Any]) -> Any:
        found = self._values.get(name)
        if found is None or isinstance(found, type):
            return found
        try:
            return msgspec.json.decode(str(found), type=type)
        except msgspec.DecodeError as error:
            self.refuse(f"{name}: not JSON of the right kind: {error}")
            return None


def is_trace(folder: Path) -> bool:
    return (folder / FILE).is_file()


def read_header(folder: Path) -> TraceHeader:
    """Raises BadInput if the folder is not a trace."""
    path = folder / FILE
    if not folder.is_dir():
        raise BadInput([f"{folder}: no such folder"])
    if not path.is_file():
        raise BadInput([f"{folder}: there is no {FILE}, so it is not a trace"])
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput([f"{path}: not YAML: {error}"]) from error
    return _header(path, document)


def _header(path: Path, document: Any) -> TraceHeader:
    problems: list[str] = []
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != (API_VERSION, KIND):
        raise BadInput([f"{path}: not a {KIND} of {API_VERSION}"])
    known = ("apiVersion", "kind", "format", "start", "tables", "kubernetesVersion", "configuration", "prices")
    problems += [f"{path}: {key}: unknown field" for key in document if key not in known]
    form = document.get("format", TABLES)
    if form not in FORMATS:
        problems.append(f"{path}: format: {form!r} is unknown; there are {', '.join(FORMATS)}")
    start = 0.0
    try:
        given = document.get("start", _DEFAULT_START)
        start = given.timestamp() if hasattr(given, "timestamp") else parse_time(str(given))
    except BadTime as error:
        problems.append(f"{path}: start: {error}")
    tables: dict[str, TableMapping] = {}
    if form != EVENTS:
        given = document.get("tables")
        if not isinstance(given, dict):
            problems.append(f"{path}: tables: missing; it says where the tables {', '.join(FIELDS)} are")
        for name, mapping in given.items() if isinstance(given, dict) else ():
            _add_table(path, str(name), mapping, tables, problems)
        if isinstance(given, dict):
            problems += [f"{path}: tables.{name}: missing" for name in ("nodes", "work") if name not in given]
    if problems:
        raise BadInput(problems)
    return TraceHeader(str(form), start, tables, document)


def _add_table(path: Path, name: str, mapping: Any, tables: dict[str, TableMapping], problems: list[str]) -> None:
    where = f"{path}: tables.{name}"
    if name not in FIELDS:
        problems.append(f"{where}: unknown table; there are {', '.join(FIELDS)}")
        return
    if not isinstance(mapping, dict):
        problems.append(f"{where}: not a mapping with `files`")
        return
    parts: dict[str, dict[str, Any]] = {}
    for part in ("columns", "units", "constants"):
        given = mapping.get(part) or {}
        if not isinstance(given, dict):
            problems.append(f"{where}.{part}: not a mapping")
            given = {}
        parts[part] = {str(key): value for key, value in given.items()}
        problems += [f"{where}.{part}: {key} is not a field" for key in parts[part] if not is_field(name, key)]
    problems += [
        f"{where}: {key}: unknown field" for key in mapping if key not in ("files", "columns", "units", "constants")
    ]
    files = mapping.get("files")
    names = [files] if isinstance(files, str) else files
    if not isinstance(names, list) or not names:
        problems.append(f"{where}.files: missing")
        return
    tables[name] = TableMapping(
        tuple(str(each) for each in names),
        {key: str(value) for key, value in parts["columns"].items()},
        {key: str(value) for key, value in parts["units"].items()},
        parts["constants"],
    )


def is_field(table: str, name: str) -> bool:
    return name in FIELDS[table] or any(name.startswith(f"{each}.") and each in FIELDS[table] for each in MAPS)


def rows_of(folder: Path, table: str, mapping: TableMapping, problems: list[str]) -> Iterator[TraceRow]:
    """The rows of all files of a table, with the fields under their own names."""
    for path, frame in frames(folder, mapping.files, problems):
        columns = _columns(path, table, mapping, frame.columns, problems)
        if columns is None:
            continue
        number = _numbers(path, frame)
        for index, values in enumerate(frame.iter_rows(named=True)):
            found = dict(mapping.constants)
            for name, column in columns.items():
                value = values[column]
                if value is not None:
                    unit = mapping.units.get(name)
                    found[name] = f"{value}{unit}" if unit else value
            row = TraceRow(found, f"{path}: {number(index)}", problems)
            for name in REQUIRED[table]:
                if not row.has(name):
                    row.refuse(f"{name}: missing")
            yield row


def _columns(
    path: Path, table: str, mapping: TableMapping, present: list[str], problems: list[str]
) -> dict[str, str] | None:
    """By field, the column that has it: as mapped, or the one of the same name."""
    lacking = [column for column in mapping.columns.values() if column not in present]
    if lacking:
        problems.append(f"{path}: there is no column {', '.join(sorted(lacking))}; there are {', '.join(present)}")
        return None
    used = set(mapping.columns.values())
    found = {column: column for column in present if column not in used and is_field(table, column)}
    return {**found, **mapping.columns}


def frames(folder: Path, patterns: tuple[str, ...], problems: list[str]) -> Iterator[tuple[Path, pl.DataFrame]]:
    """The files that the patterns name, in order."""
    require_extra("polars")
    import polars as pl

    for pattern in patterns:
        paths = sorted(folder.glob(pattern)) if not Path(pattern).is_absolute() else [Path(pattern)]
        if not paths:
            problems.append(f"{folder / pattern}: no such file")
        for path in paths:
            try:
                if path.suffix == ".parquet":
                    yield path, pl.read_parquet(path)
                else:
                    # Everything is read as text: what a column of numbers cannot hold is then refused by its line.
                    yield path, pl.read_csv(path, infer_schema=False, raise_if_empty=False)
            except (OSError, pl.exceptions.PolarsError) as error:
                problems.append(f"{path}: cannot be read: {error}")


def _numbers(path: Path, frame: pl.DataFrame) -> Any:
    """What a row is called in messages: the line of a CSV file, or the row where lines and rows are not the same."""
    if path.suffix != ".parquet":
        with path.open("rb") as file:
            lines = sum(1 for line in file if line.strip())
        if lines == frame.height + 1:
            return lambda index: f"line {index + 2}"
    return lambda index: f"row {index + 1}"
