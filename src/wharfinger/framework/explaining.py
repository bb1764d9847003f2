"""What plugins tell `wharf explain` beside their statuses: amounts, tables, and changes that may help."""

from __future__ import annotations

from typing import Any

import msgspec


class AskedAmount(msgspec.Struct, frozen=True):
    """How much of a resource a pod asks for, and how much of it a node has free: cpu in thousandths, others whole."""

    resource: str
    asked: int
    free: int

    @property
    def lacking(self) -> int:
        return max(self.asked - self.free, 0)


class ExplainedTable(msgspec.Struct, frozen=True):
    """Facts about a pod, such as the units of its policy or the reservations that it may use. A cell that is a tuple is a list
    of names, which may be long."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def document(self) -> dict[str, Any]:
        rows = [[list(cell) if isinstance(cell, tuple) else cell for cell in row] for row in self.rows]
        return {"title": self.title, "rows": [dict(zip(self.header, row, strict=True)) for row in rows]}


class Suggestion(msgspec.Struct, frozen=True):
    """A change to an object of a system that may let a pod in; whoever shows it tries it first."""

    kind: str  # of the object
    namespace: str
    name: str
    change: str  # in the imperative
    document: Any = None  # what takes the place of the object; None: it is deleted
