"""Server-side apply: merging an applied configuration into the live object, field owners and conflicts.

Owners are kept in `metadata.managedFields`. Writers without a field manager (our own components, which write often) are
recorded only if they change fields that others own; what they created belongs to `before-first-apply` once a named
manager writes. After structured-merge-diff of Kubernetes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from wharfinger.api.errors import ApiError, BadRequest, Conflict
from wharfinger.api.registry import Document, Kind, Resource
from wharfinger.api.schema.tree import Schema, schema_of
from wharfinger.store import field_sets, last_applied
from wharfinger.store.field_sets import FieldSet, Path, is_granular, item_key
from wharfinger.store.typed import typed_faults

BEFORE_FIRST = "before-first-apply"
OURSELVES = "wharfinger"
ANCIENT = "ancient-changes"
_MOST_UPDATERS = 10  # owners by update; the oldest are merged, as upstream


class FieldOwner(msgspec.Struct):
    """One entry of managedFields."""

    manager: str
    operation: str  # Apply or Update
    api_version: str
    subresource: str
    fields: FieldSet
    time: str = ""

    def same(self, manager: str, operation: str, subresource: str) -> bool:
        return (self.manager, self.operation, self.subresource) == (manager, operation, subresource)

    def described(self) -> str:
        text = msgspec.json.encode(self.manager).decode()
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            text += f" using {self.api_version}" + (f" at {self.time}" if self.time else "")
        return text


@dataclass(slots=True)
class Applied:
    """An apply request."""

    resource: Resource
    kind: Kind
    config: Document
    manager: str
    force: bool
    subresource: str = ""
    fields: FieldSet = field(default=frozenset())
    changes: bool = True  # whether the object changes; if not, the owner has no time

    def check(self, name: str) -> None:
        """Checks the type and identity of the configuration; it must not have managedFields."""
        version, kind = self.config.get("apiVersion") or "", self.config.get("kind") or ""
        if (version, kind) != (self.resource.api_version, self.resource.kind):
            version = version if "/" in str(version) else f"/{version}"
            raise BadRequest(f"invalid object type: {version}, Kind={kind}")
        metadata = self.config.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise BadRequest("invalid object: metadata must be an object")
        if metadata.get("managedFields"):
            raise BadRequest("metadata.managedFields must be nil")
        if metadata.setdefault("name", name) != name:
            raise BadRequest(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
        schema = schema_of(self.kind, self.resource.version)
        if faults := typed_faults(schema, self.config, declared=schema.closed):
            raise _untyped(self, faults)


def owners_of(document: Document) -> list[FieldOwner]:
    return _owners(document["metadata"].get("managedFields"))


def _owners(entries: Any) -> list[FieldOwner]:
    return [
        FieldOwner(
            entry.get("manager", ""),
            entry.get("operation", "Update"),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
            field_sets.decode(entry.get("fieldsV1")),
            entry.get("time", ""),
        )
        for entry in entries or []
        if isinstance(entry, dict)
    ]


def written_owners(owners: list[FieldOwner]) -> list[Document]:
    entries = []
    for owner in owners:
        if not owner.fields:
            continue
        entry: Document = {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": owner.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": field_sets.encode(owner.fields),
        }
        if owner.time:
            entry["time"] = owner.time
        if owner.subresource:
            entry["subresource"] = owner.subresource
        entries.append(entry)
    entries.sort(key=_place)
    return entries


def _place(entry: Document) -> tuple[str, ...]:
    """The sort key of upstream: operation, time, name."""
    return tuple(entry.get(part, "") for part in ("operation", "time", "manager", "apiVersion", "subresource"))


def apply(request: Applied, live: Document) -> Document:
    """The live object with the configuration applied. Raises Conflict if others own fields that it would change."""
    schema = schema_of(request.kind, request.resource.version)
    status = request.kind.status
    config = request.config
    request.fields = field_sets.fields_of(schema, config, request.subresource, status=status)
    owners = owners_of(live) or [_before_first(schema, request, live)]
    if not request.force and (conflicts := _conflicts(schema, request, live, owners)):
        allowed = (
            last_applied.unchanged_fields(schema, live, request) if request.manager == last_applied.MANAGER else ()
        )
        if refused := [(owner, path) for owner, path in conflicts if path not in allowed]:
            raise _conflict_error(refused)
    result: Document = merged_configuration(schema, live, _visible(config, request))
    mine = next(
        (owner.fields for owner in owners if owner.same(request.manager, "Apply", request.subresource)), frozenset()
    )
    others = frozenset[Path]().union(
        *(owner.fields for owner in owners if not owner.same(request.manager, "Apply", request.subresource))
    )
    removal = _Removal(schema, result)
    owned = {path[:length] for path in others | request.fields for length in range(1, len(path) + 1)}
    # Shortest first: removing an item removes its fields too, including defaulted ones.
    for path in sorted(mine - request.fields, key=len):
        if path not in owned:
            removal.remove(path)
    removal.finish()
    request.changes = result != live
    if request.manager == last_applied.MANAGER:
        result = last_applied.renewed(result, config)
    return result


def _untyped(request: Applied, faults: list[str]) -> ApiError:
    """The error for a configuration with wrong types; upstream's has no reason."""
    at, metadata = request.resource, request.config["metadata"]
    what = f"({metadata.get('namespace') or ''}/{metadata['name']}; {at.group}/{at.version}, Kind={at.kind})"
    said = faults[0] if len(faults) == 1 else "errors:\n" + "\n".join(f"  {fault}" for fault in faults)
    return ApiError(f"failed to create typed patch object {what}: {said}", code=500, reason="")


