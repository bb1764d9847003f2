"""Server-side apply: an applied configuration merged into the present object, with owners of fields and conflicts.

Owners are kept in `metadata.managedFields` from an object's first apply on; before that nobody is known to own anything,
and what is there then belongs to `before-first-apply`. After structured-merge-diff of Kubernetes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from wharfinger.api.errors import BadRequest, Conflict
from wharfinger.api.registry import Document, Kind, Resource
from wharfinger.api.shapes import Shape
from wharfinger.store import field_sets
from wharfinger.store.field_sets import FieldSet, Path, child, is_granular, item_key

BEFORE_FIRST = "before-first-apply"


@dataclass(slots=True)
class Owner:
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
    """What an apply request asks for."""

    resource: Resource
    kind: Kind
    config: Document
    manager: str
    force: bool
    subresource: str = ""
    fields: FieldSet = field(default=frozenset())

    def check(self, name: str) -> None:
        """An applied configuration names its type, and not its owners."""
        for part, wanted in (("apiVersion", self.resource.api_version), ("kind", self.resource.kind)):
            if self.config.get(part) != wanted:
                raise BadRequest(f"invalid object: {part} must be {wanted}, not {self.config.get(part)!r}")
        metadata = self.config.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise BadRequest("invalid object: metadata must be an object")
        if metadata.get("managedFields"):
            raise BadRequest("metadata.managedFields must be nil")
        if metadata.setdefault("name", name) != name:
            raise BadRequest(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")


def shape_of(kind: Kind, resource: Resource) -> Shape:
    return field_sets.shape_for(kind, resource.version)


def owners_of(document: Document) -> list[Owner]:
    return [
        Owner(
            entry.get("manager", ""),
            entry.get("operation", "Update"),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
            field_sets.decode(entry.get("fieldsV1")),
            entry.get("time", ""),
        )
        for entry in document["metadata"].get("managedFields") or []
        if isinstance(entry, dict)
    ]


def written_owners(owners: list[Owner]) -> list[Document]:
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
    return entries


def apply(request: Applied, live: Document) -> Document:
    """The present object with the configuration applied. Raises Conflict where others own what it would change."""
    shape = shape_of(request.kind, request.resource)
    status = request.kind.status
    config = request.config
    request.fields = field_sets.fields_of(shape, config, request.subresource, status=status)
    owners = owners_of(live) or [_before_first(shape, request, live)]
    if not request.force and (conflicts := _conflicts(shape, request, live, owners)):
        raise _conflict_error(conflicts)
    result: Document = _merge(shape, live, _visible(config, request))
    mine = next(
        (owner.fields for owner in owners if owner.same(request.manager, "Apply", request.subresource)), frozenset()
    )
    others = frozenset[Path]().union(
        *(owner.fields for owner in owners if not owner.same(request.manager, "Apply", request.subresource))
    )
    # Shortest first: an item that goes takes its fields along, those that the server filled in among them.
    for path in sorted(mine - request.fields, key=len):
        if not _still_owned(path, others | request.fields):
            _remove(shape, result, path)
    return result


def _visible(config: Document, request: Applied) -> Document:
    """The part of a configuration that the request may write."""
    if not request.kind.status:
        return config
    keep = ("apiVersion", "kind", "metadata", "status") if request.subresource == "status" else None
    return {name: value for name, value in config.items() if (name in keep if keep is not None else name != "status")}


def _before_first(shape: Shape, request: Applied, live: Document) -> Owner:
    fields = field_sets.fields_of(shape, live, "", status=request.kind.status)
    return Owner(
        BEFORE_FIRST, "Update", request.resource.api_version, "", fields, live["metadata"].get("creationTimestamp", "")
    )


def _conflicts(shape: Shape, request: Applied, live: Document, owners: list[Owner]) -> list[tuple[Owner, Path]]:
    found = []
    for owner in owners:
        if owner.same(request.manager, "Apply", request.subresource):
            continue
        for path in sorted(owner.fields & request.fields):
            if path[-1].startswith(("k:", "v:")):
                continue  # that an item exists is no contradiction
            wanted = field_sets.lookup(shape, request.config, path)
            if wanted != field_sets.lookup(shape, live, path):
                found.append((owner, path))
    return found


def _conflict_error(conflicts: list[tuple[Owner, Path]]) -> Conflict:
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


def _merge(shape: Shape, live: Any, config: Any) -> Any:
    """The configuration laid over the live value: granular maps and lists are merged, all else is replaced."""
    if isinstance(config, dict) and isinstance(live, dict) and is_granular(shape, config):
        merged = dict(live)
        for name, value in config.items():
            merged[name] = _merge(child(shape, name), live[name], value) if name in live else value
        return merged
    if isinstance(config, list) and isinstance(live, list) and is_granular(shape, config):
        item_shape = shape.item or Shape("any")
        wanted = {item_key(shape, item): item for item in config}
        merged_items = []
        for item in live:
            key = item_key(shape, item)
            merged_items.append(_merge(item_shape, item, wanted.pop(key)) if key in wanted else item)
        return merged_items + list(wanted.values())
    return config


def _still_owned(path: Path, fields: FieldSet) -> bool:
    return any(other[: len(path)] == path for other in fields)


def _remove(shape: Shape, document: Any, path: Path) -> None:
    """Takes a field or item out, and what it leaves empty."""
    trail: list[tuple[Any, Any]] = []  # container and the key or item in it
    value = document
    for step in path:
        if step.startswith("f:"):
            if not isinstance(value, dict) or step[2:] not in value:
                return
            trail.append((value, step[2:]))
            value, shape = value[step[2:]], child(shape, step[2:])
        else:
            item = (
                next((item for item in value if item_key(shape, item) == step), None)
                if isinstance(value, list)
                else None
            )
            if item is None:
                return
            trail.append((value, item))
            value, shape = item, shape.item or Shape("any")
    for container, key in reversed(trail):
        if isinstance(container, dict):
            del container[key]
        else:
            container.remove(key)
        if container:
            return


def track(
    kind: Kind,
    resource: Resource,
    new: Document,
    old: Document | None,
    *,
    manager: str,
    subresource: str,
    applied: Applied | None,
    now: str,
) -> None:
    """Sets the owners of the new state. Objects that were never applied have none."""
    if applied is None and not (old is not None and old["metadata"].get("managedFields")):
        return
    shape = shape_of(kind, resource)
    present = field_sets.fields_of(shape, new, "", status=False)
    before = frozenset[Path]() if old is None else field_sets.fields_of(shape, old, "", status=False)
    owners = owners_of(old) if old is not None else []
    if applied is not None:
        if old is not None and not owners:
            owners = [_before_first(shape, applied, old)]
        _own(owners, manager, "Apply", resource.api_version, applied.subresource, applied.fields, now, replace=True)
        changed = frozenset(
            path
            for path in applied.fields
            if old is not None
            and not path[-1].startswith(("k:", "v:"))
            and field_sets.lookup(shape, old, path) != field_sets.lookup(shape, new, path)
        )
        operation = "Apply"
    else:
        assert old is not None
        changed = frozenset(
            path
            for path in present
            if path not in before or field_sets.lookup(shape, old, path) != field_sets.lookup(shape, new, path)
        )
        if changed:
            _own(owners, manager or "unknown", "Update", resource.api_version, subresource, changed, now, replace=False)
        operation = "Update"
    for owner in owners:
        kept = owner.fields & (present | before) - (before - present)
        if not owner.same(manager or "unknown", operation, applied.subresource if applied is not None else subresource):
            kept -= changed
        owner.fields = kept
    new["metadata"]["managedFields"] = written_owners(owners)
    if not new["metadata"]["managedFields"]:
        del new["metadata"]["managedFields"]


def _own(
    owners: list[Owner],
    manager: str,
    operation: str,
    api_version: str,
    subresource: str,
    fields: FieldSet,
    now: str,
    *,
    replace: bool,
) -> None:
    for owner in owners:
        if owner.same(manager, operation, subresource):
            wanted = fields if replace else owner.fields | fields
            if wanted != owner.fields or owner.api_version != api_version:
                owner.fields, owner.api_version, owner.time = wanted, api_version, now
            return
    owners.append(Owner(manager, operation, api_version, subresource, fields, now))
