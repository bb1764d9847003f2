"""Equal strings of large documents, kept once: a snapshot repeats images, times, names and phases thousands of times."""

from __future__ import annotations

from typing import Any

_MOST = 500_000  # strings that are remembered; names and uids are different every time


class SharedStrings:
    """Replaces string values by equal ones that were seen before. Keys are shared by the JSON decoder."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def share(self, value: Any) -> None:
        """In a document, in place."""
        if isinstance(value, dict | list):
            if len(self._seen) > _MOST:
                self._seen.clear()
            self._share(value)

    def _share(self, value: dict[str, Any] | list[Any]) -> None:
        kept, share = self._seen.setdefault, self._share
        items: Any = value.items() if type(value) is dict else enumerate(value)
        for key, item in items:
            kind = type(item)
            if kind is str:
                value[key] = kept(item, item)
            elif kind is dict or kind is list:
                share(item)
