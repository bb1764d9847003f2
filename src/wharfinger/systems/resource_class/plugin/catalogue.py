"""What resource names mean: classes, their aliases and raw names, indexed against the distinct sets of properties.

A class is compared with each distinct set once, however many nodes have devices with those properties.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from wharfinger.framework.columns import Bools, Ints
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.resource_class.rules.properties import matches


@dataclass(slots=True, eq=False)
class Meaning:
    """What a name in a pod stands for: devices of a raw resource, of all sets of properties or of some."""

    name: str  # of the class, or the raw name
    raw: str
    is_class: bool = True
    per_cluster: bool = False  # no node has such devices: nothing to fit
    group_by: str = ""
    group_size: int = 1
    sets: set[int] = field(default_factory=set)  # the numbers of the matching sets of properties
    _array: Bools | None = None

    def array(self, size: int) -> Bools:
        """`sets` by number, with one false entry more that the number -1 finds."""
        if self._array is None or len(self._array) != size + 1:
            self._array = np.zeros(size + 1, dtype=np.bool_)
            self._array[list(self.sets)] = True
        return self._array

    def add(self, number: int) -> None:
        self.sets.add(number)
        self._array = None

    def discard(self, number: int) -> None:
        self.sets.discard(number)
        self._array = None


@dataclass(slots=True)
class PropertySet:
    raw: str
    properties: Mapping[str, str]
    users: int = 0
    claims: int = 0  # classes that match


class Catalogue:
    def __init__(self) -> None:
        self.sets: list[PropertySet | None] = []
        self.changes = 0  # moves with every change of what a name means
        self.comparisons = 0  # of a class with a set, to watch that they stay few
        self._numbers: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self._unused: list[int] = []
        self._by_raw: dict[str, set[int]] = {}
        self._published: dict[str, int] = {}  # uses of sets of a raw name, classic capacity left out
        self._classes: dict[str, ResourceClass] = {}
        self._meanings: dict[str, Meaning] = {}  # of classes, by class name
        self._of_raw: dict[str, set[str]] = {}  # classes of a raw name
        self._aliases: dict[str, set[str]] = {}
        self._raws: dict[str, Meaning] = {}
        self._versions: dict[str, int] = {}

    # -- asking

    def meaning(self, name: str) -> Meaning | None:
        """What a name means; None for a name that is not about devices we know."""
        found = self._raws.get(name) or self._meanings.get(name)
        if found is None and name in self._aliases:
            # Admission keeps aliases unique; where it did not, the first class has it.
            return self._meanings[min(self._aliases[name])]
        return found

    def version(self, name: str) -> tuple[int, int] | None:
        """Moves when the meaning of a name changed, or who else claims its devices; None for a name that never had one."""
        own = self._versions.get(name)
        if own is None:
            return None
        meaning = self.meaning(name)
        return own, -1 if meaning is None else self._versions.get(meaning.raw, 0)

    def classes(self) -> Iterable[ResourceClass]:
        return self._classes.values()

    def raws(self) -> Container[str]:
        """The raw names whose devices are counted by properties."""
        return self._raws

    def handled(self) -> frozenset[str]:
        """Qualified names whose fit is ours to judge."""
        return frozenset((*self._raws, *self._aliases))

    def rank(self, number: int) -> int:
        """How many classes claim devices with these properties: the fewer, the sooner they are given away."""
        found = self.sets[number]
        assert found is not None
        return found.claims

    def ranks(self) -> Ints:
        """`rank` by number of the set, with one entry more for the number -1."""
        return np.array([0 if found is None else found.claims for found in self.sets] + [0], dtype=np.int64)

    # -- classes

    def set_class(self, new: ResourceClass) -> None:
        old = self._classes.get(new.name)
        if old is not None:
            if old.spec == new.spec:
                self._classes[new.name] = new
                return
            self.remove_class(new.name)
        spec = new.spec
        meaning = Meaning(
            new.name,
            spec.resource_name,
            per_cluster=new.per_cluster,
            group_by=spec.group_by if new.group_size > 1 else "",
            group_size=new.group_size,
        )
        self._classes[new.name] = new
        self._meanings[new.name] = meaning
        self._aliases.setdefault(new.alias, set()).add(new.name)
        self._touch(new.name, new.alias)
        if meaning.per_cluster:
            return
        self._need_raw(meaning.raw)
        self._touch(meaning.raw)
        self._of_raw.setdefault(meaning.raw, set()).add(new.name)
        for number in self._by_raw.get(meaning.raw, ()):
            self._compare(new, meaning, number)

    def remove_class(self, name: str) -> None:
        old = self._classes.pop(name, None)
        if old is None:
            return
        meaning = self._meanings.pop(name)
        for number in meaning.sets:
            found = self.sets[number]
            assert found is not None
            found.claims -= 1
        holders = self._aliases[old.alias]
        holders.discard(name)
        if not holders:
            del self._aliases[old.alias]
        self._touch(name, old.alias)
        if not meaning.per_cluster:
            self._of_raw[meaning.raw].discard(name)
            self._touch(meaning.raw)
            self._drop_raw(meaning.raw)

    def _compare(self, each: ResourceClass, meaning: Meaning, number: int) -> None:
        found = self.sets[number]
        assert found is not None
        self.comparisons += 1
        if meaning.group_by and meaning.group_by not in found.properties:
            return  # such devices form no group
        if matches(each.spec.selectors, found.properties):
            meaning.add(number)
            found.claims += 1

    # -- sets of properties

    def number(self, raw: str, properties: Mapping[str, str], *, classic: bool = False) -> int:
        """The number of a set of properties, counted as used once more. What a node publishes makes the raw name ours;
        classic capacity counts only where that is so, and does not make it last."""
        if not classic:
            self._published[raw] = self._published.get(raw, 0) + 1
            self._need_raw(raw)
        key = (raw, frozenset(properties.items()))
        number = self._numbers.get(key)
        if number is None:
            number = self._new_set(raw, properties)
            self._numbers[key] = number
        found = self.sets[number]
        assert found is not None
        found.users += 1
        return number

    def release(self, number: int, *, classic: bool = False) -> None:
        found = self.sets[number]
        assert found is not None
        found.users -= 1
        if not found.users:
            self._forget(number, found)
        if not classic:
            self._published[found.raw] -= 1
            self._drop_raw(found.raw)

    def _forget(self, number: int, found: PropertySet) -> None:
        del self._numbers[found.raw, frozenset(found.properties.items())]
        self.sets[number] = None
        self._unused.append(number)
        self._by_raw[found.raw].discard(number)
        if found.raw in self._raws:
            self._raws[found.raw].discard(number)
        for name in self._of_raw.get(found.raw, ()):
            self._meanings[name].discard(number)

    def _new_set(self, raw: str, properties: Mapping[str, str]) -> int:
        made = PropertySet(raw, properties)
        if self._unused:
            number = self._unused.pop()
            self.sets[number] = made
        else:
            number = len(self.sets)
            self.sets.append(made)
        self._by_raw.setdefault(raw, set()).add(number)
        self._raws[raw].add(number)
        for name in self._of_raw.get(raw, ()):
            self._compare(self._classes[name], self._meanings[name], number)
        return number

    def _need_raw(self, raw: str) -> None:
        if raw not in self._raws:
            self._raws[raw] = Meaning(raw, raw, is_class=False, sets=set(self._by_raw.get(raw, ())))
            self._touch(raw)

    def _drop_raw(self, raw: str) -> None:
        if not self._of_raw.get(raw) and not self._published.get(raw) and raw in self._raws:
            del self._raws[raw]
            self._touch(raw)

    def _touch(self, *names: str) -> None:
        self.changes += 1
        for name in names:
            self._versions[name] = self._versions.get(name, 0) + 1
