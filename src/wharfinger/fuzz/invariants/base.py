"""What an invariant is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from wharfinger.api.requests import ApiRequest
from wharfinger.fuzz.history import PlainChange, PlainHistory
from wharfinger.simulate.processes import ProcessRun


class Invariant:
    """Something that must always hold. Each method yields a sentence for each violation."""

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]] = ()  # the plurals of the kinds of which it reads the changes

    def __init__(self, history: PlainHistory) -> None:
        self.history = history

    def changed(self, change: PlainChange) -> Iterator[str]:
        """Called for every write of an object of its kinds, in order."""
        yield from ()

    def wrote(self, run: ProcessRun, request: ApiRequest[Any], holder: str) -> None:
        """Called for every write that a component sent and that was accepted, with the holder of the schedulers' lease."""

    def stepped(self) -> Iterator[str]:
        """Called after every step of the history."""
        yield from ()

    def recount(self) -> Iterator[str]:
        """For an invariant that keeps sums: says where they differ from a plain count over all objects."""
        yield from ()
