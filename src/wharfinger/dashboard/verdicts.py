"""Verdicts on waiting pods. Each is kept until the cluster changes; then it is judged anew, some at once and the rest a
little at a time, so that a long queue in a busy cluster delays no answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable

import msgspec

from wharfinger.api.errors import ApiError
from wharfinger.api.keys import ObjectKey
from wharfinger.api.registry import Document
from wharfinger.client.tasks import cancel

Judge = Callable[[str, str], Document]

AT_ONCE = 0.03  # seconds of processor time that judging may take for one answer
SLICE = 0.01  # the same for judging in a row beside other work, and...
PAUSE = 0.04  # ...the seconds between
ASKED = 30.0  # seconds after the last question in which verdicts are kept current


class KeptVerdict(msgspec.Struct):
    pod: ObjectKey  # one of those that it holds for
    revision: int  # of the cluster when it was judged; -1: not judged yet
    answer: Document | None
    asked: float  # when somebody last wanted to know


class Verdicts:
    """`judge` answers for one pod, `revision` numbers the states of the cluster, and `changed` is told of the namespaces
    in which a verdict that was given out is another one now."""

    def __init__(
        self,
        judge: Judge,
        revision: Callable[[], int],
        changed: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._judge, self._revision, self._changed = judge, revision, changed
        self._now, self._spent = now, spent
        self._kept: dict[Hashable, KeptVerdict] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._until = 0.0  # the processor time up to which an answer that is in progress may judge
        self._asked = 0.0

    def begin(self) -> None:
        """An answer begins: it may judge for a while."""
        self._until = self._spent() + AT_ONCE

    def get(self, key: Hashable, pod: ObjectKey) -> Document | None:
        """The verdict on the pods of a key, which all have the same needs; None if it is not known yet."""
        now = self._now()
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = KeptVerdict(pod, -1, None, now)
        kept.pod, kept.asked = pod, now
        if kept.revision != self._revision() and self._spent() < self._until:
            self._renew(kept)
        return kept.answer

    def end(self) -> None:
        """The answer is complete: what is out of date in it, now or soon, is judged beside other work."""
        self._asked = self._now()
        if self._kept and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.create_task(self._refresh(), name="dashboard verdicts")

    async def stop(self) -> None:
        if self._refreshing is not None:
            await cancel([self._refreshing])

    def __len__(self) -> int:
        return len(self._kept)

    async def _refresh(self) -> None:
        """Until nobody has asked for a while."""
        current = -1  # the revision for which nothing is out of date
        while self._now() - self._asked < ASKED:
            revision = self._revision()
            if revision != current and self._refresh_some():
                current = revision
            await asyncio.sleep(PAUSE)
        self._kept.clear()

    def _refresh_some(self) -> bool:
        """Judges for a moment, the oldest verdict first; returns whether all are up to date."""
        began, told, complete = self._spent(), set[str](), True
        for kept in self._stale():
            if self._spent() - began >= SLICE:
                complete = False
                break
            before = kept.answer
            self._renew(kept)
            if kept.answer != before:
                told.add(kept.pod[0])
        for namespace in told:
            self._changed(namespace)
        return complete

    def _stale(self) -> list[KeptVerdict]:
        """What is out of date, the oldest first. What nobody asked for lately is dropped."""
        now, revision = self._now(), self._revision()
        self._kept = {key: kept for key, kept in self._kept.items() if now - kept.asked < ASKED}
        found = [each for each in self._kept.values() if each.revision != revision]
        return sorted(found, key=lambda each: each.revision)

    def _renew(self, kept: KeptVerdict) -> None:
        kept.revision = self._revision()
        try:
            kept.answer = self._judge(*kept.pod)
        except ApiError:  # it was bound or deleted meanwhile
            kept.answer = None
