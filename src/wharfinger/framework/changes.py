"""How caches learn what changed: logs of rows, and counters that move."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field


class Log:
    """Rows that changed, in order. A reader keeps a position and asks what came after it."""

    LIMIT = 1 << 17

    __slots__ = ("_base", "_rows", "position")

    def __init__(self) -> None:
        self._rows = array("q")
        self._base = 0
        self.position = 0

    @property
    def last(self) -> int:
        """The row that changed last."""
        return self._rows[-1]

    def append(self, row: int) -> None:
        self._rows.append(row)
        self.position += 1
        if len(self._rows) > self.LIMIT:
            # Readers that are further behind than this start over.
            drop = self.LIMIT // 2
            del self._rows[:drop]
            self._base += drop

    def since(self, position: int) -> array[int] | None:
        """The rows that changed after the position; None when they are no longer known."""
        if position < self._base:
            return None
        return self._rows[position - self._base :]


@dataclass(slots=True)
class Versions:
    """Counters of what plugins reported as changed. Only `Tables.changed` writes them."""

    keys: int = 0  # shape keys of pods
    everything: int = 0  # what was prepared for any shape
    namespaces: int = 0  # what was prepared for the shapes of one namespace
    of_namespace: dict[str, int] = field(default_factory=dict)  # namespace to `namespaces` at its last change
    preparations: int = 0  # moves with each of the above
    cluster: int = 0  # versions of answers of cluster scope
    listeners: int = 0  # which pods listeners want to be told of