def _visible(config: Document, request: Applied) -> Document:
    """The part of a configuration that the request may write."""
    if not request.kind.status:
        return config
    keep = ("apiVersion", "kind", "metadata", "status") if request.subresource == "status" else None
    return {name: value for name, value in config.items() if (name in keep if keep is not None else name != "status")}


def _before_first(schema: Schema, request: Applied, live: Document) -> FieldOwner:
    fields = field_sets.fields_of(schema, live, "", status=request.kind.status)
    return FieldOwner(
        BEFORE_FIRST, "Update", request.resource.api_version, "", fields, live["metadata"].get("creationTimestamp", "")
    )


def _conflicts(
    schema: Schema, request: Applied, live: Document, owners: list[FieldOwner]
) -> list[tuple[FieldOwner, Path]]:
    found = []
    configured, present = field_sets.Finder(schema, request.config), field_sets.Finder(schema, live)
    for owner in owners:
        if owner.same(request.manager, "Apply", request.subresource):
            continue
        for path in sorted(owner.fields & request.fields):
            if path[-1].startswith(("k:", "v:")):
                continue  # the existence of an item cannot conflict
            if configured.find(path) != present.find(path):
                found.append((owner, path))
    return found


def _conflict_error(conflicts: list[tuple[FieldOwner, Path]]) -> Conflict:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {owner.described()}",
            "field": field_sets.describe(path),
        }
        for owner, path in conflicts
    ]
    if len(conflicts) == 1:
        owner, path = conflicts[0]
        text = f"Apply failed with 1 conflict: conflict with {owner.described()}: {field_sets.describe(path)}"
    else:
        by_owner: dict[str, list[str]] = {}
        for owner, path in conflicts:
            by_owner.setdefault(owner.described(), []).append(field_sets.describe(path))
        parts = (
            f"conflicts with {name}:\n" + "\n".join(f"- {path}" for path in paths)
            for name, paths in sorted(by_owner.items())
        )
        text = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(parts)
    return Conflict(text, details={"causes": causes})


