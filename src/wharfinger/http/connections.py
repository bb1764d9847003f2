"""The open connections of a server by owner, and how many each owner may have.

A connection belongs to nobody until a request on it is authenticated. An owner with too many loses the oldest idle one,
so that a client that leaks connections, or a stranger who opens them for nothing, never keeps others out. Connections
that stream, such as those of watches, are in use, and the application limits them; an owner may have as many others as it
has of these. If there are too many connections in total, the owner with the most loses one.
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


class _Owned:
    """The connections of one owner, oldest first."""

    __slots__ = ("others", "streaming")

    def __init__(self) -> None:
        self.streaming: dict[LimitedConnection, None] = {}
        self.others: dict[LimitedConnection, None] = {}

    def __len__(self) -> int:
        return len(self.streaming) + len(self.others)

    def dispensable(self) -> LimitedConnection:
        """The oldest idle connection; if none is idle, the oldest, and one that streams last of all."""
        idle = next((one for one in self.others if one.idle), None)
        return idle or next(iter(self.others or self.streaming))


class Connections:
    """`unclaimed` is the limit for connections without an owner; `per_owner` is the limit for each owner, besides those
    that stream; `total` is the limit for all together, if there is one."""

    def __init__(
        self, unclaimed: int = MAX_UNCLAIMED, per_owner: int = MAX_PER_OWNER, total: int | None = None
    ) -> None:
        self._unclaimed = unclaimed
        self._per_owner = per_owner
        self._total = total
        self._of: dict[str, _Owned] = {}
        self._count = 0
        self.aborted = 0

    def opened(self, connection: LimitedConnection) -> None:
        if self._total is not None and self._count >= self._total:
            self._abort_one(max(self._of.values(), key=len))
        self._add(connection, NOBODY, self._unclaimed)

    def claim(self, connection: LimitedConnection, owner: str, *, limited: bool = True) -> None:
        """Called when a request of another owner than before is authenticated."""
        self.closed(connection)
        self._add(connection, owner, self._per_owner if limited else None)

    def set_streaming(self, connection: LimitedConnection, streaming: bool) -> None:
        """Called when a response that takes long begins or ends."""
        owned = self._of.get(connection.owner)
        if owned is None:
            return
        before, after = (owned.others, owned.streaming) if streaming else (owned.streaming, owned.others)
        if connection in before:  # or it was closed meanwhile
            del before[connection]
            after[connection] = None

    def closed(self, connection: LimitedConnection) -> None:
        owned = self._of.get(connection.owner)
        if owned is None:
            return
        for found in (owned.others, owned.streaming):
            if connection in found:
                del found[connection]
                self._count -= 1
        if not owned:
            del self._of[connection.owner]

    def count(self, owner: str) -> int:
        return len(self._of.get(owner, ()))

    def _add(self, connection: LimitedConnection, owner: str, limit: int | None) -> None:
        owned = self._of.get(owner)
        if owned is not None and limit is not None and len(owned.others) >= max(limit, len(owned.streaming)):
            self._abort_one(owned)
        connection.owner = owner
        self._of.setdefault(owner, _Owned()).others[connection] = None
        self._count += 1

    def _abort_one(self, owned: _Owned) -> None:
        chosen = owned.dispensable()
        self.aborted += 1
        self.closed(chosen)
        chosen.abort()
