"""Reservation owners: compiled, matched against pods, and indexed so that the reservations of a pod are found quickly.

Reservations with equal owners share one *owner class*. The owner classes of a pod are part of its shape.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import msgspec

from wharfinger.api.selectors import BadSelector, Operator, Requirements, matches
from wharfinger.api.views import Pod
from wharfinger.api.views.core import ObjectReference
from wharfinger.systems.reservation.kinds.views import ControllerReference, ReservationOwner

Feature = tuple[str, Hashable]
"""A property of a pod that the index can look up."""

_ANY: Feature = ("any", "")


class CompiledOwner(msgspec.Struct, frozen=True):
    """One compiled owner. Fields that are None match every pod."""

    object: ObjectReference | None
    controller: ControllerReference | None
    labels: Requirements | None

    def matches(self, pod: Pod) -> bool:
        return (
            (self.object is None or _is_object(self.object, pod))
            and (self.controller is None or _is_controlled(self.controller, pod))
            and (self.labels is None or matches(self.labels, pod.metadata.labels))
        )

    def features(self) -> list[Feature]:
        """Index keys of which a matching pod has at least one, as selective as possible."""
        if self.object is not None and self.object.uid:
            return [("uid", self.object.uid)]
        if self.object is not None and self.object.name:
            return [("name", self.object.name)]
        if self.controller is not None and self.controller.uid:
            return [("controller uid", self.controller.uid)]
        if self.controller is not None and self.controller.name:
            return [("controller name", self.controller.name)]
        for each in self.labels or ():
            if each.operator is Operator.IN:
                return [("label", (each.key, value)) for value in sorted(each.values)]
        for each in self.labels or ():
            if each.operator is Operator.EXISTS:
                return [("label key", each.key)]
        return [_ANY]


def _is_object(wanted: ObjectReference, pod: Pod) -> bool:
    metadata = pod.metadata
    return (
        wanted.api_version in ("", "v1")
        and wanted.uid in ("", metadata.uid)
        and wanted.name in ("", metadata.name)
        and wanted.namespace in ("", metadata.namespace)
    )


def _is_controlled(wanted: ControllerReference, pod: Pod) -> bool:
    if wanted.namespace not in ("", pod.metadata.namespace):
        return False
    return any(
        (wanted.controller is None or wanted.controller == owner.controller)
        and wanted.uid in ("", owner.uid)
        and wanted.name in ("", owner.name)
        and wanted.kind in ("", owner.kind)
        and wanted.api_version in ("", owner.api_version)
        for owner in pod.metadata.owner_references
    )


def compile_owners(owners: Sequence[ReservationOwner]) -> tuple[CompiledOwner, ...]:
    """Compile the owners of a reservation. Raises BadSelector, in which case no pod can match the reservation."""
    return tuple(
        CompiledOwner(
            each.object, each.controller, None if each.label_selector is None else each.label_selector.compile()
        )
        for each in owners
    )


def owned_by(owners: Iterable[CompiledOwner], pod: Pod) -> bool:
    return any(owner.matches(pod) for owner in owners)


class OwnerClasses:
    """The owner classes in use, with the number of reservations in each."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._users: dict[int, int] = {}
        self._owners: dict[int, tuple[CompiledOwner, ...]] = {}
        self._keys: dict[int, bytes] = {}
        self._index: dict[Feature, set[int]] = {}
        self._others: set[int] = set()  # classes that refer to pods or controllers
        self._next = 0
        self.version = 0  # incremented when a class is added or removed

    def __bool__(self) -> bool:
        return bool(self._owners)

    def enter(self, owners: Sequence[ReservationOwner]) -> int | None:
        """Add a reservation to the class of these owners and return the class, or None if the owners are invalid."""
        key = msgspec.msgpack.encode(owners)
        number = self._numbers.get(key)
        if number is None:
            try:
                compiled = compile_owners(owners)
            except BadSelector:
                return None
            number, self._next = self._next, self._next + 1
            self._numbers[key], self._keys[number], self._owners[number] = number, key, compiled
            if any(owner.object is not None or owner.controller is not None for owner in compiled):
                self._others.add(number)
            for owner in compiled:
                for feature in owner.features():
                    self._index.setdefault(feature, set()).add(number)
            self.version += 1
        self._users[number] = self._users.get(number, 0) + 1
        return number

    def leave(self, number: int) -> bool:
        """Remove a reservation from its class; returns whether it was the last, so that the class is gone. No other class
        gets its number."""
        self._users[number] -= 1
        if self._users[number]:
            return False
        for owner in self._owners.pop(number):
            for feature in owner.features():
                users = self._index.get(feature)
                if users is not None:
                    users.discard(number)
                    if not users:
                        del self._index[feature]
        self._others.discard(number)
        del self._users[number], self._numbers[self._keys.pop(number)]
        self.version += 1
        return True

    @property
    def told_by_labels(self) -> bool:
        """Whether the labels of a pod alone determine its owner classes."""
        return not self._others

    def of(self, pod: Pod) -> tuple[int, ...]:
        """The owner classes of a pod, sorted."""
        index = self._index
        if not index:
            return ()
        metadata = pod.metadata
        candidates: set[int] = set(index.get(_ANY, ()))
        features: list[Feature] = [("uid", metadata.uid), ("name", metadata.name)]
        for key, value in metadata.labels.items():
            features += [("label", (key, value)), ("label key", key)]
        for owner in metadata.owner_references:
            features += [("controller uid", owner.uid), ("controller name", owner.name)]
        for feature in features:
            found = index.get(feature)
            if found:
                candidates |= found
        return tuple(sorted(number for number in candidates if owned_by(self._owners[number], pod)))
