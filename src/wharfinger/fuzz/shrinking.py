"""Makes a failing history short: leaves out steps as long as the same invariant is still violated."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from wharfinger.api.registry import Document
from wharfinger.fuzz.playing import PlayedHistory, play_steps
from wharfinger.fuzz.steps import FuzzStep

SHRINK_SECONDS = 60.0  # of processor time spent on one history at most


def shrink(played: PlayedHistory, seconds: float = SHRINK_SECONDS) -> PlayedHistory:
    """The shortest history found that violates the invariant that `played` violates first, with what it violates.

    Only that invariant is checked, unless that does not reproduce it: other checks restart components, for example. If the
    steps alone do not reproduce it either, the history comes back as it is.
    """
    name, deadline = played.violations[0].invariant, time.process_time() + seconds
    best = played
    names: Sequence[str] = (name,)

    def fails(steps: Sequence[FuzzStep]) -> bool:
        nonlocal best
        again = play_steps(steps, played.configuration, names)
        if any(each.invariant == name for each in again.violations):
            best = again
            return True
        return False

    if not fails(played.steps):
        names = played.names
        if not fails(played.steps):
            return played
    steps = _without_chunks(best.steps, fails, lambda: time.process_time() > deadline)
    steps = _with_fewer_objects(steps, fails, lambda: time.process_time() > deadline)
    best.seed = played.seed
    return best


def _without_chunks(
    steps: Sequence[FuzzStep], fails: Callable[[Sequence[FuzzStep]], bool], late: Callable[[], bool]
) -> list[FuzzStep]:
    """Leaves out chunks of halving size, as delta debugging does; the last step shows the violation and stays."""
    kept = list(steps)
    size = max(1, len(kept) // 2)
    while True:
        start, shorter = 0, False
        while start < len(kept) - 1 and not late():
            candidate = [*kept[:start], *kept[min(start + size, len(kept) - 1) :]]
            if len(candidate) < len(kept) and fails(candidate):
                kept, shorter = candidate, True
            else:
                start += size
        if late() or (size == 1 and not shorter):
            return kept
        size = max(1, size // 2)


def _with_fewer_objects(
    steps: Sequence[FuzzStep], fails: Callable[[Sequence[FuzzStep]], bool], late: Callable[[], bool]
) -> list[FuzzStep]:
    """Leaves out objects of steps that apply several."""
    kept = list(steps)
    for index in range(len(kept)):
        position = 0
        while position < len(kept[index].action.apply) and len(kept[index].action.apply) > 1 and not late():
            candidate = [*kept]
            candidate[index] = without_object(kept[index], position)
            if fails(candidate):
                kept = candidate
            else:
                position += 1
    return kept


def without_object(step: FuzzStep, position: int) -> FuzzStep:
    documents = [*step.action.apply[:position], *step.action.apply[position + 1 :]]
    document: Document = {**step.document, "apply": documents}
    return FuzzStep(step.at, replace(step.action, apply=tuple(documents)), step.label, document)
