"""Pod specs that were found to be in order before: the pods of a workload have equal ones."""

from __future__ import annotations

from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode


class KnownSpecs:
    """A bounded set of specs, held as JSON."""

    _MOST = 1024
    _LONGEST = 32 * 1024

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def __contains__(self, spec: Any) -> bool:
        try:
            return _encode(spec) in self._known
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return False  # cannot be encoded as JSON

    def add(self, spec: Any) -> None:
        try:
            data = _encode(spec)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return
        if len(data) < self._LONGEST:
            if len(self._known) >= self._MOST:
                self._known.clear()
            self._known.add(data)
