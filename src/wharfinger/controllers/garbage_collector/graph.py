"""The ownership graph: all objects by uid, and their dependents. Pure."""

from __future__ import annotations

import msgspec

from wharfinger.api.finalizers import FOREGROUND, ORPHAN
from wharfinger.api.registry import Resource
from wharfinger.api.views import Metadata, OwnerReference


class Entry(msgspec.Struct, eq=False):
    """An object, with its metadata as last observed."""

    resource: Resource
    object: Metadata

    @property
    def uid(self) -> str:
        return self.object.metadata.uid

    @property
    def owners(self) -> tuple[OwnerReference, ...]:
        return self.object.metadata.owner_references

    @property
    def deleting(self) -> bool:
        return bool(self.object.metadata.deletion_timestamp)

    @property
    def waits_for_dependents(self) -> bool:
        """Foreground deletion: the object is removed after its dependents."""
        return self.deleting and FOREGROUND in self.object.metadata.finalizers

    @property
    def orphans_dependents(self) -> bool:
        return self.deleting and ORPHAN in self.object.metadata.finalizers

    def blocks(self, owner_uid: str) -> bool:
        return any(owner.uid == owner_uid and owner.block_owner_deletion for owner in self.owners)


class Graph:
    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._dependents: dict[str, dict[str, Entry]] = {}

    def get(self, uid: str) -> Entry | None:
        return self._entries.get(uid)

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def dependents(self, uid: str) -> list[Entry]:
        return list(self._dependents.get(uid, {}).values())

    def put(self, resource: Resource, item: Metadata) -> tuple[Entry | None, Entry]:
        """Adds or replaces an object; returns its entry, and the former one if that had other owners."""
        uid, owners = item.metadata.uid, item.metadata.owner_references
        before = self._entries.get(uid)
        if before is not None:
            if (before.resource is resource or before.resource == resource) and before.owners == owners:
                before.object = item
                return None, before
            self._unlink(before)
        fresh = self._entries[uid] = Entry(resource, item)
        for owner in owners:
            self._dependents.setdefault(owner.uid, {})[uid] = fresh
        return before, fresh

    def remove(self, uid: str) -> Entry | None:
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._unlink(entry)
        return entry

    def _unlink(self, entry: Entry) -> None:
        for owner in entry.owners:
            siblings = self._dependents.get(owner.uid)
            if siblings is not None:
                siblings.pop(entry.uid, None)
                if not siblings:
                    del self._dependents[owner.uid]
