"""The open connections of a server by owner, and how many each owner may have.

A connection belongs to nobody until a request on it is authenticated. An owner with too many loses the oldest idle one,
so that a client that leaks connections, or a stranger who opens them for nothing, never keeps others out.
"""

from __future__ import annotations

from typing import Protocol

NOBODY = ""
MAX_UNCLAIMED = 1000
MAX_PER_OWNER = 1000


class LimitedConnection(Protocol):
    """A connection, as far as it matters here."""

    owner: str

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        ...

    def abort(self) -> None:
        """Closes the connection immediately."""
        ...


class Connections:
    """`unclaimed` is the limit for connections without an owner; `per_owner` is the limit for each owner."""

    def __init__(self, unclaimed: int = MAX_UNCLAIMED, per_owner: int = MAX_PER_OWNER) -> None:
        self._unclaimed = unclaimed
        self._per_owner = per_owner
        self._of: dict[str, dict[LimitedConnection, None]] = {}  # oldest first
        self.aborted = 0

    def opened(self, connection: LimitedConnection) -> None:
        self._add(connection, NOBODY, self._unclaimed)

    def claim(self, connection: LimitedConnection, owner: str, *, limited: bool = True) -> None:
        """Called when a request of another owner than before is authenticated."""
        self.closed(connection)
        self._add(connection, owner, self._per_owner if limited else None)

    def closed(self, connection: LimitedConnection) -> None:
        mine = self._of.get(connection.owner)
        if mine is not None:
            mine.pop(connection, None)
            if not mine:
                del self._of[connection.owner]

    def count(self, owner: str) -> int:
        return len(self._of.get(owner, ()))

    def _add(self, connection: LimitedConnection, owner: str, limit: int | None) -> None:
        mine = self._of.setdefault(owner, {})
        if limit is not None and len(mine) >= limit:
            oldest = next((one for one in mine if one.idle), None) or next(iter(mine))
            self.aborted += 1
            self.closed(oldest)
            oldest.abort()
            mine = self._of.setdefault(owner, {})
        connection.owner = owner
        mine[connection] = None