def merged_configuration(schema: Schema, live: Any, config: Any) -> Any:
    """The live value merged with the configuration: granular maps and lists are merged, anything else is replaced."""
    if isinstance(config, dict) and isinstance(live, dict) and is_granular(schema, config):
        merged = dict(live)
        for name, value in config.items():
            merged[name] = merged_configuration(schema.child(name), live[name], value) if name in live else value
        return merged
    if isinstance(config, list) and isinstance(live, list) and is_granular(schema, config):
        items = schema.item_schema
        wanted = {item_key(schema, item): item for item in config}
        merged_items = []
        for item in live:
            key = item_key(schema, item)
            merged_items.append(merged_configuration(items, item, wanted.pop(key)) if key in wanted else item)
        return merged_items + list(wanted.values())
    return config


class _Removal:
    """Removes fields and items of a document, and their parents if they become empty. Each list is searched once and
    changed once, at the end."""

    def __init__(self, schema: Schema, document: Document) -> None:
        self._schema = schema
        self._document = document
        self._lists: dict[int, _KeyedItems] = {}

    def remove(self, path: Path) -> None:
        schema: Schema = self._schema
        value: Any = self._document
        trail: list[tuple[Any, Any]] = []  # maps and lists with the key or step in them
        for step in path:
            if step.startswith("f:"):
                if not isinstance(value, dict) or step[2:] not in value:
                    return
                trail.append((value, step[2:]))
                value, schema = value[step[2:]], schema.child(step[2:])
            else:
                items = self._items(schema, value) if isinstance(value, list) else None
                item = field_sets.MISSING if items is None else items.find(step)
                if item is field_sets.MISSING:
                    return
                trail.append((items, step))
                value, schema = item, schema.item_schema
        for container, key in reversed(trail):
            del container[key]
            if container:
                return

    def finish(self) -> None:
        for items in self._lists.values():
            items.finish()

    def _items(self, schema: Schema, values: list[Any]) -> _KeyedItems:
        known = self._lists.get(id(values))
        if known is None:
            known = self._lists[id(values)] = _KeyedItems(schema, values)
        return known


class _KeyedItems:
    """The items of a list by their step in a path. Of items with the same one, the first counts."""

    def __init__(self, schema: Schema, values: list[Any]) -> None:
        self._values = values
        self._places: dict[str, list[int]] = {}  # the first one last
        self._gone: set[int] = set()
        for place in reversed(range(len(values))):
            self._places.setdefault(item_key(schema, values[place]), []).append(place)

    def __len__(self) -> int:
        return len(self._values) - len(self._gone)

    def find(self, step: str) -> Any:
        places = self._places.get(step)
        return self._values[places[-1]] if places else field_sets.MISSING

    def __delitem__(self, step: str) -> None:
        self._gone.add(self._places[step].pop())

    def finish(self) -> None:
        if self._gone:
            self._values[:] = [item for place, item in enumerate(self._values) if place not in self._gone]


def track(
    kind: Kind,
    resource: Resource,
    new: Document,
    old: Document | None,
    *,
    manager: str,
    subresource: str,
    applied: Applied | None,
    given: Any,
    now: str,
) -> None:
    """Sets the owners of the new state. `given` is the managedFields of the update itself."""
    before = None if old is None else old["metadata"].get("managedFields")
    if applied is None:
        if not manager:
            if not before:
                return
            if old is not None and not _differs(new, old):
                new["metadata"]["managedFields"] = before
                return
            manager = OURSELVES
        elif old is None:
            owned = _without_status(new) if kind.status and not kind.status_on_create else new
            if fields := field_sets.tree_of(schema_of(kind, resource.version), owned):
                new["metadata"]["managedFields"] = [_created(resource, manager, fields, now)]
            return
        elif given == [{}]:
            return  # how clients reset managedFields
    write = _OwnedWrite(kind, resource, manager, subresource, applied, now)
    owners = _tracked(write, new, old, _valid(given) or before)
    entries = written_owners(_merged_oldest(owners))
    if entries:
        new["metadata"]["managedFields"] = entries


def _without_status(new: Document) -> Document:
    """The document without status, which a create does not write."""
    return {name: value for name, value in new.items() if name != "status"} if "status" in new else new


