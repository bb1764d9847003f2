"""One leader: of several schedulers, only the one that holds the lease writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wharfinger.api.requests import ApiRequest
from wharfinger.fuzz.history import PlainHistory
from wharfinger.fuzz.invariants.base import Invariant
from wharfinger.simulate.processes import ProcessRun


class OneLeader(Invariant):
    name = "one-leader"

    def __init__(self, history: PlainHistory) -> None:
        super().__init__(history)
        self._found: list[str] = []

    def wrote(self, run: ProcessRun, request: ApiRequest[Any], holder: str) -> None:
        who = f"{run.name}-{run.number}"
        if not holder or who == holder or request.resource.plural == "leases":
            return
        if (request.resource.plural, request.namespace, request.name) in run.delayed:
            return  # sent while it was the leader, and delivered later: nobody can take that back
        what = "/".join(filter(None, (request.resource.plural, request.namespace, request.name, request.subresource)))
        self._found.append(f"{who} wrote {what}, but {holder} holds the lease")

    def stepped(self) -> Iterator[str]:
        found, self._found = self._found, []
        yield from found
