"""What components work on, recorded only while somebody asks: a simulation that makes no progress names its loop with it."""

from __future__ import annotations

from collections import Counter


class ActivityTrace:
    """`counted` is None while nobody asks, so that recording costs one attribute lookup."""

    def __init__(self) -> None:
        self.counted: Counter[str] | None = None

    def record(self, component: str, item: object) -> None:
        """A component processes an item now. Callers check `counted` first where the text is expensive."""
        if self.counted is not None:
            self.counted[f"{component}: {_text(item)}"] += 1


def _text(item: object) -> str:
    if isinstance(item, tuple):
        return "/".join(str(part) for part in item if part != "")
    return str(item)


ACTIVITY = ActivityTrace()
