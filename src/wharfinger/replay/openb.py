"""Reads the `openb` traces: the nodes and pods of a production GPU cluster, as published with FGD (USENIX ATC'23).

A file of nodes has the columns sn, cpu_milli, memory_mib, gpu and model. A file of pods has name, cpu_milli, memory_mib,
num_gpu, gpu_milli (of each GPU), gpu_spec (allowed models, separated by `|`), creation_time, deletion_time and
scheduled_time. Rows that cannot be true are refused, all of them at once and with their lines.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wharfinger.plugins.device_packing.fragmentation import MOST_ASKED
from wharfinger.plugins.device_packing.rooms import WHOLE, PodDemand
from wharfinger.replay.extras import require_extra
from wharfinger.simulate.inputs import BadInput

if TYPE_CHECKING:
    import polars

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
_LARGEST = 1 << 53


class BadRow(NamedTuple):
    """A row that cannot be true; line 1 stands for the file as a whole."""

    file: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file}: line {self.line}: {self.problem}"


class OpenbNode(NamedTuple):
    name: str
    cpu: int  # millicores
    memory: int  # MiB
    devices: int
    model: str


class OpenbPod(NamedTuple):
    name: str
    demand: PodDemand
    memory: int  # MiB
    created: int | None  # seconds
    deleted: int | None
    scheduled: int | None


@dataclass(frozen=True, slots=True)
class OpenbTrace:
    nodes: Sequence[OpenbNode]
    pods: Sequence[OpenbPod]

    @property
    def capacity(self) -> int:
        """Thousandths of all devices."""
        return WHOLE * sum(node.devices for node in self.nodes)


def read_openb(nodes: Path, pods: Path) -> OpenbTrace:
    """Raises BadInput with every row that cannot be true, and OSError."""
    require_extra("polars")
    bad: list[BadRow] = []
    found_nodes = _nodes(_Table(nodes, NODE_COLUMNS, bad))
    models = {each.model for each in found_nodes}
    found_pods = _pods(_Table(pods, POD_COLUMNS, bad), models)
    if not bad and not found_nodes:
        bad.append(BadRow(str(nodes), 1, "there are no nodes"))
    if not bad and not found_pods:
        bad.append(BadRow(str(pods), 1, "there are no pods"))
    if bad:
        raise BadInput([str(each) for each in sorted(bad, key=lambda each: (each.file != str(nodes), each.line))])
    return OpenbTrace(found_nodes, found_pods)


class _Table:
    """A CSV file whose cells are text; faults are collected."""

    def __init__(self, path: Path, columns: Sequence[str], bad: list[BadRow]) -> None:
        self._path = str(path)
        self._bad = bad
        self.rows: list[tuple[int, dict[str, str]]] = []  # line, and cells by column
        frame = self._read(path)
        if frame is None:
            return
        missing = [each for each in columns if each not in frame.columns]
        if missing:
            self.refuse(1, f"no column {', '.join(missing)}")
            return
        cells = frame.select(*columns).iter_rows()
        for line, row in enumerate(cells, start=2):
            self.rows.append((line, {name: (cell or "").strip() for name, cell in zip(columns, row, strict=True)}))

    def _read(self, path: Path) -> polars.DataFrame | None:
        import polars

        try:
            return polars.read_csv(path, infer_schema=False, truncate_ragged_lines=False)
        except polars.exceptions.NoDataError:
            self.refuse(1, "the file is empty")
        except polars.exceptions.PolarsError as error:
            if not self._refuse_long(path):
                self.refuse(1, f"not a CSV file: {str(error).splitlines()[0]}")
        return None

    def _refuse_long(self, path: Path) -> bool:
        """Refuses the rows that have more cells than there are columns; returns whether there are any."""
        known = len(self._bad)
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            rows = csv.reader(file)
            columns = len(next(rows, ()))
            for row in rows:
                if len(row) > columns:
                    self.refuse(rows.line_num, f"{len(row)} cells, but there are {columns} columns")
        return len(self._bad) > known

    def refuse(self, line: int, problem: str) -> None:
        self._bad.append(BadRow(self._path, line, problem))


class _Row:
    """One row while it is checked."""

    def __init__(self, table: _Table, line: int, cells: dict[str, str]) -> None:
        self._table = table
        self._line = line
        self._cells = cells
        self.fine = True

    def refuse(self, problem: str) -> None:
        self._table.refuse(self._line, problem)
        self.fine = False

    def text(self, column: str) -> str:
        return self._cells[column]

    def number(self, column: str, most: int = _LARGEST) -> int:
        """A whole number that is not negative; 0 if it is refused."""
        found = self.optional(column, most)
        if found is None and not self._cells[column]:
            self.refuse(f"{column} is missing")
        return found or 0

    def optional(self, column: str, most: int = _LARGEST) -> int | None:
        cell = self._cells[column]
        if not cell:
            return None
        try:
            value = float(cell)
            whole = int(cell) if "." not in cell else int(value)
            if whole != value:
                raise ValueError
        except (ValueError, OverflowError):
            self.refuse(f"{column} is not a whole number: {cell}")
            return None
        if whole < 0:
            self.refuse(f"{column} is negative: {cell}")
        elif whole > most:
            self.refuse(f"{column} is more than {most}: {cell}")
        else:
            return whole
        return None

    def once(self, column: str, seen: dict[str, int]) -> str:
        """A name that no other row has."""
        name = self._cells[column]
        if not name:
            self.refuse(f"{column} is missing")
        elif name in seen:
            self.refuse(f"{column} {name} is that of line {seen[name]}, too")
        else:
            seen[name] = self._line
        return name


def _nodes(table: _Table) -> list[OpenbNode]:
    found: list[OpenbNode] = []
    seen: dict[str, int] = {}
    for line, cells in table.rows:
        row = _Row(table, line, cells)
        name = row.once("sn", seen)
        node = OpenbNode(
            name,
            row.number("cpu_milli"),
            row.number("memory_mib"),
            row.number("gpu", MOST_ASKED),
            row.text("model"),
        )
        if node.devices and not node.model:
            row.refuse("a node with GPUs has no model")
        if "|" in node.model:
            row.refuse(f"a node has more than one model: {node.model}")
        if row.fine:
            found.append(node)
    return found


def _pods(table: _Table, models: set[str]) -> list[OpenbPod]:
    found: list[OpenbPod] = []
    seen: dict[str, int] = {}
    for line, cells in table.rows:
        row = _Row(table, line, cells)
        name = row.once("name", seen)
        demand, memory = _demand(row, models), row.number("memory_mib")
        created, deleted = row.optional("creation_time"), row.optional("deletion_time")
        scheduled = row.optional("scheduled_time")
        _in_order(row, ("creation_time", created), ("scheduled_time", scheduled), ("deletion_time", deleted))
        if row.fine:
            found.append(OpenbPod(name, demand, memory, created, deleted, scheduled))
    return found


def _demand(row: _Row, models: set[str]) -> PodDemand:
    cpu, count, milli = row.number("cpu_milli"), row.number("num_gpu"), row.number("gpu_milli", WHOLE)
    allowed = {each for each in row.text("gpu_spec").split("|") if each}
    unknown = sorted(allowed - models)
    if unknown:
        row.refuse(f"gpu_spec names a model that no node has: {', '.join(unknown)}")
    if not row.fine:
        return PodDemand(cpu)
    if count and not milli:
        row.refuse(f"num_gpu is {count}, but gpu_milli is 0")
    elif not count and milli:
        row.refuse(f"gpu_milli is {milli}, but num_gpu is 0")
    elif count > 1 and milli < WHOLE:
        row.refuse(f"shares of several GPUs: num_gpu is {count} and gpu_milli {milli}")
    return PodDemand(cpu, count, milli, frozenset(allowed)) if count else PodDemand(cpu)


def _in_order(row: _Row, *times: tuple[str, int | None]) -> None:
    known = [(name, time) for name, time in times if time is not None]
    for (earlier, start), (later, end) in pairwise(known):
        if end < start:
            row.refuse(f"{later} {end} is before {earlier} {start}")
