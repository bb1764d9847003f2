"""Answers that take long to make are made anew only now and then, so that a busy cluster leaves time for everything else."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

SHARE = 0.05  # of the time that one answer may take
QUICK = 0.005  # seconds; what takes no longer is always up to date
KEPT = 64  # answers: to different questions, and to callers who may see different things


class PacedAnswer(msgspec.Struct):
    revision: Hashable
    answer: Any
    until: float  # until when it is given, even if it is out of date


class PacedAnswers:
    """`changed` is called when an answer that was given out although it was out of date can be had anew."""

    def __init__(self, changed: Callable[[], None], now: Callable[[], float] = time.perf_counter) -> None:
        self._changed, self._now = changed, now
        self._kept: OrderedDict[Hashable, PacedAnswer] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def get(self, key: Hashable, revision: Hashable, make: Callable[[], T]) -> T:
        """The answer to a question about a cluster in that state."""
        began, kept = self._now(), self._kept.get(key)
        if kept is not None and kept.revision == revision:
            return kept.answer  # type: ignore[no-any-return]
        if kept is not None and began < kept.until:
            self._call_later(kept.until - began)
            return kept.answer  # type: ignore[no-any-return]
        answer = make()
        done = self._now()
        until = done + (done - began) / SHARE if done - began > QUICK else 0.0
        self._kept[key] = PacedAnswer(revision, answer, until)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return answer

    def _call_later(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._tell)

    def _tell(self) -> None:
        self._timer = None
        self._changed()
