"""The volumes that claims can be bound to."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wharfinger.api.node_affinity import NodeTerms
from wharfinger.api.selectors import Operator, Requirement, Requirements, matches
from wharfinger.api.views import PersistentVolume
from wharfinger.framework.columns import Bools, Rows
from wharfinger.plugins.volumes.rules import capacity_of, class_of_volume, on_labels, on_rows

if TYPE_CHECKING:
    from wharfinger.plugins.volumes.catalogue import VolumeCatalogue


class ClaimKind(NamedTuple):
    """What decides which volumes a claim can take."""

    class_name: str
    size: int  # nano-bytes
    modes: frozenset[str]
    selector: Requirements | None
    volume_mode: str
    attributes_class: str


class Supply:
    """The available volumes for claims of one kind, grouped by node affinity, the smallest of a group first."""

    def __init__(self, catalogue: VolumeCatalogue, kind: ClaimKind) -> None:
        self.kind = kind
        self.holders = 0
        self.version = 0  # moves with changes that concern many rows
        self._catalogue = catalogue
        self._groups: dict[int, list[tuple[int, str]]] = {}  # affinity to (capacity, name)
        self._where: dict[str, tuple[int, int]] = {}  # volume to (affinity, capacity)
        self._by_value: dict[
            str, dict[str, set[int]]
        ] = {}  # label key and value to the affinities that require just that
        self._others: set[int] = set()  # all other affinities

    def put(self, volume: PersistentVolume) -> tuple[int, int] | None:
        """Adds the volume if it is suitable; returns the number of its affinity and its capacity then."""
        if not self._fits(volume):
            return None
        affinity, capacity = self._catalogue.affinity(volume), capacity_of(volume)
        self._where[volume.metadata.name] = (affinity, capacity)
        group = self._groups.get(affinity)
        if group is None:
            group = self._groups[affinity] = []
            self._file(affinity)
        insort(group, (capacity, volume.metadata.name))
        return affinity, capacity

    def drop(self, name: str) -> tuple[int, int] | None:
        where = self._where.pop(name, None)
        if where is None:
            return None
        affinity, capacity = where
        group = self._groups[affinity]
        del group[bisect_left(group, (capacity, name))]
        if not group:
            del self._groups[affinity]
            self._unfile(affinity)
        return where

    def at(self, labels: Mapping[str, str]) -> tuple[int, ...]:
        """The groups whose volumes can be used on a node with these labels."""
        found = [each for each in self._others if on_labels(self._catalogue.terms(each), labels)]
        for key, values in self._by_value.items():
            value = labels.get(key)
            if value is not None:
                found += values.get(value, ())
        return tuple(sorted(set(found)))

    def smallest(self, affinities: Iterable[int], taken: set[str]) -> str | None:
        """The smallest volume of some groups that is not taken."""
        best: tuple[int, str] | None = None
        for affinity in affinities:
            for each in self._groups[affinity]:
                if each[1] not in taken:
                    best = each if best is None else min(best, each)
                    break
        return None if best is None else best[1]

    def reachable(self, rows: Rows) -> Bools:
        """Which rows can use at least one of the volumes."""
        tables = self._catalogue.tables
        found = np.zeros(len(rows), dtype=np.bool_)
        for key, values in self._by_value.items():
            found |= tables.label(key).mask(Requirement(key, Operator.IN, frozenset(values)), rows)
        for affinity in self._others:
            found |= on_rows(tables, self._catalogue.terms(affinity), rows)
        return found

    def _fits(self, volume: PersistentVolume) -> bool:
        kind = self.kind
        return (
            self._catalogue.reference(volume) is None
            and volume.status.phase == "Available"
            and acceptable(kind, volume)
            and (kind.selector is None or matches(kind.selector, volume.metadata.labels))
            and class_of_volume(volume) == kind.class_name
            and kind.modes <= set(volume.spec.access_modes)
        )

    def _file(self, affinity: int) -> None:
        wanted = _one_label(self._catalogue.terms(affinity))
        if wanted is None:
            self._others.add(affinity)
        else:
            for value in wanted.values:
                self._by_value.setdefault(wanted.key, {}).setdefault(value, set()).add(affinity)

    def _unfile(self, affinity: int) -> None:
        self._others.discard(affinity)
        wanted = _one_label(self._catalogue.terms(affinity))
        for value in wanted.values if wanted is not None else ():
            values = self._by_value[wanted.key] if wanted is not None else {}
            values[value].discard(affinity)
            if not values[value]:
                del values[value]


def acceptable(kind: ClaimKind, volume: PersistentVolume) -> bool:
    """Whether a volume meets what is required even if its claimRef names the claim."""
    return (
        capacity_of(volume) >= kind.size
        and volume.spec.volume_mode == kind.volume_mode
        and volume.spec.volume_attributes_class_name == kind.attributes_class
        and not volume.metadata.deletion_timestamp
    )


def _one_label(terms: NodeTerms | None) -> Requirement | None:
    """The requirement of an affinity that consists of one label with allowed values, as for local volumes."""
    if terms is None or len(terms) != 1 or len(terms[0].labels) != 1:
        return None
    wanted = terms[0].labels[0]
    return wanted if wanted.operator is Operator.IN else None
