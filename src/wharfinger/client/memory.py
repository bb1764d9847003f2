"""Keeping the cyclic garbage collector out of the way of big lists and big caches.

With 50,000 pods resident a full collection stops the process for a third of a second; what views hold has no cycles.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = (200_000, 20, 100)  # thresholds of the three generations


@contextmanager
def gc_paused() -> Iterator[None]:
    """No cyclic collection inside. For synchronous work only: other tasks must not run meanwhile."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def gc_seldom() -> Iterator[None]:
    """Few cyclic collections inside, which leave alone what is there already. For programs that fill memory and end."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def sweep() -> None:
    """Frees what only cycles keep alive. For programs that collect seldom, after they have let go of something big."""
    gc.collect()


def freeze_heap() -> None:
    """Takes everything alive out of later collections. For live processes, once, after the informers have synced."""
    gc.collect()
    gc.freeze()


def settle_heap() -> None:
    """`freeze_heap`, and later collections are few: for servers, whose requests leave next to nothing behind in cycles."""
    freeze_heap()
    gc.set_threshold(50_000, 20, 50)
