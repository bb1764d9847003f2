"""Tracks free devices on all nodes: a list of slots per node row of the scheduler's tables.

Shared by all profiles that use the same tables. Node changes are applied lazily from the tables' log, pod changes
immediately; only changed rows are recomputed. Columns mirror the slots for vectorized queries over many rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from wharfinger.api.keys import ObjectKey
from wharfinger.framework.columns import Bools, IntColumn, Ints, Rows
from wharfinger.framework.stand_ins import StandIn
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.systems.resource_class.kinds.views import NodeComputeResources, ResourceClass
from wharfinger.systems.resource_class.plugin.catalogue import Catalogue, Meaning
from wharfinger.systems.resource_class.plugin.holdings import (
    NOTHING,
    DeviceUse,
    Holding,
    Slot,
    all_settled,
    consumed,
    holding,
    left_of,
    slots_of,
    use,
)
from wharfinger.systems.resource_class.rules.compute_resources import RECORD, Allocation, published

EXTENSION = "resourceclass"
MANY = 1 << 44
"""Columns hold no larger numbers, so that sums and products of them stay exact in 64 bits. Requests of this size or more
are evaluated row by row, with the numbers of the slots."""


class _Columns:
    """Column arrays for the n-th slot of a raw resource. [row]"""

    def __init__(self, capacity: int) -> None:
        self.sets = IntColumn(capacity, -1)
        self.devices = IntColumn(capacity)
        self.capacity = IntColumn(capacity)
        self.free = IntColumn(capacity)

    def grow(self, capacity: int) -> None:
        self.sets.grow(capacity, -1)
        self.devices.grow(capacity)
        self.capacity.grow(capacity)
        self.free.grow(capacity)


class DeviceLedger:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.catalogue = Catalogue()
        # Assumed pods whose Binding is not written yet: the record to write, and the devices it holds.
        self.given: dict[ObjectKey, tuple[Allocation, Holding]] = {}
        self._inventories: dict[str, NodeComputeResources] = {}
        self._slots: dict[int, list[Slot]] = {}  # by row
        self._holders: dict[int, dict[ObjectKey, Holding]] = {}
        self._columns: dict[str, list[_Columns]] = {}  # by raw resource
        self._unrecorded: set[int] = (
            set()
        )  # rows with pods whose devices depend on classes: without a record, or with one that differs from the requests
        self._size = tables.capacity
        self._node_position = 0
        self._changes = 0
        self._stale: set[int] = set()  # rows whose slots must be read again
        self._dirty: set[int] = set()  # rows whose free devices must be recounted

    # -- events

    def set_class(self, new: ResourceClass) -> None:
        self.catalogue.set_class(new)
        self._meanings_changed()

    def remove_class(self, name: str) -> None:
        self.catalogue.remove_class(name)
        self._meanings_changed()

    def set_inventory(self, name: str, new: NodeComputeResources | None) -> None:
        if new is None:
            self._inventories.pop(name, None)
        else:
            self._inventories[name] = new
        self._tables.changed(keys=True)
        row = self._tables.row_of.get(name)
        if row is not None:
            self._stale.add(row)
            self.sync()
            self._tables.changed(rows=(row,))

    def pod_added(self, pod: PodOnNode) -> None:
        held = self._held(pod)
        if held:
            self._holders.setdefault(pod.row, {})[pod.key] = held
            if not self._deduct(pod.row, held):
                self._dirty.add(pod.row)
            if held.unrecorded or held.doubtful:
                self._unrecorded.add(pod.row)

    def pod_replaced(self, pod: PodOnNode) -> None:
        """The pod object was updated, possibly with a different record."""
        holders = self._holders.get(pod.row, {})
        if pod.key not in holders and RECORD not in pod.pod.metadata.annotations:
            return
        held = self._held(pod)
        if not pod.assumed:
            self.given.pop(pod.key, None)
        if held == holders.get(pod.key, NOTHING):
            return
        if held:
            self._holders.setdefault(pod.row, {})[pod.key] = held
        else:
            holders.pop(pod.key, None)
        if held.unrecorded or held.doubtful:
            self._unrecorded.add(pod.row)
        self._dirty.add(pod.row)
        self._tables.changed(rows=(pod.row,))

    def _held(self, pod: PodOnNode) -> Holding:
        given = self.given.get(pod.key)
        held = given[1] if given is not None and RECORD not in pod.pod.metadata.annotations else holding(pod.pod)
        if not held:
            return held
        if isinstance(pod.pod, StandIn):
            return replace(held, reserves=pod.pod.metadata.uid)
        uses = self._tables.stand_in_users.on_nodes.get(pod.key)
        return replace(held, uses=uses) if uses else held

    def _deduct(self, row: int, held: Holding) -> bool:
        """Fast path: deducts recorded devices from the row's free ones. False if the row must be recounted instead."""
        if (
            held.unrecorded
            or held.doubtful
            or held.reserves
            or held.uses
            or row in self._dirty
            or row in self._unrecorded
        ):
            return False
        if row in self._stale or self._node_position != self._tables.node_log.position:
            return False
        slots = {slot.name: slot for slot in self._slots.get(row, ())}
        totals: dict[str, int] = {}
        for _, resource, count in held.recorded:
            totals[resource] = totals.get(resource, 0) + count
        if any(resource not in slots or slots[resource].free < count for resource, count in totals.items()):
            return False
        for resource, count in totals.items():
            slot = slots[resource]
            slot.free -= count
            self._columns[slot.raw][slot.column].free.cells[row] = min(slot.free, MANY)
        return True

    def pod_removed(self, pod: PodOnNode) -> None:
        if not pod.assumed:
            self.given.pop(pod.key, None)
        holders = self._holders.get(pod.row)
        if holders is not None and holders.pop(pod.key, None) is not None:
            self._dirty.add(pod.row)
            if not holders:
                del self._holders[pod.row]
                self._unrecorded.discard(pod.row)

    def _meanings_changed(self) -> None:
        """A class changed: cached keys are invalid, and pods without a record may now be assumed to hold other devices."""
        self._dirty |= self._unrecorded
        self._tables.changed(keys=True, rows=self._unrecorded)

    # -- synchronization

    def sync(self) -> None:
        tables = self._tables
        if self._size != tables.capacity:
            self._size = tables.capacity
            for columns in self._columns.values():
                for each in columns:
                    each.grow(self._size)
        if self._node_position != tables.node_log.position:
            changed = tables.node_log.since(self._node_position)
            self._stale.update(range(tables.capacity) if changed is None else changed)
            self._node_position = tables.node_log.position
        while self._stale or self._changes != self.catalogue.changes:
            self._update_handled()
            rows, self._stale = sorted(self._stale), set()
            for row in rows:
                self._read(row)
        if self._dirty:
            for row in self._dirty:
                self._count(row)
            self._dirty.clear()

    def _update_handled(self) -> None:
        """Updates the names that this plugin handles; rows with classic capacity of an added or removed name become
        stale."""
        self._changes = self.catalogue.changes
        handled = self.catalogue.handled()
        for name in handled ^ self._tables.handled:
            number = self._tables.resources.get(name)
            if number is not None:
                self._stale.update(np.flatnonzero(self._tables.allocatable[number].view).tolist())
        self._tables.handled = handled

    def _read(self, row: int) -> None:
        """Reads the slots of a row from its node."""
        old = self._slots.pop(row, ())
        node = self._tables.nodes[row]
        new: list[Slot] = []
        if node is not None:
            new = slots_of(node, published(node, self._inventories.get(node.metadata.name)), self.catalogue)
        if not new and not old:
            return
        self._write(row, new, old)
        for slot in old:
            self.catalogue.release(slot.set, classic=slot.classic)
        if new:
            self._slots[row] = new
        self._dirty.add(row)

    def _write(self, row: int, new: Sequence[Slot], old: Sequence[Slot]) -> None:
        """Mirrors the slots into the columns, after clearing the cells of the old ones."""
        for slots, blank in ((old, True), (new, False)):
            filled: dict[str, int] = {}
            for slot in slots:
                slot.column = filled.get(slot.raw, 0)
                filled[slot.raw] = slot.column + 1
                columns = self._columns.setdefault(slot.raw, [])
                if slot.column == len(columns):
                    columns.append(_Columns(self._size))
                column = columns[slot.column]
                column.sets.cells[row] = -1 if blank else slot.set
                column.devices.cells[row] = 0 if blank else min(slot.devices, MANY)
                column.capacity.cells[row] = 0 if blank else min(slot.capacity, MANY)
                column.free.cells[row] = 0

    def _count(self, row: int) -> None:
        slots = self._slots.get(row, ())
        made = use(slots, self._holders.get(row, {}), self.catalogue)
        for slot, free in zip(slots, made.free, strict=True):
            if slot.free != free:
                slot.free = free
                self._columns[slot.raw][slot.column].free.cells[row] = min(free, MANY)

    # -- queries

    def slots(self, row: int) -> list[Slot]:
        self.sync()
        return self._slots.get(row, [])

    def use(self, row: int, changes: dict[ObjectKey, Holding | None]) -> DeviceUse:
        """Device use of a row if pods were added or (None) removed."""
        holders = {**self._holders.get(row, {}), **{key: held for key, held in changes.items() if held is not None}}
        for key, held in changes.items():
            if held is None:
                holders.pop(key, None)
        return use(self._slots.get(row, ()), holders, self.catalogue)

    def assumed_reservation(self, key: ObjectKey) -> str:
        """The UID of the reservation that an assumed pod consumes; empty if none."""
        return self._tables.stand_in_users.assumed.get(key, "")

    def opened(self, row: int, uid: str) -> tuple[list[int], Mapping[str, int]]:
        """What is free for a consumer of the reservation, and how much of that the reservation holds, by
        ComputeResource."""
        holders = all_settled(self._holders.get(row, {}), self.catalogue)
        kept: dict[str, int] = {}
        changes: dict[ObjectKey, Holding | None] = {}
        used_up = consumed(holders)
        for key, held in holders.items():
            if held.reserves == uid:
                changes[key] = None
                for _, resource, count in left_of(held, used_up):
                    kept[resource] = kept.get(resource, 0) + count
        return self.use(row, changes).free, kept

    def totals(self, raw: str, wanted: Bools, rows: Rows, *, free: bool) -> Ints:
        """Free (or all) devices of the wanted property sets; `wanted` is a mask by set number. [row]"""
        total = np.zeros(len(rows), dtype=np.int64)
        for column in self._columns.get(raw, ()):
            amounts = column.free if free else column.capacity
            total += np.where(wanted[column.sets.view[rows]], amounts.view[rows], 0)
        return total

    def overall(self, meaning: Meaning) -> tuple[int, int, int]:
        """Devices of all nodes that match: all, healthy ones, and free ones."""
        self.sync()
        wanted, found = self.array(meaning), [0, 0, 0]
        for column in self._columns.get(meaning.raw, ()):
            matching = wanted[column.sets.view]
            for index, amounts in enumerate((column.devices, column.capacity, column.free)):
                found[index] += int(amounts.view[matching].sum())
        return found[0], found[1], found[2]

    def claims(self, raw: str, wanted: Bools, amount: int, rows: Rows) -> Ints:
        """Sum of ranks of the `amount` lowest-ranked free devices among the wanted property sets. [row]"""
        columns = self._columns.get(raw, ())
        cost = np.zeros(len(rows), dtype=np.int64)
        if not columns:
            return cost
        ranks = self.catalogue.ranks()
        sets = np.stack([column.sets.view[rows] for column in columns])  # [slot, row]
        free = np.stack([column.free.view[rows] for column in columns])
        usable = wanted[sets]
        rank = np.where(usable, ranks[sets], np.iinfo(np.int64).max)
        order = np.argsort(rank, axis=0, kind="stable")
        missing = np.full(len(rows), amount, dtype=np.int64)
        for places in order:
            at = (places, np.arange(len(rows)))
            taken = np.minimum(missing, np.where(usable[at], free[at], 0))
            cost += np.where(taken > 0, taken * ranks[sets[at]], 0)
            missing -= taken
        return cost

    def array(self, meaning: Meaning) -> Bools:
        return meaning.array(len(self.catalogue.sets))


def ledger_of(tables: Tables) -> tuple[DeviceLedger, bool]:
    """The ledger shared by users of these tables, and whether it was created by this call."""
    found = tables.shared.get(EXTENSION)
    if found is None:
        found = tables.shared[EXTENSION] = DeviceLedger(tables)
        return found, True
    assert isinstance(found, DeviceLedger)
    return found, False
