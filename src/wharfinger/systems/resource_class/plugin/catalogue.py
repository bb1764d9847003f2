"""Resolves resource names (classes, aliases and raw resources) to property sets.

A property set is a distinct combination of raw resource and device properties. A class is compared with each property
set once, however many nodes have such devices.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec
import numpy as np

from wharfinger.framework.columns import Bools, Ints
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.resource_class.rules.properties import matches


class Meaning(msgspec.Struct, eq=False):
    """What a requested name resolves to: a raw resource and the property sets that match."""

    name: str  # class name or raw resource
    raw: str
    is_class: bool = True
    per_cluster: bool = False  # not on nodes: skipped by the filter
    group_by: str = ""
    group_size: int = 1
    sets: set[int] = msgspec.field(default_factory=set)  # numbers of the matching property sets
    _array: Bools | None = None

    def array(self, size: int) -> Bools:
        """`sets` as a mask by set number, with an extra False at the end for the number -1."""
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


class PropertySet(msgspec.Struct):
    raw: str
    properties: Mapping[str, str]
    users: int = 0
    claims: int = 0  # number of classes that match


class Catalogue:
    def __init__(self) -> None:
        self.sets: list[PropertySet | None] = []
        self.changes = 0  # incremented when any name changes its meaning
        self.comparisons = 0  # class-to-set comparisons made; tests assert that they stay few
        self._numbers: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self._unused: list[int] = []
        self._by_raw: dict[str, set[int]] = {}
        self._published: dict[str, int] = {}  # uses of a raw resource's sets, without classic capacity
        self._classes: dict[str, ResourceClass] = {}
        self._meanings: dict[str, Meaning] = {}  # by class name
        self._of_raw: dict[str, set[str]] = {}  # raw resource → class names
        self._aliases: dict[str, set[str]] = {}
        self._raws: dict[str, Meaning] = {}
        self._served: dict[str, str] = {}  # classes of DRA drivers, which are not counted here, to their aliases
        self._versions: dict[str, int] = {}

    # -- queries

    def meaning(self, name: str) -> Meaning | None:
        """What a name resolves to; None if it names no known device resource."""
        found = self._raws.get(name) or self._meanings.get(name)
        if found is None and name in self._aliases:
            # Admission keeps aliases unique. If it was bypassed, the first class by name gets the alias.
            return self._meanings[min(self._aliases[name])]
        return found

    def unit(self, name: str) -> int | None:
        """Devices of nodes per requested unit of a name; None if it names no known device resource."""
        meaning = self.meaning(name)
        if meaning is None:
            return None
        return 0 if meaning.per_cluster else meaning.group_size

    def version(self, name: str) -> tuple[int, int] | None:
        """Changes when the name's meaning or the classes that share its devices change. None for a name never seen."""
        own = self._versions.get(name)
        if own is None:
            return None
        meaning = self.meaning(name)
        return own, -1 if meaning is None else self._versions.get(meaning.raw, 0)

    def is_served(self, name: str) -> bool:
        """Whether this is the alias of a class that a DeviceClass serves."""
        return name in self._served.values()

    def classes(self) -> Iterable[ResourceClass]:
        return self._classes.values()

    def raws(self) -> Container[str]:
        """The raw resources whose devices are counted by property set."""
        return self._raws

    def handled(self) -> frozenset[str]:
        """Names whose fit this plugin checks instead of NodeResourcesFit."""
        return frozenset((*self._raws, *self._aliases, *self._classes))

    def rank(self, number: int) -> int:
        """How many classes match this property set; devices with the lowest rank are allocated first."""
        found = self.sets[number]
        assert found is not None
        return found.claims

    def ranks(self) -> Ints:
        """`rank` by set number, with an extra 0 at the end for the number -1."""
        return np.array([0 if found is None else found.claims for found in self.sets] + [0], dtype=np.int64)

    # -- classes

    def set_class(self, new: ResourceClass) -> None:
        if new.spec.driver:
            self.remove_class(new.name)
            self._served[new.name] = new.alias
            self._touch(new.name, new.alias)
            return
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
        if name in self._served:
            self._touch(name, self._served.pop(name))
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
            return  # devices without the groupBy property are in no group
        if matches(each.spec.selectors, found.properties):
            meaning.add(number)
            found.claims += 1

    # -- property sets

    def number(self, raw: str, properties: Mapping[str, str], *, classic: bool = False) -> int:
        """Returns the number of a property set and adds a reference to it.

        Published devices make their raw resource a handled name. Classic node capacity (`classic`) does not: it counts as
        devices only while the raw resource is handled anyway.
        """
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
