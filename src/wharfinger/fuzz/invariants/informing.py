"""Informed: a scheduler decides only once it has listed every kind that it follows."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.fuzz.history import PlainHistory
from wharfinger.fuzz.invariants.base import Invariant
from wharfinger.simulate.processes import ProcessRun


class DecidesInformed(Invariant):
    name = "informed"

    def __init__(self, history: PlainHistory) -> None:
        super().__init__(history)
        self._told: set[ProcessRun] = set()

    def stepped(self) -> Iterator[str]:
        for run, known in self.history.first_decisions.items():
            if run.kinds_seen == len(known):  # it knew them all
                continue
            late = sorted(run.seen.keys() - known)
            if late and run not in self._told:
                self._told.add(run)
                yield f"{run.name} {run.number} decided before it had listed {', '.join(late)}"
