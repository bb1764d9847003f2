"""The objects of one kind in key order, and their recent changes, from which watches and lists at older versions read."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol
from weakref import WeakSet

import msgspec

from wharfinger.store.interests import Interest, WaitingWatch, WakeUps, WatchInterests
from wharfinger.store.objects import ADDED, DELETED, MODIFIED, StoredObject, StoreEvent

_RECENT_LIMIT = 1024  # changes whose keys `changed_since` can return
_INSERT_LIMIT = 64  # up to this many new keys are inserted one by one; more are sorted in


class _Keys(NamedTuple):
    """The keys of objects by the value of one property."""

    read: Callable[[StoredObject], str | None]
    by_value: dict[str, set[str]]

    def move(self, key: str, before: StoredObject | None, after: StoredObject | None) -> None:
        was = None if before is None else self.read(before)
        value = None if after is None else self.read(after)
        if was == value:
            return
        if was is not None:
            found = self.by_value[was]
            found.discard(key)
            if not found:
                del self.by_value[was]
        if value is not None:
            self.by_value.setdefault(value, set()).add(key)


class ObjectIndex:
    """Objects by key. The sorted order is updated lazily, when it is read, since writes come in bursts."""

    __slots__ = ("_dead", "_fresh", "_order", "_properties", "_recent", "objects", "revision")

    def __init__(self) -> None:
        self.objects: dict[str, StoredObject] = {}
        self.revision = 0  # number of changes; values derived from all objects are valid while it stays the same
        self._order: list[str] = []
        self._fresh: dict[str, None] = {}  # keys of objects that are not yet in the order
        self._dead: set[str] = set()  # keys in the order whose objects are removed
        self._recent: deque[str] = deque(maxlen=_RECENT_LIMIT)  # keys of the last changes, up to `revision`
        self._properties: dict[str, _Keys] = {}  # by name, once somebody has asked for it

    def put(self, key: str, stored: StoredObject) -> None:
        self._changed(key)
        if key not in self.objects:
            if key in self._dead:
                self._dead.remove(key)
            else:
                self._fresh[key] = None
        for keys in self._properties.values():
            keys.move(key, self.objects.get(key), stored)
        self.objects[key] = stored

    def remove(self, key: str) -> None:
        self._changed(key)
        before = self.objects.pop(key, None)
        for keys in self._properties.values():
            keys.move(key, before, None)
        if before is not None:
            if key in self._fresh:  # nothing remains of an object that came and went without a list in between
                del self._fresh[key]
            else:
                self._dead.add(key)

    def _changed(self, key: str) -> None:
        self.revision += 1
        self._recent.append(key)

    def changed_since(self, revision: int) -> set[str] | None:
        """The keys of objects added, changed or removed since a revision; None if that is too long ago."""
        count = self.revision - revision
        if not 0 <= count <= len(self._recent):
            return None
        return set(islice(reversed(self._recent), count))

    def keys(self, prefix: str = "", start: str = "") -> list[str]:
        """The sorted keys that begin with `prefix`, from `start` on."""
        if not self.objects:  # common: reviewers scan kinds without objects on every write
            return []
        order = self._sorted()
        low = bisect_left(order, max(prefix, start))
        high = bisect_left(order, prefix[:-1] + chr(ord(prefix[-1]) + 1)) if prefix else len(order)
        return [key for key in order[low:high] if key in self.objects] if self._dead else order[low:high]

    def values(self, prefix: str = "") -> list[StoredObject]:
        objects = self.objects
        return [objects[key] for key in self.keys(prefix)]

    def keys_of(self, interest: Interest, prefix: str = "", start: str = "") -> list[str]:
        """The same for objects whose property has one of the values. From the first call on, they are found without a look
        at all objects."""
        known = self._properties.get(interest.property)
        if known is None:
            known = self._properties[interest.property] = _Keys(interest.read, {})
            for key, stored in self.objects.items():
                known.move(key, None, stored)
        found = set().union(*(known.by_value.get(value, ()) for value in interest.values))
        return sorted(key for key in found if key.startswith(prefix) and key >= start)

    def _sorted(self) -> list[str]:
        if self._fresh:
            fresh, self._fresh = self._fresh, {}
            if len(fresh) <= _INSERT_LIMIT:
                for key in fresh:
                    insort(self._order, key)
            else:
                self._order += fresh
                self._order.sort()
        if len(self._dead) > _INSERT_LIMIT and len(self._dead) * 4 > len(self._order):
            self._order = [key for key in self._order if key not in self._dead]
            self._dead.clear()
        return self._order


class ObjectChange(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One change of one object. `before` is None for a creation; `event` is the event of a watch without selectors."""

    key: str
    version: int
    after: StoredObject | None
    before: StoredObject | None
    at: float
    event: StoreEvent


