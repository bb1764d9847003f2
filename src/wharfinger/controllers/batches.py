"""Calls in batches of growing size, so that a common failure is seen after few calls (upstream's slowStartBatch)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

BURST = 500  # the largest number of pods that one reconciliation creates or deletes


async def slow_start(
    count: int, call: Callable[[int], Awaitable[None]], *, in_turn: bool = False
) -> tuple[int, Exception | None]:
    """Calls `call(0)` to `call(count - 1)` in batches that double as long as all succeed.

    Returns how many succeeded and the first failure. The batches after a failure are skipped. The calls of a batch run at
    the same time, or `in_turn`, which is faster for calls that do not wait.
    """
    done, succeeded, size = 0, 0, min(count, 1)
    while size > 0:
        outcomes: list[BaseException | None]
        if in_turn:
            outcomes = [await _outcome(call(done + index)) for index in range(size)]
        else:
            outcomes = await asyncio.gather(*(call(done + index) for index in range(size)), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        succeeded += size - len(failures)
        for failure in failures:
            if not isinstance(failure, Exception):
                raise failure
        if failures:
            return succeeded, next(failure for failure in failures if isinstance(failure, Exception))
        done += size
        size = min(size * 2, count - done)
    return succeeded, None


async def _outcome(call: Awaitable[None]) -> Exception | None:
    try:
        await call
    except Exception as error:
        return error
    return None