def _created(resource: Resource, manager: str, fields: Document, now: str) -> Document:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": resource.api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def _valid(given: Any) -> list[Document] | None:
    """The managedFields of a client, if they are valid."""
    if not isinstance(given, list) or not given:
        return None
    sound = all(
        isinstance(entry, dict)
        and isinstance(entry.get("manager"), str)
        and entry.get("operation") in ("Apply", "Update")
        and isinstance(entry.get("apiVersion"), str)
        and isinstance(entry.get("fieldsV1"), dict)
        and isinstance(entry.get("subresource", ""), str)
        and isinstance(entry.get("time", ""), str)
        for entry in given
    )
    return given if sound else None


def _differs(new: Document, old: Document) -> bool:
    """Whether anything but status changed; our components update status often, and such writes change no owners."""
    if any(new.get(name) != old.get(name) for name in new.keys() | old.keys() if name not in ("metadata", "status")):
        return True
    mine, theirs = new["metadata"], old["metadata"]
    return any(
        mine.get(part) != theirs.get(part) for part in ("labels", "annotations", "finalizers", "ownerReferences")
    )


class _OwnedWrite(msgspec.Struct, frozen=True):
    """A write by a field manager."""

    kind: Kind
    resource: Resource
    manager: str
    subresource: str
    applied: Applied | None
    now: str


def _tracked(
    write: _OwnedWrite, new: Document, old: Document | None, entries: list[Document] | None
) -> list[FieldOwner]:
    """The owners after a write; `entries` are those before it."""
    applied, api_version = write.applied, write.resource.api_version
    schema = schema_of(write.kind, write.resource.version)
    owners = _owners(entries)
    if old is not None and not owners:
        fields = field_sets.fields_of(schema, old, "", status=applied is not None and write.kind.status)
        time = old["metadata"].get("creationTimestamp", "")
        owners = [FieldOwner(BEFORE_FIRST, "Update", api_version, "", fields, time)]
    changed, removed = field_sets.compare(schema, old or {"metadata": {}}, new)
    operation = "Update"
    if applied is not None:
        operation, time = "Apply", write.now if applied.changes else ""
        _own(owners, write, operation, applied.fields, time, replace=True)
        changed = frozenset(
            path for path in changed & applied.fields if old is not None and not path[-1].startswith(("k:", "v:"))
        )
    elif changed:
        _own(owners, write, operation, changed, write.now, replace=False)
    for owner in owners:
        owner.fields -= removed
        if not owner.same(write.manager, operation, write.subresource):
            owner.fields -= changed
    return owners


def _merged_oldest(owners: list[FieldOwner]) -> list[FieldOwner]:
    updaters = [owner for owner in owners if owner.operation == "Update"]
    updaters.sort(key=lambda owner: (owner.manager != ANCIENT, owner.time))
    if len(updaters) <= _MOST_UPDATERS:
        return owners
    oldest = updaters[: len(updaters) - _MOST_UPDATERS + 1]
    merged: dict[str, FieldOwner] = {}
    for owner in oldest:
        kept = merged.setdefault(
            owner.api_version, FieldOwner(ANCIENT, "Update", owner.api_version, "", frozenset(), owner.time)
        )
        kept.fields, kept.time = kept.fields | owner.fields, owner.time
    return [*(owner for owner in owners if all(owner is not one for one in oldest)), *merged.values()]


def _own(
    owners: list[FieldOwner], write: _OwnedWrite, operation: str, fields: FieldSet, time: str, *, replace: bool
) -> None:
    """Makes the writer the owner of the fields, in place of or in addition to those that it owns already."""
    api_version = write.resource.api_version
    for owner in owners:
        if owner.same(write.manager, operation, write.subresource):
            owner.fields, owner.api_version = fields if replace else owner.fields | fields, api_version
            owner.time = time or owner.time
            return
    owners.append(FieldOwner(write.manager, operation, api_version, write.subresource, fields, time))
