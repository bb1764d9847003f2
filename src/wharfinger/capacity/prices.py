"""The table of prices and start-up times of instance types: YAML or CSV, with the line of every fault."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wharfinger.api.names import qualified_name
from wharfinger.api.quantity import parse_nano
from wharfinger.api.times import BadTime, parse_duration
from wharfinger.api.yaml_reader import BadYaml, read

_COLUMNS = ("type", "group", "zone", "capacityType", "price", "startup")
_SIZES = ("cpu", "memory", "pods", "ephemeral-storage")
CAPACITY_TYPES = ("on-demand", "spot", "reserved")


class BadPrices(ValueError):
    """The table cannot be used; `problems` has a line for each fault."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


@dataclass(frozen=True, slots=True)
class PriceRow:
    """What a node costs per hour, and how long it takes to start. Empty columns hold for all."""

    line: int
    instance_type: str
    group: str
    zone: str
    capacity_type: str
    price: float
    startup: float | None = None  # seconds
    size: Mapping[str, str] = field(default_factory=dict)  # allocatable of a node; empty: not stated

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.instance_type, self.group, self.zone, self.capacity_type

    def holds_for(self, instance_type: str, group: str, zone: str, capacity_type: str) -> bool:
        asked = (instance_type, group, zone, capacity_type)
        return all(mine in ("", given) for mine, given in zip(self.key, asked, strict=True))

    @property
    def detail(self) -> tuple[bool, bool, bool, bool]:
        """A row with a group is more special than one without, and so on."""
        return bool(self.group), bool(self.instance_type), bool(self.zone), bool(self.capacity_type)


class PriceTable:
    def __init__(self, name: str, rows: Sequence[PriceRow]) -> None:
        self.name = name
        self.rows = list(rows)

    def find(self, instance_type: str, group: str = "", zone: str = "", capacity_type: str = "") -> PriceRow | None:
        """The most special row that holds for such a node."""
        found = [row for row in self.rows if row.holds_for(instance_type, group, zone, capacity_type)]
        return max(found, key=lambda row: row.detail, default=None)

    def types(self) -> list[str]:
        return sorted({row.instance_type for row in self.rows if row.instance_type})


def load_prices(path: str) -> PriceTable:
    """Raises BadPrices."""
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise BadPrices([f"{path}: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise BadPrices([f"{path}: not a text file"]) from error
    return read_prices(path, text)


def read_prices(name: str, text: str) -> PriceTable:
    """A table in YAML (a list of rows) or, if the name ends with `.csv`, in CSV. Raises BadPrices."""
    problems: list[str] = []
    rows: list[PriceRow] = []
    seen: dict[tuple[str, str, str, str], int] = {}
    for line, cells in _csv_rows(name, text) if name.endswith(".csv") else _yaml_rows(name, text):
        row, faults = _row(line, cells)
        problems += [f"{name}, line {line}: {fault}" for fault in faults]
        if row is None:
            continue
        if row.key in seen:
            problems.append(f"{name}, line {line}: the same node as in line {seen[row.key]}")
        seen.setdefault(row.key, line)
        rows.append(row)
    if problems:
        raise BadPrices(problems)
    if not rows:
        raise BadPrices([f"{name}: there is no row in it"])
    return PriceTable(name, rows)


def _csv_rows(name: str, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(io.StringIO(text))
    header: list[str] | None = None
    for cells in reader:
        cells = [cell.strip() for cell in cells]
        if not any(cells) or cells[0].startswith("#"):
            continue
        if header is None:
            header = cells
            if len(set(header)) < len(header):
                raise BadPrices([f"{name}, line {reader.line_num}: two columns have the same name"])
        elif len(cells) != len(header):
            number = f"{len(cells)} cells, but there are {len(header)} columns"
            raise BadPrices([f"{name}, line {reader.line_num}: {number}"])
        else:
            given = {column: cell for column, cell in zip(header, cells, strict=True) if cell}
            yield reader.line_num, given


def _yaml_rows(name: str, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        found = read(text, with_lines=True)
    except BadYaml as error:
        raise BadPrices([f"{name}, line {error.line}: {error}"]) from error
    if found.faults:
        raise BadPrices([f"{name}, line {line}: {message}" for line, _, message in found.faults])
    if not isinstance(found.value, list):
        raise BadPrices([f"{name}, line 1: must be a list of rows, each with a type and a price"])
    for index, row in enumerate(found.value):
        line = found.lines.get(f"[{index}]", 1)
        if not isinstance(row, dict):
            raise BadPrices([f"{name}, line {line}: must be a row with a type and a price, not {row!r}"])
        yield line, {str(column): cell for column, cell in row.items()}


def _row(line: int, cells: Mapping[str, Any]) -> tuple[PriceRow | None, list[str]]:
    faults = [f"unknown column {name!r}" for name in cells if name not in _COLUMNS and not _is_size(name)]
    texts = {name: str(cells.get(name) if cells.get(name) is not None else "") for name in _COLUMNS}
    if not texts["type"] and not texts["group"]:
        faults.append("needs a type or a group")
    if texts["capacityType"] and texts["capacityType"] not in CAPACITY_TYPES:
        faults.append(f"capacityType: must be one of {', '.join(CAPACITY_TYPES)}, not {texts['capacityType']!r}")
    price = _price(texts["price"], faults)
    startup = _startup(texts["startup"], faults)
    size = {name: str(cells[name]) for name in cells if _is_size(name) and name not in _COLUMNS}
    for name, quantity in size.items():
        try:
            enough = parse_nano(quantity) >= 0
        except ValueError:
            enough = False
        if not enough:
            faults.append(f"{name}: must be a quantity such as 4 or 16Gi, not {quantity!r}")
    if faults:
        return None, faults
    row = PriceRow(line, texts["type"], texts["group"], texts["zone"], texts["capacityType"], price, startup, size)
    return row, []


def _is_size(name: str) -> bool:
    return name in _SIZES or ("/" in name and not qualified_name(name))


def _price(text: str, faults: list[str]) -> float:
    if not text:
        faults.append("needs a price")
        return 0.0
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not (price >= 0 and math.isfinite(price)):
        faults.append(f"price: must be a number that is not negative, not {text!r}")
    return price


def _startup(text: str, faults: list[str]) -> float | None:
    if not text:
        return None
    try:
        seconds = float(text) if text.replace(".", "", 1).isdigit() else parse_duration(text)
    except BadTime:
        seconds = -1.0
    if seconds < 0:
        faults.append(f"startup: must be a time such as 90s or 3m, not {text!r}")
        return None
    return seconds
