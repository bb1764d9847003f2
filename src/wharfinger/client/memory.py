"""Control of the cyclic garbage collector around large lists and caches, and of what malloc gives back.

With 50,000 pods resident a full collection pauses the process for a third of a second, and views contain no cycles.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_RARE = (1_000_000, 20, 100)  # thresholds of the three generations


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disables cyclic collection. What runs inside must not run for long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def gc_rare() -> Iterator[None]:
    """Makes cyclic collections rare and excludes existing objects from them. For programs that fill memory and exit."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*_RARE)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def gc_paused_while_loading() -> Iterator[None]:
    """Disables cyclic collection while memory fills with what stays, and excludes that from collections afterwards. Inside
    `gc_rare`, which includes it again."""
    with gc_paused():
        yield
        gc.freeze()


def exclude_from_collections() -> None:
    """Excludes all live objects from collections until `gc_rare` ends: the first one after a large input was read takes
    longer than reading it."""
    gc.freeze()


def freeze_heap() -> None:
    """Excludes all live objects from later collections. Called once in live processes, after the informers have synced."""
    gc.collect()
    gc.freeze()


def settle_heap() -> None:
    """`freeze_heap`, with rare collections afterwards: for servers, whose requests leave almost no cycles behind."""
    freeze_heap()
    gc.set_threshold(50_000, 20, 50)
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Tells glibc to keep up to 64 MiB of freed memory. By default it gives the buffers of every response above 1 MiB back
    to the kernel, and their page faults halve the rate of such responses."""
    mallopt = _of_glibc("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most that glibc accepts
        mallopt(_M_TRIM_THRESHOLD, 64 << 20)


def return_freed_memory() -> None:
    """Gives the freed pages of the whole heap back to the kernel. By itself, glibc gives back only those at the end of the
    heap, and where small objects come and go all the time, such as events, memory grows by half over the hours."""
    malloc_trim = _of_glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _of_glibc(function: str) -> Callable[..., int] | None:
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), function)
    except (OSError, AttributeError):  # another C library
        return None
    return found