class Limits(msgspec.Struct, frozen=True):
    """The history kept for each kind: changes younger than `age` seconds, at least `least` and at most `most`."""

    most: int = 50_000
    least: int = 1_000
    age: float = 300.0


class ChangeReader(Protocol):
    """Reads the changes of a collection in their order."""

    @property
    def position(self) -> int:
        """The number of the next change that it will read."""
        ...


class Collection:
    """`latest` contains all accepted writes; `visible` only durable ones, which readers and watches see."""

    def __init__(self, group: str, plural: str, limits: Limits, compacted: int, *, durable_at_once: bool) -> None:
        self.group = group
        self.plural = plural
        self.latest = ObjectIndex()
        self.visible = self.latest if durable_at_once else ObjectIndex()
        # In memory, as in simulations, few objects are watched by few; all watches are woken in the order of their arrival.
        self.finds_watches = not durable_at_once
        self.compacted = compacted  # changes up to this version have been dropped
        self.first = 0  # number of dropped changes, and so the number of changes[0]
        self.changes: list[ObjectChange] = []
        self.closed = False
        self.busy = False  # its objects change all the time, see `wharfinger.store.ledger.BUSY`
        self.selected_by_field = False  # a field selector has been used
        self.readers: WeakSet[ChangeReader] = WeakSet()  # open watches
        self.forgets = False  # drop changes that all open watches have read, see `Store.forget_read_changes`
        self._look_at = 0  # the number of changes at which to look for some
        self._limits = limits
        self._waiting: dict[WaitingWatch, None] = {}  # that every change may concern, in the order of arrival
        self._interests = WatchInterests()
        self._wake_ups = WakeUps()

    def change(
        self, key: str, before: StoredObject | None, after: StoredObject | None, version: int, at: float
    ) -> ObjectChange:
        if after is not None:
            shown, kind = after, MODIFIED if before is not None else ADDED
        else:
            assert before is not None
            shown, kind = before.at_version(version), DELETED
        return ObjectChange(key, version, after, before, at, StoreEvent(kind, shown, version))

    def publish(self, change: ObjectChange) -> None:
        """Makes a durable change visible and wakes the watches."""
        if self.visible is not self.latest:
            if change.after is None:
                self.visible.remove(change.key)
            else:
                self.visible.put(change.key, change.after)
        self.changes.append(change)
        if change.before is not None:
            change.before.drop_forms()  # rarely needed again once there is a newer version
        if len(self.changes) > self._limits.least:
            if self.forgets and len(self.changes) >= self._look_at:
                self._forget_read()
            self._trim(change.at)
        if self._waiting:
            if self.finds_watches:
                self._wake_ups.add(self._waiting)
                self._waiting.clear()
            else:
                self._wake_waiting()
        if self._interests:
            self._wake_ups.add(self._interests.tell(change.before, change.after, self.end - 1))

    @property
    def end(self) -> int:
        """The number of the next change."""
        return self.first + len(self.changes)

    def _forget_read(self) -> None:
        end = self.first + len(self.changes)
        self.compact(min([end - self._limits.least, *(each.position for each in self.readers)]))
        self._look_at = len(self.changes) + self._limits.least

    def _trim(self, now: float) -> None:
        changes, limits = self.changes, self._limits
        # Once a part of a history is too old: it is not shifted on every change.
        if len(changes) <= limits.most and now - changes[len(changes) // 16].at <= limits.age:
            return
        horizon = now - limits.age
        aged = bisect_right(changes, horizon, hi=len(changes) - limits.least, key=lambda change: change.at)
        # Drop a tenth more than needed, so that a full history is not shifted on every change.
        excess = len(changes) - limits.most + limits.most // 10 if len(changes) > limits.most else 0
        self.compact(self.first + max(aged, excess))

    def compact(self, number: int) -> None:
        """Drops the changes before the one with this number."""
        count = number - self.first
        if count > 0:
            self.compacted = self.changes[count - 1].version
            del self.changes[:count]
            self.first += count

    def number_after(self, version: int) -> int:
        """The number of the first change later than `version`."""
        return self.first + bisect_right(self.changes, version, key=lambda change: change.version)

    def since(self, version: int) -> Iterator[ObjectChange]:
        """The changes later than `version`, newest first."""
        return reversed(self.changes[self.number_after(version) - self.first :])

    def await_change(self, waiting: WaitingWatch, interest: Interest | None) -> None:
        """Wakes the watch at the next change that may concern it, or when the collection is closed."""
        if interest is None:
            self._waiting[waiting] = None
        else:
            self._interests.add(waiting, interest)

    def give_up(self, waiting: WaitingWatch, interest: Interest | None) -> None:
        if interest is None:
            self._waiting.pop(waiting, None)
        else:
            self._interests.remove(waiting, interest)

    def _wake_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for one in waiting:
            one.wake()

    def close(self) -> None:
        self.closed = True
        self._wake_waiting()
        self._interests.wake_all()
