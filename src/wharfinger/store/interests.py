"""Which of the waiting watches a change concerns, found without asking each of them.

A watch with an equality in its selector, or of one namespace, waits under the values that it wants. A change looks up
the values of its object before and after, so that the thousand kubelets of a cluster, each of which watches the pods of
its own node, cost a write as much as one of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from wharfinger.store.objects import StoredObject

_WOKEN_AT_ONCE = 64  # watches in one iteration of the event loop


class WaitingWatch:
    """A watch that waits. It collects the numbers of the changes that concern it until it goes on."""

    __slots__ = ("numbers", "woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.woken: asyncio.Future[None] = loop.create_future()
        self.numbers: deque[int] = deque()

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class WakeUps:
    """Wakes watches after the writers, and in portions, each in an iteration of the event loop of its own.

    What a thousand watches send takes a tenth of a second. Neither the responses to the writes nor the requests that arrive
    meanwhile wait for it.
    """

    def __init__(self) -> None:
        self._due: deque[WaitingWatch] = deque()
        self._running = False

    def add(self, due: Iterable[WaitingWatch]) -> None:
        self._due.extend(due)
        if self._due and not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._wake_some)

    def _wake_some(self) -> None:
        due = self._due
        for _ in range(min(len(due), _WOKEN_AT_ONCE)):
            due.popleft().wake()
        self._running = bool(due)
        if due:
            asyncio.get_running_loop().call_soon(self._wake_some)


class Interest(NamedTuple):
    """The values of one property that an object must have to concern a watch. Objects without the property do not."""

    property: str
    read: Callable[[StoredObject], str | None]
    values: tuple[str, ...]


class _Property(NamedTuple):
    read: Callable[[StoredObject], str | None]
    waiting: dict[str, dict[WaitingWatch, None]]  # by value, in the order of their arrival


class WatchInterests:
    def __init__(self) -> None:
        self._properties: dict[str, _Property] = {}

    def __bool__(self) -> bool:
        return bool(self._properties)

    def add(self, waiting: WaitingWatch, interest: Interest) -> None:
        known = self._properties.get(interest.property)
        if known is None:
            known = self._properties[interest.property] = _Property(interest.read, {})
        for value in interest.values:
            known.waiting.setdefault(value, {})[waiting] = None

    def remove(self, waiting: WaitingWatch, interest: Interest) -> None:
        known = self._properties.get(interest.property)
        if known is None:
            return
        for value in interest.values:
            found = known.waiting.get(value)
            if found is not None:
                found.pop(waiting, None)
                if not found:
                    del known.waiting[value]
        if not known.waiting:
            del self._properties[interest.property]

    def tell(self, before: StoredObject | None, after: StoredObject | None, number: int) -> list[WaitingWatch]:
        """The watches to wake because the change with this number concerns them: those that want the object as it was or as it
        is. Those that know of another change have been named before."""
        due: list[WaitingWatch] = []
        for read, waiting in self._properties.values():
            was = None if before is None else read(before)
            value = None if after is None else read(after)
            if value is not None and (found := waiting.get(value)):
                _tell(found, number, due)
            if was is not None and was != value and (found := waiting.get(was)):
                _tell(found, number, due)
        return due

    def wake_all(self) -> None:
        for _, waiting in self._properties.values():
            for found in waiting.values():
                for one in found:
                    one.wake()


def _tell(waiting: dict[WaitingWatch, None], number: int, due: list[WaitingWatch]) -> None:
    for one in waiting:
        if not one.numbers:
            due.append(one)
        elif one.numbers[-1] == number:
            continue
        one.numbers.append(number)
